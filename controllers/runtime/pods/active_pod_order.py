"""Order in which controllers delete active Pods when there are too many.

Pure functions. Source: ActivePods in pkg/controller/controller_utils.go.
"""

from __future__ import annotations

from datetime import datetime

from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.object_fields import condition_of

_PHASE_RANKS = {"Pending": 0, "Unknown": 1, "Running": 2}

ActivePodSortKey = tuple[bool, int, bool, float, tuple[int, int], float, str]


def phase_rank(pod: Pod) -> int:
    """Return 0 for Pending, 1 for Unknown, 2 for Running."""
    return _PHASE_RANKS.get(pod.status.phase, 0)


def ready_since(pod: Pod) -> tuple[bool, datetime | None]:
    """Return whether the Pod is ready, and the time since when."""
    condition = condition_of(pod.status.conditions, "Ready")
    if condition is None or condition.status != "True":
        return False, None
    return True, condition.last_transition_time


def max_restarts(pod: Pod) -> tuple[int, int]:
    """Return the most restarts of a regular container, and of a sidecar container."""
    regular = 0
    for status in pod.status.container_statuses:
        regular = max(regular, status.restart_count)
    if not pod.status.init_container_statuses:
        return regular, 0
    sidecars = {container.name for container in pod.spec.init_containers if container.restart_policy == "Always"}
    sidecar = max(
        (status.restart_count for status in pod.status.init_container_statuses if status.name in sidecars), default=0
    )
    return regular, sidecar


def active_pod_sort_key(pod: Pod) -> ActivePodSortKey:
    """Return the sort key of the deletion order; the smaller one is deleted first.

    Unassigned before assigned, earlier phase before later, not ready before ready, ready for a shorter time before
    longer, more restarts before fewer, newer before older; an unknown time counts as the newest. The order of Pods
    that are equal in all this is that of their UIDs, and arbitrary in kube-controller-manager. ReplicaSets have an
    order of their own, see `replicaset.deletion_order`.
    """
    ready, since = ready_since(pod)
    regular, sidecar = max_restarts(pod)
    return (
        pod.spec.node_name != "",
        phase_rank(pod),
        ready,
        _newest_first(since) if ready else 0.0,
        (-regular, -sidecar),
        _newest_first(pod.metadata.creation_timestamp),
        pod.metadata.uid,
    )


def _newest_first(time: datetime | None) -> float:
    return float("-inf") if time is None else -time.timestamp()
