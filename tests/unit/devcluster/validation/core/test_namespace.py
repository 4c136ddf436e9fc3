"""Validation of Namespaces."""

from __future__ import annotations

from kubeloop.kube.objects.resources import NAMESPACES
from support.validation_causes import update_causes


def test_namespace_phase_follows_its_deletion() -> None:
    active, ending = {"status": {"phase": "Active"}}, {"status": {"phase": "Terminating"}}
    assert update_causes(NAMESPACES, active, active, "status") == []
    assert update_causes(NAMESPACES, active, ending, "status") == [
        "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
    ]
