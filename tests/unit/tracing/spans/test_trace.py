"""JSON document of a trace."""

from __future__ import annotations

import json

from support.traces.pod_traces import trace_pod


def test_document_has_documented_fields(tracing, pod, manual_clock):
    trace_pod(tracing, pod, manual_clock, "a", 1)
    document = json.loads(json.dumps(tracing.recent.slowest()))
    assert set(document) == {"traceId", "spans"}
    fields = {"name", "spanId", "parentSpanId", "start", "end", "kind", "attributes", "links", "status"}
    assert all(set(span) - {"events"} == fields for span in document["spans"])
    failed = next(span for span in document["spans"] if span["name"] == "scheduling attempt")
    assert failed["status"] == {"code": "ERROR", "message": "0/3 nodes are available"}
