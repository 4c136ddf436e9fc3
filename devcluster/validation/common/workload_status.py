"""Checks of status fields that Deployments, ReplicaSets, StatefulSets and DaemonSets share."""

from __future__ import annotations

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON


def validate_replica_counts(
    errors: ErrorList, status: JSON, names: tuple[str, ...], ready: str = "readyReplicas"
) -> None:
    """Require at most `replicas` of each of `names`, and at most `readyReplicas` available; ready: name in messages."""
    for name in names:
        if (count := status.get(name, 0)) > status.get("replicas", 0):
            errors.invalid(f"status.{name}", count, "cannot be greater than status.replicas")
    if (available := status.get("availableReplicas", 0)) > status.get("readyReplicas", 0):
        errors.invalid("status.availableReplicas", available, f"cannot be greater than {ready}")


def validate_collision_count(errors: ErrorList, obj: JSON, old: JSON) -> None:
    count, before = obj.get("status", {}).get("collisionCount"), old.get("status", {}).get("collisionCount")
    if before is not None and (count is None or count < before):
        errors.invalid("status.collisionCount", count or 0, "cannot be decremented")
