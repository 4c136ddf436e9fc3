"""Estimate of the difference between this machine's clock and the clocks that set timestamps in the cluster.

    skew = time on the other clock - time on this clock, at the same moment

A timestamp T of resolution r that arrives at A was set before A, and thus T - A <= skew. If it was set after a moment M
of this clock, such as the start of the HTTP request, skew < T + r - M. Each clock has the intersection of these
intervals, over the last one to two windows of time, because clocks drift and are corrected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

API_SERVER: Final = "API server"
WINDOW_NS: Final = 300_000_000_000
MAX_CLOCKS: Final = 10_000  # the API server and nodes; beyond, the one that was updated first is dropped
SECOND_NS: Final = 1_000_000_000
_UNKNOWN: Final = 1 << 62


class SkewEstimate(msgspec.Struct, frozen=True, gc=False):
    """The skew (ns) lies in [lowest_ns, highest_ns]; highest_ns is None if nothing limits it."""

    lowest_ns: int
    highest_ns: int | None

    @property
    def certain_ns(self) -> int:
        """The part of the skew that is certain: the end of the interval that is nearest to 0; 0 if it contains 0."""
        if self.lowest_ns > 0:
            return self.lowest_ns
        return min(0, self.highest_ns) if self.highest_ns is not None else 0


class _Bounds(msgspec.Struct, gc=False):
    """Bounds of one clock: of the window that started at `since_ns`, and of the window before."""

    since_ns: int
    lowest_ns: int = -_UNKNOWN
    highest_ns: int = _UNKNOWN
    previous_lowest_ns: int = -_UNKNOWN
    previous_highest_ns: int = _UNKNOWN

    def add(self, lowest_ns: int, highest_ns: int, now_ns: int) -> None:
        if now_ns - self.since_ns > WINDOW_NS:
            self.previous_lowest_ns, self.previous_highest_ns = self.lowest_ns, self.highest_ns
            self.since_ns, self.lowest_ns, self.highest_ns = now_ns, -_UNKNOWN, _UNKNOWN
        self.lowest_ns = max(self.lowest_ns, lowest_ns)
        self.highest_ns = min(self.highest_ns, highest_ns)
        if self.lowest_ns > self.highest_ns:  # the clock was corrected meanwhile: only the newest sample counts
            self.lowest_ns, self.highest_ns = lowest_ns, highest_ns
            self.previous_lowest_ns, self.previous_highest_ns = -_UNKNOWN, _UNKNOWN

    def estimate(self) -> SkewEstimate:
        lowest_ns = max(self.lowest_ns, self.previous_lowest_ns)
        highest_ns = min(self.highest_ns, self.previous_highest_ns)
        if lowest_ns > highest_ns:
            lowest_ns, highest_ns = self.lowest_ns, self.highest_ns
        return SkewEstimate(lowest_ns, highest_ns if highest_ns < _UNKNOWN else None)


class ClockSkew:
    """Skew of each clock: API_SERVER and, by name, the nodes. Methods take about a microsecond and do not raise."""

    def __init__(self) -> None:
        self._clocks: dict[str, _Bounds] = {}  # oldest first

    def http_date(self, date_ns: int, sent_ns: int, received_ns: int) -> None:
        """Add the Date header of a response of the API server, and when the request was sent and answered."""
        self.timestamp(API_SERVER, date_ns, received_ns, after_ns=sent_ns)

    def timestamp(
        self, clock: str, time_ns: int, arrival_ns: int, *, after_ns: int = 0, resolution_ns: int = SECOND_NS
    ) -> None:
        """Add a timestamp that the clock of `clock` set, and when it arrived here.

        `after_ns`: a moment of this machine's clock before which the timestamp cannot have been set; 0: unknown.
        """
        bounds = self._clocks.get(clock)
        if bounds is None:
            bounds = self._clocks[clock] = _Bounds(arrival_ns)
            if len(self._clocks) > MAX_CLOCKS:
                del self._clocks[next(iter(self._clocks))]
        bounds.add(time_ns - arrival_ns, time_ns + resolution_ns - after_ns if after_ns else _UNKNOWN, arrival_ns)

    def estimate(self, clock: str) -> SkewEstimate | None:
        """Return the skew of a clock; None if no timestamp of it has arrived."""
        bounds = self._clocks.get(clock)
        return None if bounds is None else bounds.estimate()

    def certain_ns(self, clock: str) -> int:
        """Return the part of a clock's skew that is certain, by which its timestamps are corrected."""
        bounds = self._clocks.get(clock)
        return 0 if bounds is None else bounds.estimate().certain_ns

    def document(self) -> dict[str, dict[str, Any]]:
        """Return the estimates as JSON: {"API server": {"lowestMs", "highestMs", "certainMs"}, "node-1": ...}."""
        return {
            clock: {
                "lowestMs": estimate.lowest_ns // 1_000_000,
                "highestMs": None if estimate.highest_ns is None else -(-estimate.highest_ns // 1_000_000),
                "certainMs": round(estimate.certain_ns / 1e6),
            }
            for clock, estimate in self._estimates()
        }

    def _estimates(self) -> Iterator[tuple[str, SkewEstimate]]:
        for clock, bounds in self._clocks.items():
            yield clock, bounds.estimate()
