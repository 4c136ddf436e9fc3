"""Milestones of an observed pod: what its states and Events show about when it was scheduled, started, ready, ended.

A milestone is an Edge: the interval in which it was reached. Evidence that comes again or late changes nothing.
`observed_phases` derives phases from the milestones. Imports msgspec and `kube.values.times` only.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import msgspec

from kubeloop.kube.values.times import epoch_ns

SECOND_NS: Final = 1_000_000_000
MAX_MARKS: Final = 60  # per list; of more, the first and last are stored
MAX_RUNS: Final = 12  # per container; of more, the first and last are stored
MAX_MISSED: Final = 20
MAX_MESSAGE: Final = 1_000  # characters

EdgeSource = Literal["arrival", "creation", "condition", "start time", "container", "event", "deletion"]
"""Where the time of an edge comes from: arrival of a watch event, metadata.creationTimestamp, a condition's transition,
status.startTime, a container's startedAt or finishedAt, an Event, metadata.deletionTimestamp."""

SchedulingStatus = Literal["pending", "gated", "unschedulable", "preempting", "binding"]
ContainerKind = Literal["app", "init", "sidecar"]
PullStep = Literal["pulling", "pulled", "failed", "back-off"]


class Edge(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A moment between low_ns and high_ns; it is shown at high_ns."""

    low_ns: int
    high_ns: int
    source: EdgeSource

    @property
    def uncertainty_ns(self) -> int:
        return self.high_ns - self.low_ns


def arrival_edge(arrival_ns: int, late_since_ns: int = 0) -> Edge:
    """Return the edge of a change that a watch event shows: sent within a second, or `late_since_ns` and later."""
    return Edge((late_since_ns or arrival_ns) - SECOND_NS, arrival_ns, "arrival")


def timestamp_edge(
    moment: datetime, source: EdgeSource, arrival_ns: int, skew_ns: int = 0, resolution_ns: int = SECOND_NS
) -> Edge:
    """Return the edge of an object's timestamp that arrived at `arrival_ns`, by a clock that is ahead by `skew_ns`.

    A timestamp after its arrival is of a clock that is further ahead: only its arrival is used.
    """
    time_ns = epoch_ns(moment) - skew_ns
    if time_ns > arrival_ns:
        return arrival_edge(arrival_ns)
    end_ns = time_ns + resolution_ns
    return Edge(time_ns, end_ns if end_ns < arrival_ns else arrival_ns, source)


def earliest(one: Edge | None, other: Edge) -> Edge:
    """Return the edge of the earlier timestamp, or of the same one the narrower; a timestamp before an arrival."""
    return other if one is None or _rank(other) < _rank(one) else one


def _rank(edge: Edge) -> tuple[bool, int, int, str]:
    if edge.source == "arrival":
        return True, edge.high_ns, -edge.low_ns, ""
    return False, edge.low_ns, edge.high_ns, edge.source


def later(one: Edge, other: Edge) -> Edge:
    """Return the edge of the moment at which both are reached."""
    if other.high_ns >= one.high_ns:
        return other if other.low_ns >= one.low_ns else Edge(one.low_ns, other.high_ns, other.source)
    return one if one.low_ns >= other.low_ns else Edge(min(other.low_ns, one.high_ns), one.high_ns, one.source)


def no_later(edge: Edge, limit: Edge | None) -> Edge:
    """Return the edge of a moment that is not after `limit`."""
    if limit is None or edge.high_ns <= limit.high_ns:
        return edge
    return Edge(min(edge.low_ns, limit.high_ns), limit.high_ns, edge.source)


class SchedulingMark(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """From `edge` on, the pod has this status.

    node: the nominated node. event_ns: timestamp of the Event; 0: from the pod's state.
    """

    edge: Edge
    status: SchedulingStatus
    message: str = ""
    node: str = ""
    event_ns: int = 0


class PullMark(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Step of an image pull. event_ns: timestamp of the Event; 0: from the container's status."""

    edge: Edge
    step: PullStep
    message: str = ""
    event_ns: int = 0


class Run(msgspec.Struct, gc=False, array_like=True):
    """One run of a container."""

    started: Edge | None = None
    finished: Edge | None = None
    exit_code: int = 0
    reason: str = ""
    backed_off: bool = False  # the kubelet waited before the next run


class ProbeFailures(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Number of failures of a probe, and the message of the last one."""

    count: int
    message: str


class ContainerMilestones(msgspec.Struct, gc=False, array_like=True):
    """One container.

    position      in the order in which the kubelet starts containers; -1: only Events have mentioned it
    runs          by restart count
    started       the kubelet reports `started`: its startup probe succeeded
    ready         the kubelet reports `ready`
    pulls         steps of image pulls, from Events
    probe_failures  by probe: "startup", "readiness", "liveness"
    waits         failures and back-off of image pulls, from the container's status
    """

    name: str
    kind: ContainerKind = "app"
    position: int = -1
    image: str = ""
    has_startup_probe: bool = False
    has_readiness_probe: bool = False
    runs: dict[int, Run] = {}
    started: Edge | None = None
    ready: Edge | None = None
    started_event: Edge | None = None
    pulls: list[PullMark] = []
    waits: list[PullMark] = []
    waiting_reason: str = ""
    waiting_message: str = ""
    probe_failures: dict[str, ProbeFailures] = {}


class MissedTime(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Time in which changes of the pod may have been missed."""

    since_ns: int
    until_ns: int
    reason: str


class PodMilestones(msgspec.Struct, gc=False, array_like=True):
    """Milestones of one pod; None: not reached, or not known.

    conditions    the first transition of a condition to true, by type
    acknowledged  status.startTime: the kubelet has acknowledged the pod
    all_running   first state in which all containers were running (the end of the SLI for pod start-up)
    seen_ns       when the last state was the current one: its arrival, or earlier if it came late
    version       resourceVersion of the last state; 0: any state is newer
    """

    creation: Edge | None = None
    scheduling: list[SchedulingMark] = []
    bound: Edge | None = None
    node: str = ""
    scheduled_event: Edge | None = None
    acknowledged: Edge | None = None
    conditions: dict[str, Edge] = {}
    containers: dict[str, ContainerMilestones] = {}
    volumes_attached: Edge | None = None
    sandbox_message: str = ""
    sandbox_failures: int = 0
    all_running: Edge | None = None
    ended: Edge | None = None
    end_phase: str = ""
    end_reason: str = ""
    end_message: str = ""
    deletion: Edge | None = None
    deleted: Edge | None = None
    disruption: str = ""
    disruption_message: str = ""
    disrupted: Edge | None = None
    node_lost: Edge | None = None
    node_back: Edge | None = None
    missed: list[MissedTime] = []
    is_stateless: bool = True
    was_unschedulable: bool = False
    seen_ns: int = 0
    version: int = 0

    def container(self, name: str) -> ContainerMilestones:
        container = self.containers.get(name)
        if container is None:
            container = self.containers[name] = ContainerMilestones(name)
        return container

    def add_missed(self, since_ns: int, until_ns: int, reason: str) -> None:
        if len(self.missed) < MAX_MISSED:
            self.missed.append(MissedTime(since_ns, until_ns, reason))
        else:
            last = self.missed[-1]
            self.missed[-1] = MissedTime(last.since_ns, max(last.until_ns, until_ns), last.reason)


def add_mark(marks: list[PullMark], mark: PullMark) -> bool:
    """Add a step that an Event shows, unless it is known; returns True if it is new."""
    if any(other.step == mark.step and other.event_ns == mark.event_ns for other in marks):
        return False
    marks.append(mark)
    limit(marks)
    return True


def limit(marks: list[PullMark] | list[SchedulingMark]) -> None:
    """Drop a mark of the middle if there are too many."""
    if len(marks) > MAX_MARKS:
        del marks[MAX_MARKS // 2]
