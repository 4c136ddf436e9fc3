"""What a Pod's status means to a controller: active, ready, available.

Pure functions of Pods and the time. Source: pkg/api/v1/pod/util.go, pkg/controller/controller_utils.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from kubeloop.kube.objects.api_types import Condition, Pod


def is_finished(pod: Pod) -> bool:
    """Its containers have ended for good."""
    return pod.status.phase in ("Succeeded", "Failed")


def is_active(pod: Pod) -> bool:
    """Counts as a replica: neither finished nor being deleted."""
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in ("Succeeded", "Failed")


def is_terminating(pod: Pod) -> bool:
    """Being deleted, and its containers still have to end."""
    return pod.metadata.deletion_timestamp is not None and pod.status.phase not in ("Succeeded", "Failed")


def ready_condition(pod: Pod) -> Condition | None:
    for condition in pod.status.conditions:
        if condition.type == "Ready":
            return condition
    return None


def is_ready(pod: Pod) -> bool:
    for condition in pod.status.conditions:
        if condition.type == "Ready":
            return condition.status == "True"
    return False


def is_available(pod: Pod, min_ready_seconds: int, now: datetime) -> bool:
    """Ready, and for at least min_ready_seconds."""
    condition = ready_condition(pod)
    if condition is None or condition.status != "True":
        return False
    if min_ready_seconds == 0:
        return True
    since = condition.last_transition_time
    return since is not None and since + timedelta(seconds=min_ready_seconds) <= now


def next_availability_seconds(pods: Iterable[Pod], min_ready_seconds: int, now: datetime) -> float | None:
    """Seconds until the first of the ready, not yet available Pods becomes available; None if time changes nothing."""
    if min_ready_seconds <= 0:
        return None
    soonest: float | None = None
    for pod in pods:
        condition = ready_condition(pod)
        if condition is None or condition.status != "True" or condition.last_transition_time is None:
            continue
        seconds = (condition.last_transition_time + timedelta(seconds=min_ready_seconds) - now).total_seconds()
        if seconds > 0 and (soonest is None or seconds < soonest):
            soonest = seconds
    return soonest
