"""Phases of an observed pod, derived from its milestones. Pure functions.

The phases follow each other from the creation to the end of the trace; those of containers may overlap:

    schedule, unschedulable, gated, preemption wait, bind        up to the binding
    start acknowledgement, start volumes, start sandbox          up to the first container
    image pull, image pull back-off, container start, ...        each container, in the order of the spec
    init container, container run, crash back-off                runs of init containers, and runs that failed
    startup probe, readiness probe, start readiness              up to Ready
    terminating, not observed
"""

from __future__ import annotations

from typing import Final

import msgspec

from kubeloop.tracing.spans.image_pulls import image_pulls
from kubeloop.tracing.spans.pod_milestones import (
    SECOND_NS,
    ContainerMilestones,
    Edge,
    PodMilestones,
    Run,
    SchedulingMark,
    later,
    no_later,
)

Attributes = dict[str, str | int | float | bool]


class DerivedPhase(msgspec.Struct):
    """A phase from `start` to `end`; None: it had not ended."""

    name: str
    start: Edge
    end: Edge | None
    attributes: Attributes = {}
    error: str | None = None

    @property
    def is_empty(self) -> bool:
        return self.end is not None and self.end.high_ns <= self.start.high_ns


class TraceEnd(msgspec.Struct, frozen=True):
    """End of a pod's trace; `reason` is set for failures."""

    outcome: str
    edge: Edge
    reason: str = ""


_SCHEDULING_SPANS: Final = {
    "pending": "schedule",
    "gated": "gated",
    "unschedulable": "unschedulable",
    "preempting": "preemption wait",
    "binding": "bind",
}
# Phases of every pod, which histograms count, and those of which the fact matters, not the duration.
_SHOWN_IF_EMPTY: Final = frozenset(
    ("schedule", "unschedulable", "start sandbox", "image pull", "init container", "container run")
)
_DISRUPTIONS: Final = {
    "PreemptionByScheduler": "preempted",
    "EvictionByEvictionAPI": "evicted",
    "DeletionByTaintManager": "evicted",
    "DeletionByPodGC": "node lost",
}
_STATUS_REASONS: Final = {"Evicted": "evicted", "Preempting": "preempted", "NodeLost": "node lost"}


def trace_end(milestones: PodMilestones, *, until_ready: bool) -> TraceEnd | None:
    """Return how and when the pod's trace ended; None if it has not."""
    bound = bound_edge(milestones)
    if bound is not None and not until_ready:
        return TraceEnd("bound", bound)
    ready = milestones.conditions.get("Ready")
    if ready is not None:
        return TraceEnd("ready", ready)
    ended = milestones.ended
    if ended is not None:
        if milestones.end_phase == "Succeeded":
            return TraceEnd("completed", ended)
        return TraceEnd("failed", ended, _reason(milestones) or "containers failed")
    deleted = milestones.deleted
    if deleted is not None:
        default = "deleted before it was ready" if bound is not None else "deleted before it was bound"
        return TraceEnd("deleted", deleted, _reason(milestones) or default)
    return None


def _reason(milestones: PodMilestones) -> str:
    """Return why the pod was disrupted or failed: "evicted: ...", "preempted: ...", "node lost: ..."; "" if unknown."""
    kind = _STATUS_REASONS.get(milestones.end_reason) or _DISRUPTIONS.get(milestones.disruption, "")
    if milestones.node_lost is not None and milestones.node_back is None and kind in ("", "evicted"):
        kind = "node lost"
    message = milestones.end_message or milestones.disruption_message
    if not kind:
        kind = milestones.end_reason
    return f"{kind}: {message}" if kind and message else kind or message


def derive_phases(milestones: PodMilestones) -> list[DerivedPhase]:
    """Return the phases in order of their start. Those that have not ended have no end."""
    if milestones.creation is None:
        return []
    phases = _scheduling_phases(milestones, milestones.creation)
    bound = bound_edge(milestones)
    if bound is not None:
        phases += _StartPhases(milestones, bound).phases
    deletion = milestones.deletion
    if deletion is not None:
        for phase in phases:
            if phase.end is None:
                phase.end = later(phase.start, deletion)
        phases.append(DerivedPhase("terminating", later(milestones.creation, deletion), None))
    for missed in milestones.missed:
        start, end = (
            Edge(missed.since_ns, missed.since_ns, "arrival"),
            Edge(missed.until_ns, missed.until_ns, "arrival"),
        )
        phases.append(DerivedPhase("not observed", start, end, {"kubeloop.reason": missed.reason}))
    lost = milestones.node_lost
    if lost is not None and bound is not None:
        reason: Attributes = {"kubeloop.reason": "the node is not ready", "k8s.node.name": milestones.node}
        back = milestones.node_back
        phases.append(DerivedPhase("not observed", later(bound, lost), later(lost, back) if back else None, reason))
    phases = [phase for phase in phases if phase.name in _SHOWN_IF_EMPTY or not phase.is_empty]
    phases.sort(key=lambda phase: phase.start.high_ns)
    return phases


