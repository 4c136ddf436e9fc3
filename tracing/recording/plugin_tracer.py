"""OpenTelemetry tracer for scheduler plugins: its spans are part of the trace of the pod that is being scheduled.

Imported when a plugin reads `handle.tracer` for the first time: the OpenTelemetry API takes 20 ms to import.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Literal

import msgspec
from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    get_current_span,
    use_span,
)

from kubeloop.kube.client.current_span import current_span
from kubeloop.kube.clock import Clock
from kubeloop.tracing.spans import trace
from kubeloop.tracing.spans.pod_record import PodRecord
from kubeloop.tracing.spans.trace import Attributes, AttributeValue, SpanEvent
from kubeloop.tracing.spans.traceparent import new_span_id

_KINDS: Final[Mapping[SpanKind, Literal["internal", "client", "consumer"]]] = {
    SpanKind.CLIENT: "client",
    SpanKind.CONSUMER: "consumer",
}


class PluginTracer(Tracer):
    """Starts spans in the trace of the pod that the running task schedules or binds.

    Where there is none, or its trace is not recorded, spans are not recorded. Links are ignored.
    """

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Any] | None = None,
        links: object = None,
        start_time: int | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Span:
        """Start a span below the context's span, if a plugin started that one, or else below the pod's current step."""
        record = current_span.get()
        if not isinstance(record, PodRecord):
            return INVALID_SPAN
        parent = get_current_span(context)
        parent_id = parent.span_id if isinstance(parent, _PluginSpan) and parent.record is record else ""
        start_ns = self._clock.time_ns() if start_time is None else start_time
        span = trace.Span(
            name, new_span_id(self._rng), start_ns, start_ns, parent_id, kind=_KINDS.get(kind, "internal")
        )
        plugin_span = _PluginSpan(record, span, self._clock)
        plugin_span.set_attributes(attributes or {})
        return plugin_span

    @contextmanager
    def start_as_current_span(  # type: ignore[override]  # Tracer's return type also decorates coroutine functions
        self,
        name: str,
        *args: Any,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
        end_on_exit: bool = True,
        **kwargs: Any,
    ) -> Iterator[Span]:
        span = self.start_span(name, *args, **kwargs)
        with use_span(span, end_on_exit, record_exception, set_status_on_exception):
            yield span


class _PluginSpan(Span):
    """A span that is added to the record of its pod when it ends."""

    def __init__(self, record: PodRecord, started: trace.Span, clock: Clock) -> None:
        """started: the span as it was started, without attributes."""
        self.record = record
        self.span_id = started.span_id
        self._clock = clock
        self._started = started
        self._name = started.name
        self._attributes: Attributes = {}
        self._events: list[SpanEvent] = []
        self._error: str | None = None
        self._is_recording = True

    def end(self, end_time: int | None = None) -> None:
        if not self._is_recording:
            return
        self._is_recording = False
        self.record.add_plugin_span(
            msgspec.structs.replace(
                self._started,
                name=self._name,
                end_ns=self._clock.time_ns() if end_time is None else end_time,
                attributes=self._attributes,
                events=tuple(self._events),
                error=self._error,
            )
        )

    def get_span_context(self) -> SpanContext:
        context = self.record.context
        flags = TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT)
        return SpanContext(int(context.trace_id, 16), int(self.span_id, 16), is_remote=False, trace_flags=flags)

    def is_recording(self) -> bool:
        return self._is_recording

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        for key, value in attributes.items():
            self.set_attribute(key, value)

    def set_attribute(self, key: str, value: Any) -> None:
        self._attributes[key] = _attribute_value(value)

    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None, timestamp: int | None = None) -> None:
        values: Attributes = {key: _attribute_value(value) for key, value in (attributes or {}).items()}
        self._events.append(SpanEvent(name, self._clock.time_ns() if timestamp is None else timestamp, values))

    def update_name(self, name: str) -> None:
        self._name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        if isinstance(status, StatusCode):
            status = Status(status, description)
        self._error = None if status.is_ok else status.description or ""

    def record_exception(
        self,
        exception: BaseException,
        attributes: Mapping[str, Any] | None = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        about = {"exception.type": type(exception).__qualname__, "exception.message": str(exception)}
        self.add_event("exception", about | dict(attributes or {}), timestamp)

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        if isinstance(exc_val, Exception):
            self.record_exception(exc_val)
            self.set_status(StatusCode.ERROR, f"{type(exc_val).__name__}: {exc_val}")
        self.end()


def _attribute_value(value: Any) -> AttributeValue:
    """Return an attribute value as traces hold it: what is neither text, number nor list of these becomes text."""
    if isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        if all(type(entry) is int for entry in value):
            return list(value)
        return [str(entry) for entry in value]
    return str(value)
