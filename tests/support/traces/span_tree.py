"""Check of the spans of a trace."""

from __future__ import annotations

from kubeloop.tracing.spans.trace import Trace


def check_spans(trace: Trace) -> None:
    """Assert that the spans form one tree and that every child lies within its parent's time."""
    by_id = {span.span_id: span for span in trace.spans}
    assert len(by_id) == len(trace.spans), "span ids are unique"
    for span in trace.spans[1:]:
        parent = by_id[span.parent_span_id]
        assert parent.start_ns <= span.start_ns <= span.end_ns <= parent.end_ns, (parent, span)
