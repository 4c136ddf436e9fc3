"""MutatingAdmissionPolicyBindings. Source: pkg/apis/admissionregistration/validation of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy, update_as_create
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
    core_finalizers=False,
    update_steps="ws",
    warnings=static_name_warnings,
    cells=row(text_of("spec.policyName", NONE), param_ref, AGE),
)
