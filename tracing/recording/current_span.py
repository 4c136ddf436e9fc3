"""Trace context of the running task, for log records and outgoing requests.

A recorder sets the current pod record or reconcile when work on it begins; tasks started during that work inherit it.
Imports `kubeloop.tracing.spans.traceparent` only.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

from kubeloop.tracing.spans.traceparent import TRACEPARENT_HEADER


class TracedOperation(Protocol):
    """A pod record or a reconcile: something that has a trace."""

    @property
    def traceparent(self) -> str:
        """Traceparent of the operation, "" if it is not traced."""
        ...

    def log_context(self) -> str:
        """Return the traceparent for a log record that is being written."""
        ...


current_span: ContextVar[TracedOperation | None] = ContextVar("kubeloop-traced", default=None)
"""Operation that the running task works on; None if it is not traced."""


def current_trace_headers() -> dict[str, str] | None:
    """Return request headers with the trace context of the running task; None if it is not traced."""
    operation = current_span.get()
    if operation is None:
        return None
    traceparent = operation.traceparent
    return {TRACEPARENT_HEADER: traceparent} if traceparent else None


def log_traceparent() -> str:
    """Return the traceparent of the running task's operation, "" if there is none."""
    operation = current_span.get()
    return operation.log_context() if operation is not None else ""
