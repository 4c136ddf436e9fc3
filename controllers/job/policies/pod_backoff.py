"""Exponential back-off before failed Pods are replaced: 10 s, doubled per failure in a row, at most 10 minutes.

Pure functions. Source: v1.36 pkg/controller/job/backoff_utils.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from kubeloop.kube.objects.api_types import ContainerStatus, Pod
from kubeloop.kube.objects.object_fields import condition_of
from kubeloop.kube.values.times import parse_time, seconds_between, time_plus

BASE_SECONDS = 10.0
MAX_SECONDS = 600.0
_MAX_DOUBLINGS = 6  # 10 s * 2^6 is above the maximum


class BackoffRecord(NamedTuple):
    """Failures of a Job since its last success, and when the last of them happened."""

    failures: int = 0
    last_failure: datetime | None = None


def updated_record(record: BackoffRecord, succeeded: Sequence[Pod], failed: Sequence[Pod]) -> BackoffRecord:
    """Return the record with Pods that have finished since it was written."""
    failure_times = sorted(filter(None, map(finished_time, failed)))
    if not succeeded:
        if not failure_times:
            return record
        return BackoffRecord(record.failures + len(failure_times), failure_times[-1])
    last_success = max(filter(None, map(finished_time, succeeded)), default=None)
    later = [time for time in failure_times if last_success is None or time > last_success]
    return BackoffRecord(len(later), later[-1] if later else None)


def remaining_seconds(record: BackoffRecord, now: datetime) -> float:
    """Return the seconds until a Pod may be created; 0 if it may be now."""
    if record.failures == 0 or record.last_failure is None:
        return 0.0
    backoff = min(MAX_SECONDS, BASE_SECONDS * (1 << min(record.failures - 1, _MAX_DOUBLINGS)))
    return max(0.0, backoff - seconds_between(record.last_failure, now))


def finished_time(pod: Pod) -> datetime | None:
    """Return when the Pod finished: its last container, else the change to not ready, else its deletion.

    Falls back to the creation of the Pod.
    """
    time = _containers_finished(pod)
    if time is not None:
        return time
    ready = condition_of(pod.status.conditions, "Ready")
    if ready is not None and ready.status == "False" and ready.last_transition_time is not None:
        return ready.last_transition_time
    metadata = pod.metadata
    if metadata.deletion_timestamp is not None:
        return time_plus(metadata.deletion_timestamp, -(metadata.deletion_grace_period_seconds or 0))
    return metadata.creation_timestamp


def _containers_finished(pod: Pod) -> datetime | None:
    """Return when the last container finished, sidecars included; None if one has not."""
    sidecars = {container.name for container in pod.spec.init_containers if container.restart_policy == "Always"}
    statuses = [
        *pod.status.container_statuses,
        *(status for status in pod.status.init_container_statuses if status.name in sidecars),
    ]
    times: list[datetime] = []
    for status in statuses:
        time = _finished_at(status)
        if time is None:
            return None
        times.append(time)
    return max(times, default=None)


def _finished_at(status: ContainerStatus) -> datetime | None:
    text = ((status.state or {}).get("terminated") or {}).get("finishedAt")
    return parse_time(text) if text else None
