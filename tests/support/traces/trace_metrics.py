"""Trace metrics that tests can read."""

from __future__ import annotations

from kubeloop.tracing.metrics_interface import DropReason, TraceMetrics


class CountingMetrics(TraceMetrics):
    """Counts exported spans, and dropped spans by reason."""

    def __init__(self) -> None:
        self.exported = 0
        self.dropped: dict[DropReason, int] = {}

    def spans_exported(self, spans: int) -> None:
        self.exported += spans

    def spans_dropped(self, reason: DropReason, spans: int) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + spans
