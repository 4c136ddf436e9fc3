"""Validation of Leases."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kinds.coordination.lease import STRATEGY, validate_lease
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param({"leaseDurationSeconds": 1, "leaseTransitions": 0}, [], id="smallest valid numbers"),
        pytest.param({}, [], id="empty spec"),
        pytest.param(
            {"leaseDurationSeconds": -1},
            ["spec.leaseDurationSeconds: Invalid value: -1: must be greater than 0"],
            id="negative duration",
        ),
        pytest.param(
            {"leaseTransitions": -1},
            ["spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"],
            id="negative transitions",
        ),
    ],
)
def test_lease_causes_of_create_and_update(spec: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_lease, {"spec": spec}) == causes
    assert validator_causes(STRATEGY.validate_update, {"spec": spec}, {"spec": {}}) == causes
