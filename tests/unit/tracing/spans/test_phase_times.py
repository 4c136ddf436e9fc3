"""Phase times of a pod record."""

from __future__ import annotations

from kubeloop.tracing.recording.pod_recorder import AttemptFacts
from kubeloop.tracing.spans.phase_times import phase_times
from kubeloop.tracing.spans.pod_spans import pod_trace
from support.pod_traces import attempt, bind, request_pod


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
    trace = pod_trace(record)
    sums = {}
    for span in trace.spans[1:]:
        if span.parent_span_id == trace.root.span_id:
            sums[span.name] = sums.get(span.name, 0) + span.end_ns - span.start_ns
    sums["total"] = trace.root.end_ns - trace.root.start_ns
    assert phase_times(record) == sums
