"""Leases. Source: pkg/apis/coordination/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.printers.columns import AGE, row, text_of
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON


def validate_lease(errors: ErrorList, obj: JSON) -> None:
    spec = obj.get("spec", {})
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        errors.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    errors.not_negative("spec.leaseTransitions", spec.get("leaseTransitions"))


def _drop_coordinated_election_fields(lease: JSON, *_: Any) -> None:
    """Drop the fields of coordinated leader election, whose feature gate is off."""
    for name in ("strategy", "preferredHolder"):
        lease.get("spec", {}).pop(name, None)


STRATEGY = Strategy(
    prepare_create=_drop_coordinated_election_fields,
    prepare_update=_drop_coordinated_election_fields,
    validate=validate_lease,
    validate_update=update_as_create(validate_lease, unchanged=True),
    core_finalizers=False,
    cells=row(text_of("spec.holderIdentity"), AGE),
)
