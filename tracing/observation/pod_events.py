"""Milestones from the Events of a pod: of kube-scheduler, the kubelet, and the attach-detach controller."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final

from kubeloop.kube.objects.observed_types import ObservedEvent
from kubeloop.kube.values.times import epoch_ns
from kubeloop.tracing.spans.pod_milestones import (
    MAX_MESSAGE,
    SECOND_NS,
    ContainerMilestones,
    Edge,
    PodMilestones,
    ProbeFailures,
    PullMark,
    PullStep,
    SchedulingMark,
    add_mark,
    earliest,
    limit,
    timestamp_edge,
)
from kubeloop.tracing.spans.short_text import shorten

_CONTAINER: Final = re.compile(r"spec\.(?:initContainers|containers)\{([^}]+)\}").fullmatch
_SANDBOX_REASONS: Final = frozenset(
    ("FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume", "FailedMapVolume", "NetworkNotReady")
)
_MICROSECOND_NS: Final = 1_000


def add_event(milestones: PodMilestones, event: ObservedEvent, arrival_ns: int, skew_ns: int = 0) -> bool:
    """Add an Event of the pod, by a clock that is ahead by `skew_ns`; returns False if it shows nothing."""
    reason = event.reason
    match = _CONTAINER(event.involved_object.field_path) if event.involved_object.field_path else None
    if match is not None:
        add = _CONTAINER_EVENTS.get(reason)
        return add is not None and add(milestones.container(match[1]), event, arrival_ns, skew_ns)
    edge = _first(event, arrival_ns, skew_ns)
    if edge is None:
        return False
    if reason == "Scheduled":
        milestones.scheduled_event = earliest(milestones.scheduled_event, edge)
    elif reason == "FailedScheduling":
        return _add_failed_scheduling(milestones, event, edge)
    elif reason == "SuccessfulAttachVolume":
        if milestones.volumes_attached is None or edge.high_ns > milestones.volumes_attached.high_ns:
            milestones.volumes_attached = edge
    elif reason in _SANDBOX_REASONS:
        milestones.sandbox_message = shorten(event.message, MAX_MESSAGE)
        milestones.sandbox_failures = max(milestones.sandbox_failures, event.count or 1)
    else:
        return False
    return True


def _first(event: ObservedEvent, arrival_ns: int, skew_ns: int) -> Edge | None:
    """Return when the Event was first recorded; None if it has no time."""
    moment = event.event_time or event.first_timestamp
    return None if moment is None else _edge(moment, event, arrival_ns, skew_ns)


def _edge(moment: datetime, event: ObservedEvent, arrival_ns: int, skew_ns: int) -> Edge:
    resolution_ns = SECOND_NS if event.event_time is None else _MICROSECOND_NS
    return timestamp_edge(moment, "event", arrival_ns, skew_ns, resolution_ns)


def _add_failed_scheduling(milestones: PodMilestones, event: ObservedEvent, edge: Edge) -> bool:
    """Add a failed attempt. Of a repeated Event only the first time is added: its message has not changed since."""
    milestones.was_unschedulable = True
    moment = event.event_time or event.first_timestamp
    event_ns = epoch_ns(moment) if moment is not None else 0
    if any(mark.event_ns == event_ns for mark in milestones.scheduling):
        return False
    milestones.scheduling.append(
        SchedulingMark(edge, "unschedulable", shorten(event.message, MAX_MESSAGE), event_ns=event_ns)
    )
    limit(milestones.scheduling)
    return True


def _add_pull_step(
    step: PullStep, container: ContainerMilestones, event: ObservedEvent, arrival_ns: int, skew_ns: int
) -> bool:
    """Add the first and the last occurrence of a step: the kubelet counts repetitions in one Event."""
    added = False
    for moment in (event.event_time or event.first_timestamp, event.last_timestamp if event.count > 1 else None):
        if moment is not None:
            edge = _edge(moment, event, arrival_ns, skew_ns)
            mark = PullMark(edge, step, shorten(event.message, MAX_MESSAGE), epoch_ns(moment))
            added |= add_mark(container.pulls, mark)
    return added


def _add_failed(container: ContainerMilestones, event: ObservedEvent, arrival_ns: int, skew_ns: int) -> bool:
    """Add a failed image pull; a container that cannot be created or started shows in its status."""
    if not event.message.startswith("Failed to pull image"):
        return False
    return _add_pull_step("failed", container, event, arrival_ns, skew_ns)


def _add_back_off(container: ContainerMilestones, event: ObservedEvent, arrival_ns: int, skew_ns: int) -> bool:
    if not event.message.startswith("Back-off pulling image"):
        return False
    return _add_pull_step("back-off", container, event, arrival_ns, skew_ns)


def _add_started(container: ContainerMilestones, event: ObservedEvent, arrival_ns: int, skew_ns: int) -> bool:
    edge = _first(event, arrival_ns, skew_ns)
    if edge is not None:
        container.started_event = earliest(container.started_event, edge)
    return edge is not None


def _add_unhealthy(container: ContainerMilestones, event: ObservedEvent, arrival_ns: int, skew_ns: int) -> bool:
    probe = event.message.partition(" ")[0].lower()
    known = container.probe_failures.get(probe)
    if probe not in ("startup", "readiness", "liveness") or (known is not None and known.count > (event.count or 1)):
        return False
    container.probe_failures[probe] = ProbeFailures(event.count or 1, shorten(event.message, MAX_MESSAGE))
    return True


_CONTAINER_EVENTS: Final[dict[str, Callable[[ContainerMilestones, ObservedEvent, int, int], bool]]] = {
    "Pulling": partial(_add_pull_step, "pulling"),
    "Pulled": partial(_add_pull_step, "pulled"),
    "Failed": _add_failed,
    "InspectFailed": partial(_add_pull_step, "failed"),
    "ErrImageNeverPull": partial(_add_pull_step, "failed"),
    "BackOff": _add_back_off,
    "Started": _add_started,
    "Unhealthy": _add_unhealthy,
}