def bound_edge(milestones: PodMilestones) -> Edge | None:
    """Return when the pod was bound: not after the scheduler's Event, which has microseconds."""
    bound, event = milestones.bound, milestones.scheduled_event
    if bound is None:
        return None
    if event is not None and bound.low_ns <= event.high_ns < bound.high_ns:
        bound = Edge(bound.low_ns, event.high_ns, "event")
    return bound if milestones.creation is None else later(milestones.creation, bound)


def _scheduling_phases(milestones: PodMilestones, creation: Edge) -> list[DerivedPhase]:
    phases: list[DerivedPhase] = []
    bound = bound_edge(milestones)
    marks = _merged(milestones.scheduling)
    current = SchedulingMark(creation, "pending")
    if marks and marks[0].status == "gated":  # from the creation on
        current = msgspec.structs.replace(marks[0], edge=creation)
    for mark in marks:
        if (mark.status, mark.message, mark.node) != (current.status, current.message, current.node):
            end = later(current.edge, no_later(mark.edge, bound))
            phases.append(_scheduling_phase(current, end))
            current = msgspec.structs.replace(mark, edge=end)
    phases.append(_scheduling_phase(current, bound and later(current.edge, bound)))
    return phases


def _scheduling_phase(mark: SchedulingMark, end: Edge | None) -> DerivedPhase:
    attributes: Attributes = {}
    if mark.status == "gated":
        attributes["kubeloop.gates"] = mark.message
    elif mark.message and mark.status != "binding":
        attributes["kubeloop.message"] = mark.message
    if mark.node:
        attributes["kubeloop.nominated_node"] = mark.node
    error = mark.message if mark.status == "unschedulable" else None
    return DerivedPhase(_SCHEDULING_SPANS[mark.status], mark.edge, end, attributes, error)


def _merged(marks: list[SchedulingMark]) -> list[SchedulingMark]:
    """Return marks in order of time. An Event and the condition of the same attempt become one mark.

    The scheduler sends both at the same time, and a state arrives later than it was written: the condition may come
    before the time of its Event, and the removal of gates after the time of the Event that follows from it.
    """
    merged: list[SchedulingMark] = []
    for mark in sorted(marks, key=lambda mark: (mark.edge.high_ns, not mark.event_ns, mark.status, mark.message)):
        last = merged[-1] if merged else None
        if last is None:
            merged.append(mark)
        elif last.event_ns and mark.status == "pending":
            merged.insert(-1, msgspec.structs.replace(mark, edge=no_later(mark.edge, last.edge)))
        elif last.message != mark.message:
            merged.append(mark)
        elif mark.event_ns:
            if last.edge.source == "arrival" and mark.edge.low_ns - last.edge.high_ns < SECOND_NS:
                merged[-1] = msgspec.structs.replace(last, edge=no_later(mark.edge, last.edge))
        elif last.event_ns:
            merged[-1] = msgspec.structs.replace(mark, edge=last.edge)
        else:
            merged.append(mark)
    return merged


