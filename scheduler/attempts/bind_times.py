"""Durations of bind requests: whether they wait in a busy API server. Imports the standard library only."""

from __future__ import annotations

_BUSY_FACTOR = 3.0  # times as long as the fastest bind request
_SHORT_NS = 4_000_000  # users do not notice such a delay, and throughput counts more
_FEW_REQUESTS = 4.0  # in flight; more of them wait for each other
_SHARE = 0.125  # of a new value in the recent one
_RECENT_NS = 100_000_000  # after the last bind request
_WINDOW_NS = 60_000_000_000  # the fastest of this and the last window counts: a server may become slower for good


class BindTimes:
    """The recent duration of bind requests, compared with the fastest of the last one to two minutes.

    Of a distant API server all requests are slow, of a busy one those that wait there.
    """

    def __init__(self) -> None:
        self._recent_ns = self._recent_in_flight = 0.0
        self._fastest_ns = self._last_fastest_ns = float("inf")
        self._window_start_ns = self._last_ns = 0

    def server_is_busy(self, now_ns: int) -> bool:
        """Return True if few bind requests are in flight, but take far longer than in an idle API server."""
        slow_ns = max(_SHORT_NS, _BUSY_FACTOR * min(self._fastest_ns, self._last_fastest_ns))
        is_slow = self._recent_ns > slow_ns and self.has_recent(now_ns)
        return is_slow and self._recent_in_flight <= _FEW_REQUESTS

    def has_recent(self, now_ns: int) -> bool:
        """Return True if a bind request got its response a moment ago: more are likely to follow."""
        return now_ns - self._last_ns < _RECENT_NS

    def add(self, started_ns: int, finished_ns: int, in_flight: int) -> None:
        """Add a bind request that got a response. in_flight: with it, when it was sent."""
        duration_ns = finished_ns - started_ns
        if duration_ns <= 0:  # the clock was set
            return
        if not 0 <= finished_ns - self._window_start_ns < _WINDOW_NS:
            self._last_fastest_ns, self._fastest_ns = self._fastest_ns, float("inf")
            self._window_start_ns = finished_ns
        self._fastest_ns = min(self._fastest_ns, duration_ns)
        self._last_ns = finished_ns
        self._recent_ns += _SHARE * (duration_ns - self._recent_ns)
        self._recent_in_flight += _SHARE * (in_flight - self._recent_in_flight)
