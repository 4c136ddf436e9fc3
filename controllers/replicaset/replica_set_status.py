"""Status of a ReplicaSet, computed from its Pods. Source: pkg/controller/replicaset/replica_set_utils.go."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from kubeloop.controllers.replicaset.pod_groups import PodsByGroup
from kubeloop.controllers.runtime.pods.pod_availability import is_available
from kubeloop.kube.objects.api_types import Condition, ReplicaSet, ReplicaSetStatus
from kubeloop.kube.objects.object_fields import replicas_of

REPLICA_FAILURE = "ReplicaFailure"


def replica_set_status(
    rs: ReplicaSet, active: PodsByGroup, terminating: int | None, failure: str | None, now: datetime
) -> ReplicaSetStatus:
    """Return the status that results from the Pods.

    active: the owned, active Pods. terminating: the number of owned terminating Pods, None if the status has no such
    field. failure: why creating or deleting Pods failed in this reconcile, else None.
    """
    template_labels: Iterable[tuple[str, str]] = ((rs.spec.template.get("metadata") or {}).get("labels") or {}).items()
    template_label_set = frozenset(template_labels)
    min_ready_seconds = rs.spec.min_ready_seconds
    replicas = fully_labeled = ready = available = 0
    for group_key, pods in active.items():
        count = len(pods)
        replicas += count
        if template_label_set <= group_key.labels:
            fully_labeled += count
        if group_key.ready:
            ready += count
            if min_ready_seconds == 0:
                available += count
            else:
                available += sum(is_available(pod, min_ready_seconds, now) for pod in pods.values())
    return replace(
        rs.status,
        replicas=replicas,
        fully_labeled_replicas=fully_labeled,
        ready_replicas=ready,
        available_replicas=available,
        terminating_replicas=terminating,
        observed_generation=rs.metadata.generation,
        conditions=_conditions(rs, replicas - replicas_of(rs), failure, now),
    )


def _conditions(rs: ReplicaSet, surplus: int, failure: str | None, now: datetime) -> tuple[Condition, ...]:
    conditions = rs.status.conditions
    failed_before = any(condition.type == REPLICA_FAILURE for condition in conditions)
    if failure is None:
        if not failed_before:
            return conditions
        return tuple(condition for condition in conditions if condition.type != REPLICA_FAILURE)
    if failed_before:
        return conditions
    reason = "FailedCreate" if surplus < 0 else "FailedDelete" if surplus > 0 else ""
    condition = Condition(
        type=REPLICA_FAILURE,
        status="True",
        reason=reason,
        message=failure,
        last_transition_time=now.replace(microsecond=0),
    )
    return (*conditions, condition)


def only_counts_changed(old: ReplicaSetStatus, new: ReplicaSetStatus) -> bool:
    """Return True if no Pod became ready or available or stopped being so, and the conditions are the same."""
    return (
        old.ready_replicas == new.ready_replicas
        and old.available_replicas == new.available_replicas
        and old.conditions == new.conditions
    )


def turns(before: ReplicaSetStatus, status: ReplicaSetStatus, replicas_after: int) -> bool:
    """Return True if the count of `status` is not between those before and after it.

    A Deployment takes more Pods than its last status counts as progress, also those that replace deleted ones. It must
    therefore see each decrease that an increase follows.
    """
    return not min(before.replicas, replicas_after) <= status.replicas <= max(before.replicas, replicas_after)
