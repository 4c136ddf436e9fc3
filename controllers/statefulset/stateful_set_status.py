"""Status of a StatefulSet, computed from its Pods.

Pure functions. Source: updateStatus and completeRollingUpdate in pkg/controller/statefulset.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from kubeloop.controllers.runtime.pods.pod_availability import is_available
from kubeloop.controllers.statefulset.stateful_pods import ordinal_of, revision_of
from kubeloop.controllers.statefulset.stateful_set_plan import StatefulSetRevisions
from kubeloop.kube.objects.api_types import Pod, StatefulSet, StatefulSetStatus
from kubeloop.kube.objects.object_fields import is_ready, replicas_of


def stateful_set_status(
    sts: StatefulSet, pods: Iterable[Pod], revisions: StatefulSetRevisions, collision_count: int, now: datetime
) -> StatefulSetStatus:
    """Return the status that results from the Pods."""
    current_revision, update_revision = revisions.current.metadata.name, revisions.update.metadata.name
    replicas = ready = available = current = updated = 0
    for pod in pods:
        if ordinal_of(pod) < 0:
            continue
        replicas += 1
        if pod.status.phase == "Running" and is_ready(pod):
            ready += 1
            available += is_available(pod, sts.spec.min_ready_seconds, now)
        if pod.metadata.deletion_timestamp is None:
            revision = revision_of(pod)
            current += revision == current_revision
            updated += revision == update_revision
    return StatefulSetStatus(
        observed_generation=sts.metadata.generation,
        replicas=replicas,
        ready_replicas=ready,
        available_replicas=available,
        current_replicas=current,
        updated_replicas=updated,
        current_revision=current_revision,
        update_revision=update_revision,
        collision_count=collision_count,
    )


def after_update_deletions(sts: StatefulSet, status: StatefulSetStatus, deleted: int) -> StatefulSetStatus:
    """Return the status after `deleted` Pods were deleted for a rolling update.

    A rolling update is complete when all Pods are ready and have the update revision, which then is the current one.
    """
    status = replace(status, current_replicas=status.current_replicas - deleted)
    counts = (status.updated_replicas, status.ready_replicas, status.replicas)
    if sts.spec.update_strategy.type == "RollingUpdate" and all(count == replicas_of(sts) for count in counts):
        return replace(status, current_replicas=status.updated_replicas, current_revision=status.update_revision)
    return status


def needs_status_write(old: StatefulSetStatus, new: StatefulSetStatus) -> bool:
    """Return True if a count or revision differs, or the stored status is of an older generation."""
    return new.observed_generation > old.observed_generation or old != replace(
        new,
        observed_generation=old.observed_generation,
        collision_count=old.collision_count,
        conditions=old.conditions,
    )
