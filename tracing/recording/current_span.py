"""Whose work the running task does: how a log record learns its trace and span.

A pod's record or a reconcile is set when work on it begins; tasks that are started meanwhile inherit it. May import
`kubeloop.tracing.spans.traceparent` only.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

from kubeloop.tracing.spans.traceparent import TRACEPARENT_HEADER


class TracedOperation(Protocol):
    """Something with a trace."""

    @property
    def traceparent(self) -> str:
        """Empty if it has none."""
        ...

    def log_context(self) -> str:
        """Its traceparent; asked when a record is logged."""
        ...


current_span: ContextVar[TracedOperation | None] = ContextVar("kubeloop-traced", default=None)
"""What the running task works on; None: on nothing that is traced."""


def current_trace_headers() -> dict[str, str] | None:
    """For the requests of the running task: they belong to the trace of what it works on."""
    traced = current_span.get()
    if traced is None:
        return None
    traceparent = traced.traceparent
    return {TRACEPARENT_HEADER: traceparent} if traceparent else None


def log_traceparent() -> str:
    """Of the span that the running task works for, "" if there is none."""
    traced = current_span.get()
    return traced.log_context() if traced is not None else ""
