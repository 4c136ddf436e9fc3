"""Trace context of the running task: the client sends it as the header `traceparent`, log records contain it.

A recorder sets the current pod record or reconcile when work on it begins; tasks started during that work inherit it.
Imports the standard library only.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, Protocol

TRACEPARENT_HEADER: Final = "traceparent"  # https://www.w3.org/TR/trace-context/#traceparent-header


class TracedOperation(Protocol):
    """A pod, a reconcile or a request: something that has a trace."""

    @property
    def traceparent(self) -> str:
        """Traceparent of the operation, "" if it is not traced."""
        ...

    def log_context(self) -> str:
        """Return the traceparent for a log record that is being written."""
        ...


current_span: ContextVar[TracedOperation | None] = ContextVar("kubeloop-traced", default=None)
"""Operation that the running task works on; None if it is not traced."""


def request_traceparent() -> str:
    """Return the traceparent for a request of the running task, "" if its operation is not traced."""
    operation = current_span.get()
    return operation.traceparent if operation is not None else ""


def log_traceparent() -> str:
    """Return the traceparent for a log record of the running task, "" if its operation is not traced."""
    operation = current_span.get()
    return operation.log_context() if operation is not None else ""
