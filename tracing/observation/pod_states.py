"""Milestones from the states of a pod, as the API server, schedulers and the kubelet write them (v1.27 and later)."""

from __future__ import annotations

from typing import Final, NamedTuple

from kubeloop.kube.objects.observed_types import (
    ContainerRunning,
    ContainerTerminated,
    ObservedCondition,
    ObservedContainer,
    ObservedContainerStatus,
    ObservedPod,
    ObservedPodStatus,
)
from kubeloop.kube.values.integers import parse_integer
from kubeloop.kube.values.times import time_plus
from kubeloop.tracing.spans.pod_milestones import (
    MAX_MESSAGE,
    MAX_RUNS,
    SECOND_NS,
    ContainerKind,
    ContainerMilestones,
    Edge,
    PodMilestones,
    PullMark,
    PullStep,
    Run,
    SchedulingMark,
    SchedulingStatus,
    limit,
    timestamp_edge,
)
from kubeloop.tracing.spans.short_text import shorten

START_CONDITIONS: Final = frozenset(("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"))

_PULL_WAITS: Final[dict[str, PullStep]] = {
    "ErrImagePull": "failed",
    "ImageInspectError": "failed",
    "ErrImageNeverPull": "failed",
    "InvalidImageName": "failed",
    "RegistryUnavailable": "failed",
    "SignatureValidationFailed": "failed",
    "ImagePullBackOff": "back-off",
}


class Skew(NamedTuple):
    """Time (ns) by which the clocks that set a pod's timestamps are ahead for certain."""

    server_ns: int = 0
    node_ns: int = 0


NO_SKEW: Final = Skew()


def describe(milestones: PodMilestones, pod: ObservedPod, arrival_ns: int, skew: Skew = NO_SKEW) -> None:
    """Add what the first state shows for all others: the creation, and the containers of the spec."""
    created = pod.metadata.creation_timestamp
    if created is not None:
        milestones.creation = timestamp_edge(created, "creation", arrival_ns, skew.server_ns)
    else:
        milestones.creation = Edge(arrival_ns, arrival_ns, "arrival")
    milestones.is_stateless = pod.is_stateless
    init_containers = pod.spec.init_containers
    for position, container in enumerate((*init_containers, *pod.spec.containers)):
        kind: ContainerKind = "app"
        if position < len(init_containers):
            kind = "sidecar" if container.restart_policy == "Always" else "init"
        _describe_container(milestones.container(container.name), container, kind, position)


def add_state(milestones: PodMilestones, pod: ObservedPod, arrival: Edge, skew: Skew = NO_SKEW) -> bool:
    """Add a state of a pod that was described; returns False if it is not newer than the last one."""
    version_text = pod.metadata.resource_version
    version = parse_integer(version_text) if version_text.isdecimal() else 0
    if version and version <= milestones.version:
        return False
    milestones.version = version
    arrival_ns, is_late = arrival.high_ns, arrival.uncertainty_ns > SECOND_NS
    current_ns = arrival.low_ns if is_late else arrival_ns
    arrival = since_last_state(milestones, arrival)
    scheduled = _add_conditions(milestones, pod, arrival, skew.node_ns)
    if pod.spec.node_name:
        if milestones.bound is None:
            milestones.node = pod.spec.node_name
            milestones.bound = _bound(scheduled, arrival, skew.server_ns)
    else:
        _add_scheduling(milestones, pod, scheduled, arrival)
    start_time = pod.status.start_time
    if start_time is not None and milestones.acknowledged is None:
        milestones.acknowledged = timestamp_edge(start_time, "start time", arrival_ns, skew.node_ns)
    _add_containers(milestones, pod, arrival, skew.node_ns)
    if pod.metadata.deletion_timestamp is not None and milestones.deletion is None:
        milestones.deletion = _deletion(pod, arrival_ns, skew.server_ns)
    status = pod.status
    if status.phase in ("Succeeded", "Failed") and milestones.ended is None:
        milestones.ended = _end(milestones, status, arrival)
        milestones.end_phase, milestones.end_reason = status.phase, status.reason
        milestones.end_message = shorten(status.message, MAX_MESSAGE)
    milestones.seen_ns = max(current_ns, milestones.seen_ns)
    return True


