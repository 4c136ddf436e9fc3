"""Whose work is being done, in logs and requests, and which reconcile was the cause of which."""

from __future__ import annotations

from kubeloop.tracing.recording.current_span import current_trace_headers, log_traceparent
from kubeloop.tracing.recording.pod_recorder import AttemptFacts


def test_the_running_task_knows_whose_work_it_does(tracing, pod, hand_clock):
    traceparent = tracing.pods.new_traceparent()
    annotations = tracing.pods.create_requested(
        traceparent, namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f", start_ns=hand_clock.ns
    )
    web = pod(annotations=annotations)
    tracing.pods.created(traceparent, web, hand_clock.ns)
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


def test_a_reconcile_that_logged_something_has_a_trace_to_be_found(tracing):
    reconcile = tracing.reconciles.reconcile("deployment", "shop/web")
    traceparent = log_traceparent()
    reconcile.finish(changed=False)
    (document,) = tracing.recent.reconciles()
    assert document["traceId"] == traceparent.split("-")[1]


def test_who_wrote_an_object_is_the_cause_of_its_next_reconcile(tracing):
    first = tracing.reconciles.reconcile("deployment", "shop/web")
    first.will_trigger("replicaset", "shop/web-5f")
    first.finish(changed=True)
    second = tracing.reconciles.reconcile("replicaset", "shop/web-5f")
    second.finish(changed=True)
    third = tracing.reconciles.reconcile("replicaset", "shop/web-5f")
    third.finish(changed=True)
    links = [document["spans"][0]["links"] for document in tracing.recent.reconciles()]
    cause = {"traceId": first.traceparent.split("-")[1], "spanId": first.traceparent.split("-")[2]}
    assert links == [[], [{**cause, "attributes": {"kubeloop.link": "cause"}}], []]
