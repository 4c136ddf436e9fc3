"""Exporter of finished traces to stdout, for OTEL_TRACES_EXPORTER=console.

Prints each span as one JSON document, in the format of the OpenTelemetry SDK's ConsoleSpanExporter.
"""

from __future__ import annotations

import sys

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import ConsoleSpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from kubeloop.tracing.spans.trace import Attributes, Span, Trace
from kubeloop.tracing.spans.traceparent import parse_traceparent

_KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT, "consumer": SpanKind.CONSUMER}


class ConsoleExporter:
    """A TraceExporter that prints. It writes on the event loop: for debugging, not for a cluster under load."""

    def __init__(self, resource: Attributes) -> None:
        self._exporter = ConsoleSpanExporter(out=sys.stdout)
        self._resource = Resource(resource)
        self._delivered: list[str] = []

    def export(self, trace: Trace, key: str = "") -> None:
        self._exporter.export([self._span(trace.trace_id, span) for span in trace.spans])
        if key:
            self._delivered.append(key)

    def delivered(self) -> list[str]:
        keys, self._delivered = self._delivered, []
        return keys

    def shut_down(self) -> None:
        self._exporter.shutdown()

    def _span(self, trace_id: str, span: Span) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            _context(trace_id, span.span_id),
            _context(trace_id, span.parent_span_id) if span.parent_span_id else None,
            self._resource,
            span.attributes,
            [Event(event.name, event.attributes, event.time_ns) for event in span.events],
            [
                Link(_context(context.trace_id, context.span_id), {"kubeloop.link": link.relation})
                for link in span.links
                if (context := parse_traceparent(link.traceparent))
            ],
            _KINDS[span.kind],
            status=Status(StatusCode.ERROR, span.error) if span.error is not None else Status(),
            start_time=span.start_ns,
            end_time=span.end_ns,
        )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(1))
