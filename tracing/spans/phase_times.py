"""Durations of a pod's phases, computed from its record without building spans."""

from __future__ import annotations

from typing import Final

from kubeloop.tracing.spans.image_pulls import image_pulls
from kubeloop.tracing.spans.pod_milestones import SECOND_NS, PodMilestones
from kubeloop.tracing.spans.pod_record import (
    START_PHASES,
    ObservedPhase,
    Phase,
    PodRecord,
    SchedulingAttempt,
    Wait,
    timeline,
)

MAX_SLI_UNCERTAINTY_NS: Final = 2 * SECOND_NS  # of the time from which on all containers were running


def phase_times(record: PodRecord) -> dict[str, int]:
    """Return nanoseconds by name of a span under the root, and "total" from creation to binding if the pod was bound.

    Gaps are not included. Computed for every pod whose trace has ended.
    """
    times: dict[str, int] = {}
    if record.create_start_ns and record.create_end_ns:
        times["create"] = record.create_end_ns - record.create_start_ns
    if record.observed_ns and not (record.continued_ns and not record.create_end_ns):
        since_ns = record.create_end_ns or record.start_ns
        times["watch delivery"] = max(0, record.observed_ns - since_ns)
    bind_finished_ns = 0
    for fact, end_ns, _ in timeline(record):
        if type(fact) is Wait:
            name = fact.span_name
        elif type(fact) is Phase:
            name = fact.name
            if name == "bind" and fact.error is None:
                bind_finished_ns = fact.end_ns
        elif type(fact) is SchedulingAttempt:
            name = "scheduling attempt"
        elif type(fact) is ObservedPhase and fact.name != "not observed":
            name = fact.name
        else:
            continue
        times[name] = times.get(name, 0) + max(0, end_ns - fact.start_ns)
    bound_ns = record.bound_ns
    if bound_ns:
        if bind_finished_ns:
            times["confirmation"] = max(0, bound_ns - bind_finished_ns)
        times["total"] = bound_ns - record.start_ns
        if record.conditions_ns:
            since_ns = bound_ns
            for condition, phase in START_PHASES:
                if condition in record.conditions_ns:
                    times[phase] = max(0, record.conditions_ns[condition] - since_ns)
                    since_ns = max(since_ns, record.conditions_ns[condition])
    return times


def start_sli_ns(milestones: PodMilestones) -> int:
    """Return a pod's duration by the kubelet's kubelet_pod_start_sli_duration_seconds; 0 if it has none.

    From creationTimestamp until all containers are observed running, without image pulls and the runs of init
    containers. Excluded are stateful pods, those that were unschedulable at some time, and those of which the watch was
    interrupted or late when they started. Source: pkg/kubelet/util/pod_startup_latency_tracker.go.
    """
    creation, running = milestones.creation, milestones.all_running
    if creation is None or running is None or milestones.was_unschedulable or not milestones.is_stateless:
        return 0
    if running.uncertainty_ns > MAX_SLI_UNCERTAINTY_NS:
        return 0
    if any(missed.until_ns > creation.low_ns for missed in milestones.missed):
        return 0
    excluded_ns = 0
    pulls: list[tuple[int, int]] = []
    for container in milestones.containers.values():
        pulls += [
            (pull.start.high_ns, pull.end.high_ns)
            for pull in image_pulls(container)
            if pull.start is not None and pull.end is not None and not pull.is_back_off
        ]
        if container.kind == "init":
            for run in container.runs.values():
                if run.started is not None and run.finished is not None:
                    excluded_ns += max(0, run.finished.high_ns - run.started.high_ns)
    until_ns = 0
    for start_ns, end_ns in sorted(pulls):
        excluded_ns += max(0, end_ns - max(start_ns, until_ns))
        until_ns = max(until_ns, end_ns)
    return max(1, running.high_ns - creation.low_ns - excluded_ns)