class _StartPhases:
    """Phases from the binding on. `_cursor`: when the kubelet could start with the next container."""

    def __init__(self, milestones: PodMilestones, bound: Edge) -> None:
        self.phases: list[DerivedPhase] = []
        self._milestones = milestones
        self._bound = self._cursor = bound
        self._is_stuck = False  # an init container has not finished
        containers = sorted(
            (container for container in milestones.containers.values() if container.position >= 0),
            key=lambda container: container.position,
        )
        self._add_sandbox(containers)
        if not self._is_stuck:
            for container in containers:
                if container.kind != "app" and not self._is_stuck:
                    self._add_init_container(container)
        if not self._is_stuck:
            self._add_app_containers([container for container in containers if container.kind == "app"])

    def _add(
        self, name: str, start: Edge, end: Edge | None, attributes: Attributes | None = None, error: str | None = None
    ) -> None:
        start = later(self._bound, start)
        self.phases.append(
            DerivedPhase(name, start, None if end is None else later(start, end), attributes or {}, error)
        )

    def _add_sandbox(self, containers: list[ContainerMilestones]) -> None:
        """Add the time until the first container could start; the condition is reported late, if at all."""
        milestones = self._milestones
        signs = [mark.edge for container in containers for mark in container.pulls or container.waits]
        signs += [
            edge for container in containers for edge in (container.started_event, _first_start(container)) if edge
        ]
        condition = milestones.conditions.get("PodReadyToStartContainers")
        if condition is not None:
            signs.append(condition)
        attached = milestones.volumes_attached
        end = min(signs, key=lambda edge: edge.high_ns, default=None)
        if not self._add_acknowledgement(end):
            self._is_stuck = True
            return
        if attached is not None:
            attached = later(self._cursor, no_later(attached, end))
            self._add("start volumes", self._cursor, attached)
            self._cursor = attached
        attributes: Attributes = {}
        if milestones.sandbox_message:
            attributes["kubeloop.message"] = milestones.sandbox_message
            attributes["kubeloop.failures"] = milestones.sandbox_failures
        error = milestones.sandbox_message if end is None and milestones.sandbox_message else None
        self._add("start sandbox", self._cursor, end, attributes, error)
        self._advance(end)

    def _advance(self, end: Edge | None) -> None:
        """Continue at the end of a phase; without an end, no phase follows."""
        if end is None:
            self._is_stuck = True
        else:
            self._cursor = later(self._cursor, end)

    def _add_acknowledgement(self, first_sign: Edge | None) -> bool:
        """Add the time until the kubelet acknowledged the pod, if it was certainly a second; False if it has not.

        Most kubelets need milliseconds, and startTime has whole seconds.
        """
        milestones, bound = self._milestones, self._bound
        acknowledged = milestones.acknowledged
        if acknowledged is None:
            if first_sign is not None or milestones.volumes_attached is not None or milestones.sandbox_message:
                return True
            self._add("start acknowledgement", bound, None)
            return False
        acknowledged = no_later(acknowledged, first_sign)
        if acknowledged.low_ns - bound.high_ns >= SECOND_NS:
            self._add("start acknowledgement", bound, acknowledged)
            self._cursor = acknowledged
        return True

    def _add_init_container(self, container: ContainerMilestones) -> None:
        """Add an init container or a sidecar; the next one starts after it."""
        self._add_start(container)
        if self._is_stuck:
            return
        runs = sorted(container.runs.items())
        if container.kind == "sidecar":
            self._add_failed_runs(container, runs)
            start = _last_start(container) or self._cursor
            end = container.started
            if end is None and not container.has_startup_probe:
                end = start
            self._add_probe("startup probe", container, start, end)
            self._advance(end)
            return
        for at, (_, run) in enumerate(runs):
            start = later(self._cursor, run.started) if run.started is not None else self._cursor
            self._add("init container", start, run.finished, self._about(container), _run_error(run))
            if run.finished is None:
                self._is_stuck = True
                return
            self._cursor = later(start, run.finished)
            if at + 1 < len(runs) or run.exit_code:
                self._add_restart(container, run, runs[at + 1][1] if at + 1 < len(runs) else None)
        self._is_stuck = not runs or bool(runs[-1][1].exit_code)

    def _add_app_containers(self, containers: list[ContainerMilestones]) -> None:
        """Add the containers in the order in which they started; the kubelet starts one after the other."""
        far_ns = 1 << 62
        started = [(_first_start(container), container) for container in containers]
        started.sort(key=lambda entry: entry[0].high_ns if entry[0] is not None else far_ns)
        ends: list[Edge] = []
        is_waiting = False
        for first, container in started:
            self._is_stuck = False
            self._add_start(container)
            if first is None or self._is_stuck:
                is_waiting = True
                continue
            end = self._add_until_ready(container)
            if end is None:
                is_waiting = True
            else:
                ends.append(end)
        ready = self._milestones.conditions.get("Ready")
        if ready is None and is_waiting:
            return
        start = self._cursor
        for end in ends:
            start = later(start, end)
        start = no_later(start, ready)
        self._add("start readiness", start, ready, {"kubeloop.condition": "Ready"})

    def _add_start(self, container: ContainerMilestones) -> None:
        """Add image pulls and the start of a container's first run, and move the cursor to it."""
        first = _first_start(container)
        cursor = self._cursor
        about = self._about(container)
        for pull in image_pulls(container):
            start = cursor if pull.start is None else later(cursor, no_later(pull.start, first))
            if first is not None and pull.start is not None and pull.start.low_ns > first.high_ns:
                break  # for a later run
            end = pull.end
            if end is None and first is not None:
                end = first
            end = None if end is None else later(start, no_later(end, first))
            name = "image pull back-off" if pull.is_back_off else "image pull"
            self._add("container start", cursor, start, about)
            self._add(name, start, end, about | pull.attributes, pull.error)
            if end is None:
                self._is_stuck = True
                return
            cursor = end
        if first is not None:
            self._add("container start", cursor, first, about)
            self._cursor = later(cursor, first)
            return
        if container.waiting_reason and container.waiting_reason not in ("ContainerCreating", "PodInitializing"):
            about["kubeloop.reason"] = container.waiting_reason
        self._add("container start", cursor, None, about, container.waiting_message or None)
        self._is_stuck = True

    def _add_until_ready(self, container: ContainerMilestones) -> Edge | None:
        """Add failed runs and probes of a container that has started; returns when it was ready, None if it is not."""
        runs = sorted(container.runs.items())
        self._add_failed_runs(container, runs)
        last = runs[-1][1] if runs else None
        if last is not None and last.finished is not None:
            return last.finished if not last.exit_code and self._milestones.ended is not None else None
        start = _last_start(container) or self._cursor
        limit = self._milestones.conditions.get("ContainersReady") or self._milestones.conditions.get("Ready")
        if container.has_startup_probe:
            started = container.started or limit
            self._add_probe("startup probe", container, start, started)
            if started is None:
                return None
            start = later(start, no_later(started, limit))
        if container.has_readiness_probe:
            ready = container.ready or limit
            self._add_probe("readiness probe", container, start, no_later(ready, limit) if ready is not None else None)
            if ready is None:
                return None
            start = later(start, no_later(ready, limit))
        return start

    def _add_probe(self, name: str, container: ContainerMilestones, start: Edge, end: Edge | None) -> None:
        about = self._about(container)
        failures = container.probe_failures.get(name.removesuffix(" probe"))
        if failures is not None:
            about["kubeloop.probe.failures"] = failures.count
            about["kubeloop.message"] = failures.message
        self._add(name, start, end, about, failures.message if end is None and failures is not None else None)

    def _add_failed_runs(self, container: ContainerMilestones, runs: list[tuple[int, Run]]) -> None:
        """Add the runs that ended before the pod was ready, and the waits after them."""
        for at, (_, run) in enumerate(runs):
            if run.finished is None:
                continue
            start = later(self._cursor, run.started) if run.started is not None else self._cursor
            self._add("container run", start, run.finished, self._about(container), _run_error(run))
            following = runs[at + 1][1] if at + 1 < len(runs) else None
            if following is not None or run.backed_off:
                self._add_restart(container, run, following)

    def _add_restart(self, container: ContainerMilestones, run: Run, following: Run | None) -> None:
        """Add the wait between two runs."""
        assert run.finished is not None
        name = "crash back-off" if run.exit_code or run.backed_off else "container restart"
        end = following.started if following is not None else None
        if following is not None and end is None:
            return
        self._add(name, later(self._cursor, run.finished), end, self._about(container), _run_error(run))

    def _about(self, container: ContainerMilestones) -> Attributes:
        about: Attributes = {"k8s.container.name": container.name}
        if container.kind != "app":
            about["kubeloop.container.kind"] = container.kind
        return about


def _first_start(container: ContainerMilestones) -> Edge | None:
    """Return when the container's first run started: the Event is of the first run, the status of those it knows."""
    first = container.runs.get(0)
    started = first.started if first is not None else None
    event = container.started_event
    if started is not None:
        return no_later(started, event) if event is not None and event.high_ns >= started.low_ns else started
    if event is not None:
        return event
    known = [run.started for run in container.runs.values() if run.started is not None]
    return min(known, key=lambda edge: edge.high_ns, default=None)


def _last_start(container: ContainerMilestones) -> Edge | None:
    """Return when the container's last run started."""
    number = max(container.runs, default=0)
    return container.runs[number].started if number else _first_start(container)


def _run_error(run: Run) -> str | None:
    if not run.exit_code:
        return None
    reason = run.reason if run.reason not in ("", "Error") else ""
    return f"exit code {run.exit_code}{f' ({reason})' if reason else ''}"
