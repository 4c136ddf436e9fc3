"""Exporter of finished traces through any span exporter of the OpenTelemetry SDK, found by its entry point.

Such an exporter is synchronous; a thread calls it. Imported only if OTEL_TRACES_EXPORTER names one, or for
OTLP over gRPC.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from kubeloop.kube.user_error import UserError
from kubeloop.tracing.export.batch_thread import BatchSettings, BatchThread, batch_settings
from kubeloop.tracing.export.resource import kubeloop_version, resource_attributes
from kubeloop.tracing.metrics_interface import DropReason, TraceMetrics
from kubeloop.tracing.spans.trace import Span, Trace
from kubeloop.tracing.spans.traceparent import parse_traceparent

GRPC_EXPORTER: Final = "otlp_proto_grpc"
"""Entry point of the package opentelemetry-exporter-otlp-proto-grpc."""
ENTRY_POINTS: Final = "opentelemetry_traces_exporter"
QUEUE_SPANS: Final = 50_000  # some 50 MB: the spans are not encoded
BATCH_SPANS: Final = 512  # the SDK's default, which exporters are made for
_KINDS: Final = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT, "consumer": SpanKind.CONSUMER}


def new_span_exporter(name: str) -> SpanExporter:
    """Create the installed span exporter with this name, in any case. Raises UserError."""
    installed = {entry.name.lower(): entry for entry in entry_points(group=ENTRY_POINTS)}
    entry = installed.get(name.lower())
    if entry is None and name == GRPC_EXPORTER:
        raise UserError(
            "OTEL_EXPORTER_OTLP_PROTOCOL: grpc needs the exporter of another package, which is not installed",
            hint="pip install opentelemetry-exporter-otlp-proto-grpc, or http/protobuf and port 4318",
        )
    if entry is None:
        raise UserError(
            f"OTEL_TRACES_EXPORTER: no exporter '{name}' is installed",
            hint=f"none, otlp, or an installed exporter: {', '.join(sorted(installed))}",
        )
    try:
        exporter_class = entry.load()
    except Exception as error:  # of the imported package
        raise _unusable(name, entry.value, error) from error
    if not (isinstance(exporter_class, type) and issubclass(exporter_class, SpanExporter)):
        raise UserError(
            f"OTEL_TRACES_EXPORTER: '{name}' ({entry.value}) is no span exporter",
            hint="its entry point must name a subclass of opentelemetry.sdk.trace.export.SpanExporter",
        )
    try:
        return exporter_class()
    except Exception as error:  # of the exporter's settings
        raise _unusable(name, entry.value, error) from error


def _unusable(name: str, value: str, error: Exception) -> UserError:
    return UserError(
        f"OTEL_TRACES_EXPORTER: cannot create exporter '{name}' ({value}): {type(error).__name__}: {error}",
        hint="check its installation and its environment variables",
    )


def sdk_batch_settings(environ: Mapping[str, str]) -> BatchSettings:
    return batch_settings(environ, queue_spans=QUEUE_SPANS, batch_spans=BATCH_SPANS)


class SdkExporter:
    """A TraceExporter that passes spans to an exporter of the SDK."""

    def __init__(self, name: str, exporter: SpanExporter, settings: BatchSettings, metrics: TraceMetrics) -> None:
        self._exporter = exporter
        self._resource = Resource(resource_attributes())
        self._scope = InstrumentationScope("kubeloop", kubeloop_version())
        self._thread: BatchThread[Trace] = BatchThread(name, settings, self._send, metrics, exporter.shutdown)

    def export(self, trace: Trace, key: str = "") -> None:
        self._thread.put(trace, len(trace.spans), key)

    def delivered(self) -> list[str]:
        return self._thread.delivered()

    def shut_down(self, within_seconds: float) -> None:
        self._thread.shut_down(within_seconds)

    # --- in the thread ---------------------------------------------------------------------------------------------

    def _send(self, batch: list[Trace]) -> tuple[DropReason, str] | None:
        try:
            result = self._exporter.export(
                [self._span(trace.trace_id, span) for trace in batch for span in trace.spans]
            )
        except Exception as error:  # of the exporter: the thread must not end
            return "export failed", f"{type(error).__name__}: {error}"
        return None if result is SpanExportResult.SUCCESS else ("export failed", "see the log of the exporter")

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
            instrumentation_scope=self._scope,
        )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(1))
