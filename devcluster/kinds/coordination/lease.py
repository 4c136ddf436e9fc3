"""Validation of Leases. Source: pkg/apis/coordination/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON


def validate_lease(errors: ErrorList, obj: JSON) -> None:
    spec = obj.get("spec", {})
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        errors.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    errors.not_negative("spec.leaseTransitions", spec.get("leaseTransitions"))


def validate_lease_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    del old
    validate_lease(errors, obj)


STRATEGY = Strategy(validate=validate_lease, validate_update=validate_lease_update, core_finalizers=False)
