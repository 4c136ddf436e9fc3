"""Classification of Pods for controllers: active, terminating, available; and updates that change it.

Pure functions of Pods and the time. Source: pkg/api/v1/pod/util.go, pkg/controller/controller_utils.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from kubeloop.kube.objects.api_types import LabelSelector, Pod
from kubeloop.kube.objects.object_fields import condition_of, is_finished
from kubeloop.kube.values.times import seconds_between, time_plus


def is_active(pod: Pod) -> bool:
    """Return True if the Pod counts as a replica: neither finished nor being deleted."""
    return pod.metadata.deletion_timestamp is None and not is_finished(pod)


def is_terminating(pod: Pod) -> bool:
    """Return True if the Pod is being deleted and is not finished."""
    return pod.metadata.deletion_timestamp is not None and not is_finished(pod)


def affects_owner(old: Pod, new: Pod, selector: LabelSelector | None, labels: Collection[str]) -> bool:
    """Return True if an update of a Pod changes what a sync of its StatefulSet or DaemonSet reads.

    Not so for its binding, for labels that are copied from the node, and for later changes of other conditions and of
    containers. selector: that of the owner. labels: names of other labels that the sync reads.
    """
    if (
        not new.spec.node_name  # it may lack a claim that the sync creates again
        or new.status.phase != old.status.phase
        or new.metadata.deletion_timestamp != old.metadata.deletion_timestamp
        or condition_of(new.status.conditions, "Ready") != condition_of(old.status.conditions, "Ready")
    ):
        return True
    changed = {name for name, _ in old.metadata.labels.items() ^ new.metadata.labels.items()}
    if not changed or selector is None:
        return bool(changed)
    selected = {*selector.match_labels, *(requirement.key for requirement in selector.match_expressions)}
    return not changed.isdisjoint(selected.union(labels))


def is_available(pod: Pod, min_ready_seconds: int, now: datetime) -> bool:
    """Return True if the Pod has been ready for at least min_ready_seconds."""
    condition = condition_of(pod.status.conditions, "Ready")
    if condition is None or condition.status != "True":
        return False
    if min_ready_seconds == 0:
        return True
    since = condition.last_transition_time
    return since is not None and time_plus(since, min_ready_seconds) <= now


def next_availability_seconds(pods: Iterable[Pod], min_ready_seconds: int, now: datetime) -> float | None:
    """Return the seconds until the first ready Pod becomes available; None if no Pod will without another event."""
    if min_ready_seconds <= 0:
        return None
    soonest: float | None = None
    for pod in pods:
        condition = condition_of(pod.status.conditions, "Ready")
        if condition is None or condition.status != "True" or condition.last_transition_time is None:
            continue
        seconds = seconds_between(now, time_plus(condition.last_transition_time, min_ready_seconds))
        if seconds > 0 and (soonest is None or seconds < soonest):
            soonest = seconds
    return soonest
