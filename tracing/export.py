"""Finished traces as OpenTelemetry spans, to an OTLP/HTTP endpoint. The only module that imports the SDK.

Spans are built whole, with ids and times of their own, and given to the SDK's BatchSpanProcessor, whose thread encodes
and sends them. May import the OpenTelemetry SDK, `kubeloop.kube` and this room.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from kubeloop.tracing.context import parse_traceparent
from kubeloop.tracing.spans import Span, Trace

log = logging.getLogger(__name__)

# The SDK's default of 2,048 spans is what a rollout makes in a fraction of a second; OTEL_BSP_* replace these.
QUEUE_SPANS = 200_000
BATCH_SPANS = 2_000

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT, "consumer": SpanKind.CONSUMER}


class OpenTelemetrySink:
    """A SpanSink that exports by OTLP/HTTP as OTEL_EXPORTER_OTLP_* say."""

    def __init__(self, environ: Mapping[str, str], exporter: SpanExporter | None = None) -> None:
        """The SDK reads most variables from the process itself; `exporter` replaces the OTLP one."""
        protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        if protocol and protocol != "http/protobuf":
            log.warning("spans are exported by http/protobuf only", extra={"protocol": protocol})
        self._processor = BatchSpanProcessor(
            exporter or OTLPSpanExporter(),
            max_queue_size=None if "OTEL_BSP_MAX_QUEUE_SIZE" in environ else QUEUE_SPANS,
            max_export_batch_size=None if _batch_is_set(environ) else BATCH_SPANS,
        )
        self._resource = _resource()
        self.provider = TracerProvider(resource=self._resource, shutdown_on_exit=False)
        self.provider.add_span_processor(self._processor)
        self._scope = InstrumentationScope("kubeloop", _own_version())

    def export(self, trace: Trace) -> None:
        trace_id = int(trace.trace_id, 16)
        contexts: dict[str, SpanContext] = {}
        for span in trace.spans:
            self._processor.on_end(self._readable(span, trace_id, contexts))

    def shut_down(self) -> None:
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def _readable(self, span: Span, trace_id: int, contexts: dict[str, SpanContext]) -> ReadableSpan:
        context = contexts[span.span_id] = SpanContext(trace_id, int(span.span_id, 16), False, _SAMPLED)
        parent = contexts.get(span.parent_span_id)
        if parent is None and span.parent_span_id:
            parent = SpanContext(trace_id, int(span.parent_span_id, 16), True, _SAMPLED)
        return ReadableSpan(
            name=span.name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=span.attributes,
            links=[Link(linked) for linked in map(_linked, span.links) if linked is not None],
            kind=_KINDS[span.kind],
            status=Status(StatusCode.ERROR, span.error) if span.error is not None else Status(StatusCode.UNSET),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )


def _linked(traceparent: str) -> SpanContext | None:
    context = parse_traceparent(traceparent)
    if context is None:
        return None
    flags = _SAMPLED if context.sampled else TraceFlags(TraceFlags.DEFAULT)
    return SpanContext(int(context.trace_id, 16), int(context.span_id, 16), True, flags)


def _batch_is_set(environ: Mapping[str, str]) -> bool:
    # A batch of ours may not be larger than a queue of theirs.
    return "OTEL_BSP_MAX_EXPORT_BATCH_SIZE" in environ or "OTEL_BSP_MAX_QUEUE_SIZE" in environ


def _resource() -> Resource:
    """As OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say; service.name is "kubeloop" where they do not."""
    resource = Resource.create({"service.version": _own_version()})
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "kubeloop"}))
    return resource


def _own_version() -> str:
    try:
        return version("kubeloop")
    except PackageNotFoundError:  # run from a source tree that nobody installed
        return "0"
