"""Limit of concurrent writes while bindings are slow: pods that wait for their node go before further work.

An API server handles requests in the order of their arrival. With more of them in flight than it can handle at a time,
each one only waits longer, and a pod that was just created waits twice: for its watch event and for its bind request.
Imports the standard library only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import IntEnum

SHORT_SECONDS = 0.004  # users do not notice such a bind request, and throughput counts more
SLOW_FACTOR = 3.0  # times as long as the fastest bind request
FEWEST, MOST = 2.0, 32.0  # concurrent writes while pods are bound
_SHARE = 0.125  # of a bind request in the limit
_RECENT_SECONDS = 0.1  # without a bind request, after which there is no limit
_WINDOW_SECONDS = 60.0  # the fastest of this and the last window counts: a server may become slower for good


class WriteLimit:
    """The limit: as many writes as let a bind request take little longer than in an idle API server.

    Of a distant API server all requests are slow, of a busy one those that wait there: each is compared with the
    fastest of the last one to two minutes, as TCP Vegas does with packets. `now` is the loop's time.
    """

    def __init__(self) -> None:
        self._limit = MOST
        self._fastest = self._last_fastest = float("inf")
        self._window_start = self._last = float("-inf")

    def value(self, now: float) -> float:
        """Return the number of concurrent writes that the limit permits; infinity while no pods are bound."""
        return self._limit if now - self._last < _RECENT_SECONDS else float("inf")

    def bound(self, seconds: float, now: float) -> None:
        """Adjust the limit after a bind request that took `seconds`."""
        if seconds <= 0:  # the clock was set
            return
        if now - self._last >= _RECENT_SECONDS:
            self._limit = MOST
        self._last = now
        if now - self._window_start >= _WINDOW_SECONDS:
            self._last_fastest, self._fastest = self._fastest, float("inf")
            self._window_start = now
        self._fastest = min(self._fastest, seconds)
        target = max(SHORT_SECONDS, SLOW_FACTOR * min(self._fastest, self._last_fastest))
        change = target / max(target / 2, seconds) - 1.0  # from 1 for fast requests to nearly -1 for slow ones
        self._limit = max(FEWEST, min(MOST, self._limit * (1.0 + _SHARE * change)))


class Rank(IntEnum):
    """Kinds of work that writes; the first one that waits begins first."""

    POD_CREATION = 0
    RECONCILE = 1
    EVENT = 2


class WriteGate:
    """Lets work that writes begin while less of it runs than the limit permits, in order of rank and arrival."""

    def __init__(self, limit: WriteLimit) -> None:
        self._limit = limit
        self._running = 0
        self._waiting = [deque[asyncio.Future[None]]() for _ in Rank]

    async def begin(self, rank: Rank, max_wait_seconds: float | None = None) -> None:
        """Wait until work of this rank may begin, for a limited time. It counts as running until end()."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting[rank]
        if self._has_room(loop.time()) and not any(self._waiting[: rank + 1]):
            self._running += 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        waiting.append(turn)
        timer = None
        if max_wait_seconds is not None:
            timer = loop.call_later(max_wait_seconds, self._let_begin, turn, waiting)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in waiting:
                waiting.remove(turn)
            elif not turn.cancelled():
                self.end()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def end(self) -> None:
        """Count work as ended; what waits begins if the limit permits it."""
        self._running -= 1
        if any(self._waiting):
            now = asyncio.get_running_loop().time()
            while self._has_room(now) and (waiting := next(filter(None, self._waiting), None)):
                self._let_begin(waiting[0], waiting)

    def _has_room(self, now: float) -> bool:
        return self._running < self._limit.value(now)

    def _let_begin(self, turn: asyncio.Future[None], waiting: deque[asyncio.Future[None]]) -> None:
        """Count the work that waits for `turn` as running, before its task continues: no other takes its place."""
        if turn in waiting:
            waiting.remove(turn)
            if not turn.done():
                self._running += 1
                turn.set_result(None)
