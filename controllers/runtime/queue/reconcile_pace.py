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

FEWEST = 2  # concurrent reconciles: one of them uses this process while the other one waits for a response
MAX_WAIT_SECONDS = 0.05  # of a reconcile, for the scheduler and for other reconciles


def never() -> bool:
    """Return False: there is no scheduler in this process."""
    return False


class ReconcilePace:
    """Lets reconciles begin, some of them later, in the order of begin(): first those that create pods.

    They wait for the next turn of the scheduler if pods wait for it, and while more of them run than the limit. While
    bind requests wait in a busy API server, the limit falls by one in the time of as many reconciles, and then rises in
    the same way, as TCP Vegas changes the number of packets in flight: more would only wait in the API server, too.
    """

    def __init__(self, has_urgent_work: Callable[[], bool] = never, server_is_busy: Callable[[], bool] = never) -> None:
        """has_urgent_work: returns True while pods wait for the scheduler, which calls resume() after each turn.
        server_is_busy: returns True while bind requests wait in the API server."""
        self._has_urgent_work = has_urgent_work
        self._server_is_busy = server_is_busy
        self._running = 0
        self._limit = float("inf")
        self._waiting_to_create_pods: deque[asyncio.Future[None]] = deque()
        self._others_waiting: deque[asyncio.Future[None]] = deque()

    async def begin(self, *, creates_pods: bool = False) -> None:
        """Wait until a reconcile may begin, for a limited time. It counts as running until end()."""
        if self._server_is_busy():
            self._limit = max(FEWEST, min(self._limit, self._running) - 1 / self._limit)
        elif self._running >= self._limit:
            self._limit += 1 / self._limit
        waiting = self._waiting_to_create_pods if creates_pods else self._others_waiting
        if self._running >= self._limit or self._waiting_to_create_pods or waiting or self._has_urgent_work():
            await self._wait_for_turn(waiting)
        else:
            self._running += 1

    def end(self) -> None:
        """Count a reconcile as ended; those that wait begin if the limit and the scheduler permit it."""
        self._running -= 1
        if not self._has_urgent_work():
            self.resume()

    def resume(self) -> None:
        """Let those that wait begin if the limit permits it, also if more pods wait for the scheduler."""
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