def was_ready(pod: ObservedPod) -> bool:
    """Return True if the pod is Ready, or was Ready before and is not any more.

    A kubelet sets Ready to False together with startTime; a later transition to False means that it was True.
    """
    start_time = pod.status.start_time
    for condition in pod.status.conditions:
        if condition.type == "Ready":
            if condition.status == "True":
                return True
            changed = condition.last_transition_time
            return start_time is not None and changed is not None and (changed - start_time).total_seconds() > 1
    return False


def since_last_state(milestones: PodMilestones, arrival: Edge) -> Edge:
    """Return the edge of what a state shows without a timestamp: the last state did not show it.

    If changes were missed after the last state, it may be as old as the interruption.
    """
    seen_ns, since_ns = milestones.seen_ns, arrival.low_ns
    if not seen_ns:
        since_ns = milestones.creation.low_ns if milestones.creation is not None else arrival.high_ns
    for missed in milestones.missed:
        if missed.since_ns >= seen_ns:
            since_ns = min(since_ns, missed.since_ns)
    return Edge(min(max(since_ns, seen_ns), arrival.high_ns), arrival.high_ns, "arrival")


def _describe_container(
    milestones: ContainerMilestones, container: ObservedContainer, kind: ContainerKind, position: int
) -> None:
    milestones.kind, milestones.position, milestones.image = kind, position, container.image
    milestones.has_startup_probe = container.startup_probe is not None
    milestones.has_readiness_probe = container.readiness_probe is not None


def _add_conditions(
    milestones: PodMilestones, pod: ObservedPod, arrival: Edge, skew_ns: int
) -> ObservedCondition | None:
    """Add conditions that are true; returns PodScheduled."""
    scheduled = None
    known = milestones.conditions
    for condition in pod.status.conditions:
        kind = condition.type
        if kind == "PodScheduled":
            scheduled = condition
        elif condition.status != "True" or kind in known:
            continue
        elif kind in START_CONDITIONS:
            changed = condition.last_transition_time
            known[kind] = (
                timestamp_edge(changed, "condition", arrival.high_ns, skew_ns) if changed is not None else arrival
            )
        elif kind == "DisruptionTarget":
            milestones.disruption = condition.reason
            milestones.disruption_message = shorten(condition.message, MAX_MESSAGE)
            if condition.last_transition_time is not None and milestones.disrupted is None:
                milestones.disrupted = timestamp_edge(condition.last_transition_time, "condition", arrival.high_ns)
    return scheduled


def _bound(scheduled: ObservedCondition | None, arrival: Edge, skew_ns: int) -> Edge:
    if scheduled is None or scheduled.status != "True" or scheduled.last_transition_time is None:
        return arrival
    return timestamp_edge(scheduled.last_transition_time, "condition", arrival.high_ns, skew_ns)


def _add_scheduling(
    milestones: PodMilestones, pod: ObservedPod, scheduled: ObservedCondition | None, arrival: Edge
) -> None:
    marks = milestones.scheduling
    last = next((mark for mark in reversed(marks) if not mark.event_ns), None)
    status, message, node = scheduling_status(pod, scheduled, last)
    milestones.was_unschedulable |= status in ("unschedulable", "preempting")
    if last is None:
        if status == "pending":
            return
    elif (last.status, last.message, last.node) == (status, message, node):
        return
    edge = arrival
    if last is None:  # the transition of PodScheduled to False; later, only its reason and message change
        if status == "gated" and milestones.creation is not None:
            edge = milestones.creation
        elif scheduled is not None and scheduled.status == "False" and scheduled.last_transition_time is not None:
            edge = timestamp_edge(scheduled.last_transition_time, "condition", arrival.high_ns)
    marks.append(SchedulingMark(edge, status, message, node))
    limit(marks)


def scheduling_status(
    pod: ObservedPod, scheduled: ObservedCondition | None, last: SchedulingMark | None
) -> tuple[SchedulingStatus, str, str]:
    """Return the status of an unbound pod, the scheduler's message, and the nominated node.

    kube-scheduler nominates a node together with the message of the failed attempt if it preempts pods, and without a
    new message (v1.35 and later) if it has selected the node and plugins delay the binding.
    """
    if pod.spec.scheduling_gates:
        return "gated", ", ".join([gate.name for gate in pod.spec.scheduling_gates]), ""
    message = ""
    if scheduled is not None and scheduled.status == "False" and scheduled.reason != "SchedulingGated":
        message = shorten(scheduled.message or scheduled.reason, MAX_MESSAGE)
    node = pod.status.nominated_node_name
    if not message:
        return ("binding", "", node) if node else ("pending", "", "")
    if not node:
        return "unschedulable", message, ""
    if last is not None and not last.node and last.message == message:
        return "binding", message, node
    if last is not None and last.status == "binding" and (last.message, last.node) == (message, node):
        return "binding", message, node
    return "preempting", message, node


