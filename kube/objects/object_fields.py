"""Fields of typed objects that many parts read: conditions, phase, replicas.

Pure functions. Source: pkg/api/v1/pod/util.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.kube.objects.api_types import Condition, Deployment, Pod, ReplicaSet, ReplicationController


def condition_of(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """Return the condition of a type, or None."""
    for condition in conditions:
        if condition.type == type_:
            return condition
    return None


def is_ready(pod: Pod) -> bool:
    """Return True if the condition Ready of the Pod is True."""
    for condition in pod.status.conditions:
        if condition.type == "Ready":
            return condition.status == "True"
    return False


def is_finished(pod: Pod) -> bool:
    """Return True if the Pod has the phase Succeeded or Failed."""
    return pod.status.phase in ("Succeeded", "Failed")


def replicas_of(workload: Deployment | ReplicaSet | ReplicationController) -> int:
    """Return spec.replicas; 1 if it is not set, which is the API's default."""
    replicas = workload.spec.replicas
    return 1 if replicas is None else replicas
