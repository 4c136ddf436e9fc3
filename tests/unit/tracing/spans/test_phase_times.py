"""Phase times of a pod record."""

from __future__ import annotations

from kubeloop.tracing.recording.pod_recorder import AttemptFacts
from kubeloop.tracing.spans.phase_times import phase_times, start_sli_ns
from kubeloop.tracing.spans.pod_milestones import (
    SECOND_NS,
    ContainerMilestones,
    Edge,
    PodMilestones,
    PullMark,
    Run,
)
from kubeloop.tracing.spans.pod_record import Gap, Wait
from kubeloop.tracing.spans.pod_spans import pod_trace
from support.traces.pod_traces import MS, attempt, bind, request_pod


def sums_of_spans(record):
    """Return the total length of the root's children by name, without gaps, and of the root."""
    trace = pod_trace(record)
    sums = {}
    for span in trace.spans[1:]:
        if span.parent_span_id == trace.root.span_id and span.name not in ("not followed", "not recorded"):
            sums[span.name] = sums.get(span.name, 0) + span.end_ns - span.start_ns
    sums["total"] = trace.root.end_ns - trace.root.start_ns
    return sums


def test_phase_times_equal_sums_of_spans(tracing, pod, manual_clock):
    web, traceparent = request_pod(tracing, pod, manual_clock)
    for number in (1, 2):
        tracing.pods.queued(web, "active", "NodeAdd")
        manual_clock.pass_ms(7)
        attempt(tracing, web, manual_clock, number, AttemptFacts("unschedulable", nodes=3))
        tracing.pods.queued(web, "unschedulable", "x")
        manual_clock.pass_ms(100)
    attempt(tracing, web, manual_clock, 3, AttemptFacts("scheduled"))
    bind(tracing, web, manual_clock, "n1")
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    record = tracing.recent.finished(web.metadata.uid)
    assert phase_times(record) == sums_of_spans(record)


def test_wait_ends_at_gap_in_phase_times_and_spans(tracing, pod, manual_clock):
    web, traceparent = request_pod(tracing, pod, manual_clock)
    tracing.pods.queued(web, "unschedulable", "no room")
    record = tracing.open_pods.get(web.metadata.uid)
    for limit in (1_000, 24):
        for _ in range(30):
            manual_clock.pass_ms(10)
            record.add(Wait(manual_clock.ns, "unschedulable", "no room"), limit)
    assert [type(fact) for fact in record.facts].count(Gap) >= 1
    manual_clock.pass_ms(10)
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    times = phase_times(record)
    assert times == sums_of_spans(record)
    assert 0 < times["queue unschedulable"] < 600 * MS


def edge(seconds):
    return Edge(round((seconds - 0.5) * SECOND_NS), round(seconds * SECOND_NS), "container")


def pulled(start, end, duration):
    message = f'Successfully pulled image "app:1" in {duration} ({duration} including waiting)'
    return [
        PullMark(edge(start), "pulling", event_ns=round(start * SECOND_NS)),
        PullMark(edge(end), "pulled", message, event_ns=round(end * SECOND_NS)),
    ]


def started_pod():
    """A pod that was created at 0.5 s and running at 20 s, with an init container and two containers."""
    init = ContainerMilestones("setup", "init", 0, pulls=pulled(2, 4, "2s"), runs={0: Run(edge(4), edge(7))})
    sidecar = ContainerMilestones("proxy", "sidecar", 1, runs={0: Run(edge(8), edge(9))})
    app = ContainerMilestones("app", "app", 2, pulls=pulled(8, 12, "4s"), runs={0: Run(edge(12))})
    log = ContainerMilestones("log", "app", 3, pulls=pulled(10, 15, "5s"), runs={0: Run(edge(15))})
    containers = {container.name: container for container in (init, sidecar, app, log)}
    return PodMilestones(creation=edge(1), containers=containers, all_running=edge(20))


def test_start_sli_is_without_image_pulls_and_init_containers():
    """20 s - 0.5 s, without the pulls 2..4 and 8..15 (two overlap) and the init container 4..7; not the sidecar."""
    assert start_sli_ns(started_pod()) == round((19.5 - 2 - 7 - 3) * SECOND_NS)


def test_start_sli_excludes_stateful_unschedulable_and_late_pods():
    for exclude in ({"is_stateless": False}, {"was_unschedulable": True}, {"all_running": None}):
        milestones = started_pod()
        for name, value in exclude.items():
            setattr(milestones, name, value)
        assert start_sli_ns(milestones) == 0
    late = started_pod()
    late.all_running = Edge(17 * SECOND_NS, 20 * SECOND_NS, "arrival")
    assert start_sli_ns(late) == 0
    interrupted = started_pod()
    interrupted.add_missed(3 * SECOND_NS, 4 * SECOND_NS, "watch")
    assert start_sli_ns(interrupted) == 0
