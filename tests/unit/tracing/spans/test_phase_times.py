"""Phase times of a pod record."""

from __future__ import annotations

from kubeloop.tracing.recording.pod_recorder import AttemptFacts
from kubeloop.tracing.spans.phase_times import phase_times
from kubeloop.tracing.spans.pod_record import Gap, Wait
from kubeloop.tracing.spans.pod_spans import pod_trace
from support.pod_traces import MS, attempt, bind, request_pod


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
    record = tracing.pods.open_record(web.metadata.uid)
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
