"""A finished trace as data: spans with explicit times, and the JSON document that `kubeloop trace --json` prints.

May import msgspec and `kubeloop.tracing.context` only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from kubeloop.tracing.context import TraceContext, parse_traceparent

AttributeValue = str | int | float | bool | list[str] | list[int]
Attributes = dict[str, AttributeValue]

_MASK = (1 << 64) - 1


class Span(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Times in nanoseconds since the epoch. `links` are traceparents. `error` None: nothing failed."""

    name: str
    span_id: str
    parent_span_id: str = ""
    start_ns: int
    end_ns: int
    attributes: Attributes = {}
    links: tuple[str, ...] = ()
    error: str | None = None
    kind: Literal["internal", "client", "consumer"] = "internal"


class Trace(msgspec.Struct, frozen=True, gc=False):
    """One tree of spans, the root first, each parent before its children."""

    trace_id: str
    spans: tuple[Span, ...]

    @property
    def root(self) -> Span:
        return self.spans[0]

    def document(self) -> dict[str, Any]:
        """As plain JSON: {"traceId", "spans": [{"name", "spanId", "parentSpanId", "start", "end", ...}]}."""
        return {"traceId": self.trace_id, "spans": [_span_document(span) for span in self.spans]}

    def check(self) -> None:
        """Assert that this is one tree, and that every child lies within its parent's time."""
        by_id = {span.span_id: span for span in self.spans}
        assert len(by_id) == len(self.spans), "span ids are unique"
        for span in self.spans[1:]:
            parent = by_id[span.parent_span_id]
            assert parent.start_ns <= span.start_ns <= span.end_ns <= parent.end_ns, (parent, span)


def _span_document(span: Span) -> dict[str, Any]:
    links = [link for link in map(parse_traceparent, span.links) if link is not None]
    return {
        "name": span.name,
        "spanId": span.span_id,
        "parentSpanId": span.parent_span_id,
        "start": span.start_ns,
        "end": span.end_ns,
        "kind": span.kind,
        "attributes": span.attributes,
        "links": [{"traceId": link.trace_id, "spanId": link.span_id} for link in links],
        "status": {"code": "OK"} if span.error is None else {"code": "ERROR", "message": span.error},
    }


def span_ids(context: TraceContext, salt: int) -> Iterator[str]:
    """Ids for the spans under a root: the same each time they are asked for, others in another process (`salt`).

    So that a trace looked at twice is the same, without its ids being kept. SplitMix64.
    """
    state = int(context.span_id, 16) ^ salt
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        yield f"{(mixed ^ (mixed >> 31)) or 1:016x}"
