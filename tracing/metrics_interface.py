"""Interface for the metrics of tracing and of pod phases. Imports the standard library and msgspec only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

DropReason = Literal["queue full", "unreachable", "refused", "export failed", "shutdown"]
LostReason = Literal["too many open", "too many finished"]


class TracedPod(msgspec.Struct, frozen=True, gc=False):
    """Metrics of one pod whose trace has ended. owner_kind: "Deployment"; "" for a pod without an owner."""

    trace_id: str
    namespace: str
    owner_kind: str


class TraceMetrics:
    """Metrics that tracing reports. This base class ignores them."""

    def phases(self, times_ns: Mapping[str, int], pod: TracedPod) -> None:
        """Record the total time (ns) of a pod in each phase, by span name, and in "total"."""

    def start_sli(self, duration_ns: int, pod: TracedPod) -> None:
        """Record the duration of a pod's start by the kubelet's definition; see phase_times.start_sli_ns()."""

    def spans_exported(self, spans: int) -> None: ...

    def spans_dropped(self, reason: DropReason, spans: int) -> None: ...

    def trace_lost(self, reason: LostReason) -> None: ...


NO_METRICS = TraceMetrics()
