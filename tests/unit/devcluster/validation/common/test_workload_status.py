"""Validation of the status of workloads."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.validation.common.workload_status import validate_collision_count
from kubeloop.kube.objects.resources import DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, Resource
from support.objects.validation_causes import update_causes, validator_causes, workload

JSON = dict[str, Any]


@pytest.mark.parametrize(
    ("resource", "old", "new", "causes"),
    [
        pytest.param(
            DEPLOYMENTS,
            {},
            {"replicas": 1, "availableReplicas": 2},
            [
                "status.availableReplicas: Invalid value: 2: cannot be greater than status.replicas",
                "status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas",
            ],
            id="more available than replicas",
        ),
        pytest.param(
            DEPLOYMENTS,
            {"collisionCount": 2},
            {"collisionCount": 1},
            ["status.collisionCount: Invalid value: 1: cannot be decremented"],
            id="collision count decreases",
        ),
        pytest.param(
            REPLICA_SETS,
            {},
            {"replicas": 1, "fullyLabeledReplicas": 2},
            ["status.fullyLabeledReplicas: Invalid value: 2: cannot be greater than status.replicas"],
            id="ReplicaSet",
        ),
        pytest.param(
            STATEFUL_SETS,
            {},
            {"replicas": 1, "readyReplicas": 1, "currentReplicas": 2},
            ["status.currentReplicas: Invalid value: 2: cannot be greater than status.replicas"],
            id="StatefulSet",
        ),
    ],
)
def test_workload_status_causes(resource: Resource[Any], old: JSON, new: JSON, causes: list[str]) -> None:
    body = workload(serviceName="s")
    if resource is not STATEFUL_SETS:
        del body["spec"]["serviceName"]
    assert update_causes(resource, {**body, "status": old}, {**body, "status": new}, "status") == causes


@pytest.mark.parametrize(
    ("count", "before", "causes"),
    [
        pytest.param(None, None, [], id="never set"),
        pytest.param(1, None, [], id="set"),
        pytest.param(2, 1, [], id="incremented"),
        pytest.param(
            None, 1, ["status.collisionCount: Invalid value: 0: cannot be decremented"], id="removed: counts as zero"
        ),
    ],
)
def test_collision_count_does_not_decrease(count: int | None, before: int | None, causes: list[str]) -> None:
    new, old = ({"status": {} if number is None else {"collisionCount": number}} for number in (count, before))
    assert validator_causes(validate_collision_count, new, old) == causes
