"""Interface for the metrics of tracing and of pod phases. Imports the standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

DropReason = Literal["queue full", "unreachable", "refused", "export failed", "shutdown"]
LostReason = Literal["too many open", "too many finished"]


class TraceMetrics:
    """Metrics that tracing reports. This base class ignores them."""

    def phases(self, times_ns: Mapping[str, int], trace_id: str) -> None:
        """Record the total time (ns) of a pod in each phase, by span name, and in "total"."""

    def spans_exported(self, spans: int) -> None: ...

    def spans_dropped(self, reason: DropReason, spans: int) -> None: ...

    def trace_lost(self, reason: LostReason) -> None: ...
