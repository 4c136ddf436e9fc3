"""What tracing reports about itself, and about the phases of pods. May import the standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

DropReason = Literal["queue full", "unreachable", "refused", "shutdown"]
LostReason = Literal["too many open", "too many finished"]


class TraceMetrics:
    """Hears of everything; this one keeps nothing."""

    def phases(self, times_ns: Mapping[str, int], trace_id: str) -> None:
        """A pod was in these phases so long, in all. By a span's name, or "total"."""

    def spans_exported(self, spans: int) -> None: ...

    def spans_dropped(self, reason: DropReason, spans: int) -> None: ...

    def trace_lost(self, reason: LostReason) -> None: ...
