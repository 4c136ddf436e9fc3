"""ValidatingAdmissionPolicyBindings. Source: pkg/apis/admissionregistration/validation of Kubernetes v1.36."""

from __future__ import annotations

from functools import partial

from kubeloop.devcluster.api.served_resources import VALIDATING_ADMISSION_POLICIES
from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.kinds.admissionregistration.parameter_access import check_param_ref
from kubeloop.devcluster.kinds.admissionregistration.policies import (
    default_binding,
    param_ref,
    static_name_warnings,
    validate_binding,
    validate_enum,
)
from kubeloop.devcluster.printers.columns import AGE, row, text_of
from kubeloop.devcluster.printers.formatting import NONE
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON

_ACTIONS = ("Audit", "Deny", "Warn")


def validate_validating_binding(errors: ErrorList, obj: JSON) -> None:
    path, seen = "spec.validationActions", set[str]()
    actions = validate_binding(errors, obj).get("validationActions") or ()
    for index, action in enumerate(actions):
        validate_enum(errors, f"{path}[{index}]", action, _ACTIONS)
        errors.unique(f"{path}[{index}]", action, seen)
    if "Deny" in seen and "Warn" in seen:
        detail = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        errors.invalid(path, actions, detail)
    errors.require(path, actions, "at least one validation action is required")


STRATEGY = Strategy(
    default=default_binding,
    validate=validate_validating_binding,
    validate_update=update_as_create(validate_validating_binding),
    check_access=partial(check_param_ref, VALIDATING_ADMISSION_POLICIES, error_prefix="failed to authorize request: "),
    core_finalizers=False,
    update_steps="ws",
    warnings=static_name_warnings,
    cells=row(text_of("spec.policyName", NONE), param_ref, AGE),
)
