"""Validation of Deployments and ReplicaSets."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.apps.deployment import validate_deployment, validate_deployment_status_update
from kubeloop.kube.objects.resources import DEPLOYMENTS, REPLICA_SETS, Resource
from support.objects.validation_causes import create_causes, defaulted, pod, update_causes, validator_causes, workload

JSON = dict[str, Any]

NOT_NEGATIVE = "must be greater than or equal to 0"

MISMATCH = "`selector` does not match template `labels`"


@pytest.mark.parametrize("resource", [DEPLOYMENTS, REPLICA_SETS], ids=str)
@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param({}, [], id="valid"),
        pytest.param({"replicas": -1}, [f"spec.replicas: Invalid value: -1: {NOT_NEGATIVE}"], id="replicas"),
        pytest.param(
            {"selector": {"matchLabels": {"app": "b"}}},
            [f'spec.template.metadata.labels: Invalid value: {{"app":"a"}}: {MISMATCH}'],
            id="selector does not match the template",
        ),
        pytest.param(
            {"selector": {}},
            ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
            id="an empty selector",
        ),
        pytest.param(
            {"selector": None},
            [
                "spec.selector: Required value",
                f'spec.template.metadata.labels: Invalid value: {{"app":"a"}}: {MISMATCH}',
            ],
            id="no selector",
        ),
    ],
)
def test_new_deployment_or_replica_set_causes(resource: Resource[Any], spec: JSON, causes: list[str]) -> None:
    assert create_causes(resource, workload(**spec)) == causes


@pytest.mark.parametrize(
    ("strategy", "causes"),
    [
        pytest.param(
            {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}},
            ['spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "0%": may not be 0 when `maxSurge` is 0'],
            id="neither surge nor unavailable pods",
        ),
        pytest.param(
            {"rollingUpdate": {"maxUnavailable": "101%"}},
            ['spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%'],
            id="more than 100 percent unavailable",
        ),
        pytest.param(
            {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}},
            ["spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"],
            id="rollingUpdate with Recreate",
        ),
        pytest.param(
            {"type": "Bad"},
            [
                'spec.strategy: Unsupported value: {"Type":"Bad","RollingUpdate":null}: '
                'supported values: "Recreate", "RollingUpdate"'
            ],
            id="unknown type, shown as Go's internal struct",
        ),
    ],
)
def test_deployment_strategy_causes(strategy: JSON, causes: list[str]) -> None:
    assert create_causes(DEPLOYMENTS, workload(strategy=strategy)) == causes


def test_workload_selector_is_immutable() -> None:
    changed = workload(selector={"matchLabels": {"app": "b"}}, template={"metadata": {"labels": {"app": "b"}}, **pod()})
    for resource in (DEPLOYMENTS, REPLICA_SETS):
        assert update_causes(resource, workload(), changed) == [
            'spec.selector: Invalid value: {"matchLabels":{"app":"b"}}: field is immutable'
        ]


@pytest.mark.parametrize(
    ("seconds", "causes"),
    [
        pytest.param(11, [], id="longer than minReadySeconds"),
        pytest.param(
            10,
            ["spec.progressDeadlineSeconds: Invalid value: 10: must be greater than minReadySeconds"],
            id="equal to minReadySeconds",
        ),
    ],
)
def test_progress_deadline_is_longer_than_min_ready_seconds(seconds: int, causes: list[str]) -> None:
    obj = defaulted(DEPLOYMENTS, workload(minReadySeconds=10, progressDeadlineSeconds=seconds))
    assert validator_causes(validate_deployment, obj) == causes


def test_deployment_status_counts_are_not_negative() -> None:
    status = {"observedGeneration": -1, "unavailableReplicas": -2}
    assert validator_causes(validate_deployment_status_update, {"status": status}, {}) == [
        f"status.observedGeneration: Invalid value: -1: {NOT_NEGATIVE}",
        f"status.unavailableReplicas: Invalid value: -2: {NOT_NEGATIVE}",
    ]
