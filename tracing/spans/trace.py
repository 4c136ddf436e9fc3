"""Data of a finished trace: spans with explicit times, and the JSON document that `kubeloop trace --json` prints.

Imports msgspec and `kubeloop.tracing.spans.traceparent` only.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from kubeloop.tracing.spans.traceparent import NO_SPAN, TraceContext, parse_traceparent

AttributeValue = str | int | float | bool | list[str] | list[int]
Attributes = dict[str, AttributeValue]


class Link(msgspec.Struct, frozen=True, gc=False):
    """Link to another span, by its traceparent. relation: "cause", "reconcile", "pod" or "pod group"."""

    traceparent: str
    relation: str = ""


class SpanEvent(msgspec.Struct, frozen=True, gc=False):
    """Event at one point in time of a span."""

    name: str
    time_ns: int
    attributes: Attributes = {}


class Span(msgspec.Struct, frozen=True, gc=False):
    """One span. Times in nanoseconds since the epoch; `error` is None on success; `parent_span_id` is "" for a root."""

    name: str
    span_id: str
    start_ns: int
    end_ns: int
    parent_span_id: str = ""
    attributes: Attributes = {}
    links: tuple[Link, ...] = ()
    events: tuple[SpanEvent, ...] = ()
    error: str | None = None
    kind: Literal["internal", "client", "consumer"] = "internal"


class Trace(msgspec.Struct, frozen=True, gc=False):
    """One tree of spans, the root first, each parent before its children."""

    trace_id: str
    spans: tuple[Span, ...]

    @property
    def root(self) -> Span:
        return self.spans[0]

    @property
    def root_id(self) -> str:
        return self.root.span_id

    @property
    def key(self) -> str:
        """Key of the reconciled object, "namespace/name"; "" if the trace is about several objects."""
        return str(self.root.attributes.get("kubeloop.key", ""))

    @property
    def error(self) -> str | None:
        return self.root.error

    @property
    def end_ns(self) -> int:
        return self.root.end_ns

    def trace(self) -> Trace:
        return self

    def document(self) -> dict[str, Any]:
        """Return the trace as JSON: {"traceId", "spans": [{"name", "spanId", "parentSpanId", "start", "end", ...}]}."""
        return {"traceId": self.trace_id, "spans": [_span_document(span) for span in self.spans]}


def _span_document(span: Span) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": span.name,
        "spanId": span.span_id,
        "parentSpanId": span.parent_span_id,
        "start": span.start_ns,
        "end": span.end_ns,
        "kind": span.kind,
        "attributes": span.attributes,
        "links": [
            _link_document(context, link) for link in span.links if (context := parse_traceparent(link.traceparent))
        ],
        "status": {"code": "OK"} if span.error is None else {"code": "ERROR", "message": span.error},
    }
    if span.events:
        document["events"] = [
            {"name": event.name, "time": event.time_ns, "attributes": event.attributes} for event in span.events
        ]
    return document


def _link_document(context: TraceContext, link: Link) -> dict[str, Any]:
    document: dict[str, Any] = {"traceId": context.trace_id, "spanId": context.span_id}
    if link.relation:
        document["attributes"] = {"kubeloop.link": link.relation}
    return document


def span_ids(root_id: str) -> Iterator[str]:
    """Generate the IDs of the spans below a root, always the same for the same root's ID.

    A trace that is shown twice, or exported again by the next process after a crash, has the same IDs although they
    are not stored. IDs are cut from hashes of the root's ID, eight from each hash.
    """
    for number in itertools.count():
        digits = hashlib.blake2b(f"{root_id}-{number}".encode()).hexdigest()
        for at in range(0, 128, 16):
            span_id = digits[at : at + 16]
            if span_id != NO_SPAN:
                yield span_id
