"""Validation of ReplicaSets."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kinds.apps.replica_set import (
    STRATEGY,
    validate_replica_set,
    validate_replica_set_status_update,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import REPLICA_SETS
from support.objects.validation_causes import defaulted, validator_causes, workload

NOT_NEGATIVE = "must be greater than or equal to 0"


def test_replica_set_numbers_are_not_negative() -> None:
    obj = defaulted(REPLICA_SETS, workload(replicas=-1, minReadySeconds=-2))
    assert validator_causes(validate_replica_set, obj) == [
        f"spec.replicas: Invalid value: -1: {NOT_NEGATIVE}",
        f"spec.minReadySeconds: Invalid value: -2: {NOT_NEGATIVE}",
    ]


def test_unchanged_replica_set_spec_is_not_validated() -> None:
    invalid = defaulted(REPLICA_SETS, workload(replicas=-1))
    assert validator_causes(STRATEGY.validate_update, invalid, invalid) == []


@pytest.mark.parametrize(
    ("status", "causes"),
    [
        pytest.param({"replicas": 2, "readyReplicas": 2, "availableReplicas": 2}, [], id="all available"),
        pytest.param(
            {"terminatingReplicas": -1},
            [f"status.terminatingReplicas: Invalid value: -1: {NOT_NEGATIVE}"],
            id="negative",
        ),
        pytest.param(
            {"replicas": 2, "readyReplicas": 1, "availableReplicas": 2},
            ["status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas"],
            id="more available than ready",
        ),
    ],
)
def test_replica_set_status_causes(status: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_replica_set_status_update, {"status": status}, {}) == causes
