"""MutatingAdmissionPolicyBindings. Source: pkg/apis/admissionregistration/validation of Kubernetes v1.36."""

from __future__ import annotations

from functools import partial

from kubeloop.devcluster.api.served_resources import MUTATING_ADMISSION_POLICIES
from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.kinds.admissionregistration.parameter_access import check_param_ref
from kubeloop.devcluster.kinds.admissionregistration.policies import (
    MUTABLE_OPERATIONS,
    default_binding,
    param_ref,
    static_name_warnings,
    validate_binding,
)
from kubeloop.devcluster.printers.columns import AGE, row, text_of
from kubeloop.devcluster.printers.formatting import NONE
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON


def validate_mutating_binding(errors: ErrorList, obj: JSON) -> None:
    validate_binding(errors, obj, MUTABLE_OPERATIONS)


STRATEGY = Strategy(
    default=default_binding,
    validate=validate_mutating_binding,
    validate_update=update_as_create(validate_mutating_binding),
    check_access=partial(
        check_param_ref,
        MUTATING_ADMISSION_POLICIES,
        # Kubernetes' message, which names user and verb in each other's place
        refusal='user {verb} does not have "{user}" permission on the object referenced by paramRef',
    ),
    core_finalizers=False,
    update_steps="ws",
    warnings=static_name_warnings,
    cells=row(text_of("spec.policyName", NONE), param_ref, AGE),
)
