"""Validation of Namespaces."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.kinds.core.namespace import (
    STRATEGY,
    validate_namespace,
    validate_namespace_finalize_update,
    validate_namespace_status_update,
)
from kubeloop.kube.objects.resources import NAMESPACES
from support.objects.validation_causes import update_causes, validator_causes


def test_namespace_phase_follows_its_deletion() -> None:
    active, ending = {"status": {"phase": "Active"}}, {"status": {"phase": "Terminating"}}
    assert update_causes(NAMESPACES, active, active, "status") == []
    assert update_causes(NAMESPACES, active, ending, "status") == [
        "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
    ]


NOT_STANDARD = "name is neither a standard finalizer name nor is it fully qualified"


@pytest.mark.parametrize(
    ("finalizer", "details"),
    [
        pytest.param("kubernetes", [], id="standard"),
        pytest.param("a.b/c", [], id="qualified"),
        pytest.param("mine", [NOT_STANDARD], id="not qualified"),
    ],
)
def test_namespace_finalizer_causes(finalizer: str, details: list[str]) -> None:
    obj = {"spec": {"finalizers": [finalizer]}}
    cause = f'Invalid value: "{finalizer}":'
    assert validator_causes(validate_namespace, obj) == [f"spec.finalizers: {cause} {detail}" for detail in details]
    assert validator_causes(validate_namespace_finalize_update, obj, {}) == [
        f"spec.finalizers[0]: {cause} {detail}" for detail in details
    ]


def test_deleted_namespace_stays_terminating() -> None:
    deleted = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    terminating, active = ({**deleted, "status": {"phase": phase}} for phase in ("Terminating", "Active"))
    assert validator_causes(validate_namespace_status_update, terminating, terminating) == []
    assert validator_causes(validate_namespace_status_update, active, terminating) == [
        "status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty"
    ]


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_protected_namespaces_may_not_be_deleted(name: str):
    assert STRATEGY.check_delete is not None
    with pytest.raises(StatusError) as raised:
        STRATEGY.check_delete(name)
    assert (raised.value.code, raised.value.message) == (
        403,
        f'namespaces "{name}" is forbidden: this namespace may not be deleted',
    )
