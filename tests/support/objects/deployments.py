"""Deployments and ReplicaSets for tables of the Deployment controller's decisions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kubeloop.controllers.deployment.replica_sets import DESIRED_REPLICAS, MAX_REPLICAS
from kubeloop.kube.objects.api_types import (
    Condition,
    Deployment,
    DeploymentSpec,
    DeploymentStatus,
    DeploymentStrategy,
    IntOrString,
    ObjectMeta,
    ReplicaSet,
    ReplicaSetSpec,
    ReplicaSetStatus,
    RollingUpdateDeployment,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def rolling_update_deployment(
    replicas: int,
    surge: IntOrString | None = 0,
    unavailable: IntOrString | None = 0,
    *,
    deadline_seconds: int | None = None,
    paused: bool = False,
    generation: int = 1,
    status: DeploymentStatus | None = None,
) -> Deployment:
    """Return Deployment `web` with the strategy RollingUpdate."""
    rolling_update = RollingUpdateDeployment(max_surge=surge, max_unavailable=unavailable)
    return Deployment(
        metadata=ObjectMeta(name="web", namespace="default", generation=generation),
        spec=DeploymentSpec(
            replicas=replicas,
            strategy=DeploymentStrategy(type="RollingUpdate", rolling_update=rolling_update),
            progress_deadline_seconds=deadline_seconds,
            paused=paused,
        ),
        status=status or DeploymentStatus(),
    )


def deployment_with_strategy(replicas: int, type_: str) -> Deployment:
    """Return a Deployment with a strategy that has no limits."""
    return Deployment(spec=DeploymentSpec(replicas=replicas, strategy=DeploymentStrategy(type=type_)))


def replica_set(
    name: str,
    replicas: int,
    available: int = 0,
    *,
    desired: int | str | None = None,
    maximum: int | str | None = None,
    age: int = 0,
    status: ReplicaSetStatus | None = None,
    conditions: tuple[Condition, ...] = (),
) -> ReplicaSet:
    """Return a ReplicaSet. desired, maximum: its size annotations; age: in seconds; status: instead of `available`."""
    sizes = {DESIRED_REPLICAS: desired, MAX_REPLICAS: maximum}
    return ReplicaSet(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-of-{name}",
            annotations={key: str(value) for key, value in sizes.items() if value is not None},
            creation_timestamp=NOW - timedelta(seconds=age),
        ),
        spec=ReplicaSetSpec(replicas=replicas),
        status=status or ReplicaSetStatus(replicas=replicas, available_replicas=available, conditions=conditions),
    )
