"""Spans of a reconcile record."""

from __future__ import annotations

from kubeloop.tracing.spans.reconcile_record import ReconcileRecord
from kubeloop.tracing.spans.trace import Link
from kubeloop.tracing.spans.traceparent import TraceContext
from support.traces.span_tree import check_spans


def test_children_lie_within_root_and_have_short_names():
    record = ReconcileRecord(
        context=TraceContext("1" * 32, "2" * 16, True),
        controller="replicaset",
        key="shop/web",
        reason="",
        start_ns=10,
        end_ns=20,
        action_count=2,
        actions=["create pod web-1", "scale"],
        children=[("create pod web-1", 5, 30, "quota")],
        links=[("00-x", "cause")],
        error=None,
    )
    trace = record.trace()
    check_spans(trace)
    root, child = trace.spans
    assert (root.name, root.links) == ("reconcile replicaset", (Link("00-x", "cause"),))
    assert (child.name, child.start_ns, child.end_ns, child.error) == ("create pod", 10, 20, "quota")
    assert root.attributes["kubeloop.action_count"] == 2
