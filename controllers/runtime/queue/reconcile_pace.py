"""The pace of reconciles: pods that wait for the scheduler of this process go first.

Shared by all controllers of the process. A burst of reconciles delays the scheduler in the event loop, and, if the API
server is busy, in the API server, where each request waits for those before it. There, reconciles that begin later
cost little throughput. Those that create pods begin before others: a Deployment whose ReplicaSet waits is not finished
earlier if the next one creates its own, too. Imports the standard library only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

MAX_TURNS = 8  # of the event loop that a reconcile waits while pods wait for the scheduler: usually some ms
FEWEST = 2  # concurrent reconciles while the API server is busy
MAX_WAIT_SECONDS = 0.05  # for other reconciles to end
_DECREASE, _INCREASE = 0.95, 1.02  # of the limit per reconcile


def never() -> bool:
    """Return False: there is no scheduler in this process."""
    return False


class ReconcilePace:
    """Lets reconciles begin, some of them later, in the order of begin(): first those that create pods.

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
        self._waiting_to_create_pods: deque[asyncio.Future[None]] = deque()
        self._others_waiting: deque[asyncio.Future[None]] = deque()

    async def begin(self, *, creates_pods: bool = False) -> None:
        """Wait until a reconcile may begin, for a limited time. It counts as running until end()."""
        for _ in range(MAX_TURNS):
            if not self._has_urgent_work():
                break
            await asyncio.sleep(0)
        if self._server_is_busy():
            self._limit = max(FEWEST, _DECREASE * min(self._limit, self._running))
        elif self._running >= self._limit:
            self._limit *= _INCREASE
        waiting = self._waiting_to_create_pods if creates_pods else self._others_waiting
        if self._running >= self._limit or self._waiting_to_create_pods or waiting:
            await self._wait_for_turn(waiting)
        else:
            self._running += 1

    def end(self) -> None:
        """Count a reconcile as ended; those that wait begin if the limit permits it."""
        self._running -= 1
        while self._running < self._limit and (waiting := self._waiting_to_create_pods or self._others_waiting):
            self._let_begin(waiting[0], waiting)

    async def _wait_for_turn(self, waiting: deque[asyncio.Future[None]]) -> None:
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        waiting.append(turn)
        timer = loop.call_later(MAX_WAIT_SECONDS, self._let_begin, turn, waiting)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in waiting:
                waiting.remove(turn)
            elif not turn.cancelled():
                self.end()
            raise
        finally:
            timer.cancel()

    def _let_begin(self, turn: asyncio.Future[None], waiting: deque[asyncio.Future[None]]) -> None:
        """Count the reconcile that waits for `turn` as running, before its task continues: no other takes its place."""
        if turn in waiting:
            waiting.remove(turn)
            if not turn.done():
                self._running += 1
                turn.set_result(None)