def _add_containers(milestones: PodMilestones, pod: ObservedPod, arrival: Edge, skew_ns: int) -> None:
    status = pod.status
    for container_status in status.init_container_statuses:
        _add_container(milestones.container(container_status.name), container_status, arrival, skew_ns)
    running = bool(status.container_statuses)
    for container_status in status.container_statuses:
        _add_container(milestones.container(container_status.name), container_status, arrival, skew_ns)
        running = running and container_status.state.running is not None
    if running and milestones.all_running is None:
        milestones.all_running = arrival


def _add_container(
    milestones: ContainerMilestones, status: ObservedContainerStatus, arrival: Edge, skew_ns: int
) -> None:
    number = status.restart_count
    state, last = status.state, status.last_state.terminated
    if last is not None:
        # A container that waits for its restart has still the restart count of its last run.
        last_number = number if state.waiting is not None else number - 1
        if last_number >= 0:
            _add_run(milestones, last_number, last, arrival.high_ns, skew_ns)
    if state.running is not None:
        _add_run(milestones, number, state.running, arrival.high_ns, skew_ns)
        if status.started and milestones.started is None:
            milestones.started = arrival
        if status.ready and milestones.ready is None:
            milestones.ready = arrival
    elif state.terminated is not None:
        _add_run(milestones, number, state.terminated, arrival.high_ns, skew_ns)
    if state.waiting is None:
        milestones.waiting_reason = milestones.waiting_message = ""
    elif state.waiting.reason != milestones.waiting_reason:
        milestones.waiting_reason = reason = state.waiting.reason
        milestones.waiting_message = message = shorten(state.waiting.message, MAX_MESSAGE)
        if reason in _PULL_WAITS:
            milestones.waits.append(PullMark(arrival, _PULL_WAITS[reason], message))
            limit(milestones.waits)
        elif reason == "CrashLoopBackOff" and number in milestones.runs:
            milestones.runs[number].backed_off = True


def _add_run(
    milestones: ContainerMilestones,
    number: int,
    state: ContainerRunning | ContainerTerminated,
    arrival_ns: int,
    skew_ns: int,
) -> None:
    runs = milestones.runs
    run = runs.get(number)
    if run is None:
        run = runs[number] = Run()
        if len(runs) > MAX_RUNS:
            del runs[sorted(runs)[MAX_RUNS // 2]]
    if state.started_at is not None and (run.started is None or run.started.high_ns > arrival_ns):
        run.started = timestamp_edge(state.started_at, "container", arrival_ns, skew_ns)
    if type(state) is ContainerTerminated and run.finished is None:
        run.exit_code, run.reason = state.exit_code, state.reason
        if state.finished_at is not None:
            run.finished = timestamp_edge(state.finished_at, "container", arrival_ns, skew_ns)


def _deletion(pod: ObservedPod, arrival_ns: int, skew_ns: int) -> Edge:
    """Return when the deletion was requested: deletionTimestamp is later by the grace period."""
    moment = pod.metadata.deletion_timestamp
    assert moment is not None
    requested = time_plus(moment, -(pod.metadata.deletion_grace_period_seconds or 0))
    return timestamp_edge(requested, "deletion", arrival_ns, skew_ns)


def _end(milestones: PodMilestones, status: ObservedPodStatus, arrival: Edge) -> Edge:
    """Return when the pod ended: when it was disrupted, or else when its last container finished.

    With a reason in its status, such as a deadline, it ended for another reason than its containers.
    """
    if milestones.disrupted is not None:
        return milestones.disrupted
    finished = [run.finished for container in milestones.containers.values() for run in container.runs.values()]
    edges = [edge for edge in finished if edge is not None]
    return max(edges, key=lambda edge: edge.high_ns) if edges and not status.reason else arrival
