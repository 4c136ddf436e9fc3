"""The pace of reconciles: pods that wait for the scheduler of this process go first.

Shared by all controllers of the process. A burst of reconciles delays the scheduler in the event loop, and, if the API
server is busy, in the API server, where each request waits for those before it. There, reconciles that begin later
cost little throughput. Imports the standard library only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

MAX_TURNS = 8  # of the event loop that a reconcile waits while pods wait for the scheduler: usually some ms
FEWEST = 4  # concurrent reconciles while the API server is busy
MAX_WAIT_SECONDS = 0.05  # for other reconciles to end
_DECREASE, _INCREASE = 0.95, 1.02  # of the limit per reconcile


def never() -> bool:
    """Return False: there is no scheduler in this process."""
    return False


class ReconcilePace:
    """Lets reconciles begin, in the order of begin(), and some of them later.

    While bind requests wait in a busy API server, the number of concurrent reconciles is reduced until they do so no
    longer, as TCP Vegas reduces the packets in flight: more of them would only wait in the API server, too.
    """

    def __init__(self, has_urgent_work: Callable[[], bool] = never, server_is_busy: Callable[[], bool] = never) -> None:
        """has_urgent_work: returns True while pods wait for the scheduler. server_is_busy: returns True while bind
        requests wait in the API server."""
        self._has_urgent_work = has_urgent_work
        self._server_is_busy = server_is_busy
        self._running = 0
        self._limit = float("inf")
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def begin(self) -> None:
        """Wait until a reconcile may begin, for a limited time. It counts as running until end()."""
        for _ in range(MAX_TURNS):
            if not self._has_urgent_work():
                break
            await asyncio.sleep(0)
        if self._server_is_busy():
            self._limit = max(FEWEST, _DECREASE * min(self._limit, self._running))
        elif self._running >= self._limit:
            self._limit *= _INCREASE
        if self._running >= self._limit or self._waiting:
            await self._wait_for_turn()
        self._running += 1

    def end(self) -> None:
        """Count a reconcile as ended; the first one that waits begins if the limit permits it."""
        self._running -= 1
        if self._waiting and self._running < self._limit:
            _resolve(self._waiting.popleft())

    async def _wait_for_turn(self) -> None:
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        timer = loop.call_later(MAX_WAIT_SECONDS, _resolve, turn)
        try:
            await turn
        finally:
            timer.cancel()
            if turn in self._waiting:  # its time is over, or it was cancelled
                self._waiting.remove(turn)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
