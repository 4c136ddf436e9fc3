"""Trace context of the running task."""

from __future__ import annotations

from kubeloop.tracing.recording.current_span import current_trace_headers, log_traceparent
from kubeloop.tracing.recording.pod_recorder import AttemptFacts


def test_current_span_is_set_during_work_on_pod_and_reconcile(tracing, pod, manual_clock):
    traceparent = tracing.pods.new_traceparent()
    annotations = tracing.pods.create_requested(
        traceparent, namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f", start_ns=manual_clock.ns
    )
    web = pod(annotations=annotations)
    tracing.pods.created(traceparent, web, manual_clock.ns)
    assert current_trace_headers() is None
    tracing.pods.attempt_started(web, 1)
    assert log_traceparent() == traceparent
    assert current_trace_headers() == {"traceparent": traceparent}
    tracing.pods.attempt_finished(web, AttemptFacts("scheduled"))
    assert log_traceparent() == ""
    reconcile = tracing.reconciles.reconcile("deployment", "shop/web")
    assert current_trace_headers() == {"traceparent": reconcile.traceparent}
    reconcile.finish(changed=False)
    assert current_trace_headers() is None
    assert tracing.recent.reconciles() == []
