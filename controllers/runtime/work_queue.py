"""Work queue: which keys need a reconcile, and when.

Holds keys ("namespace/name"), never objects. May import the standard library only: knows nothing of HTTP or kinds.
How long to back off is the rate limiter's decision; what a key means, its controller's. Semantics are those of
client-go's util/workqueue.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable

from kubeloop.controllers.runtime.metrics_interface import QueueMetrics
from kubeloop.controllers.runtime.rate_limiter import (
    ItemExponentialFailureRateLimiter,
    RateLimiter,
    controller_rate_limiter,
    loop_time,
)


class QueueShutDown(Exception):
    """get() after shut_down(): no key is left and none will come."""


class WorkQueue:
    """Keys to reconcile. A key is with at most one worker at a time.

        absent --add--> ready --get--> processing --done--> absent
                          ^                | add: it changed while we worked
                          +-----done---- processing and dirty

    A key may also wait for its time (add_after); of several times the earliest holds, and adding the key now does
    not take it off the waiting list.
    """

    def __init__(
        self,
        name: str = "",
        *,
        limiter: RateLimiter | None = None,
        metrics: QueueMetrics | None = None,
        seconds: Callable[[], float] = loop_time,
    ) -> None:
        """seconds: a clock for the metrics. The loop's own may stand still while work is done, and move by whole
        milliseconds."""
        self.name = name
        self._seconds = seconds
        self._limiter = limiter if limiter is not None else controller_rate_limiter()
        self._too_early = ItemExponentialFailureRateLimiter(cap=10.0)
        self._metrics = metrics
        self._ready: deque[str] = deque()  # in order of arrival
        self._dirty: set[str] = set()  # needs a reconcile: ready, or changed since get()
        self._processing: dict[str, float] = {}  # handed out by get(), not given back: key -> seconds() of get()
        self._added_at: dict[str, float] = {}  # dirty keys: seconds() of add()
        self._waiting: dict[str, float] = {}  # add_after: key -> loop time
        self._heap: list[tuple[float, int, str]] = []  # of _waiting; entries overtaken by an earlier time stay behind
        self._heap_serial = 0
        self._timer: asyncio.TimerHandle | None = None
        self._getters: deque[asyncio.Future[None]] = deque()
        self._idle: asyncio.Event | None = None  # exists while somebody waits for the drain
        self._shut_down = False
        if metrics is not None:
            metrics.attach(self)

    def __len__(self) -> int:
        """Keys that wait for a worker."""
        return len(self._ready)

    def ready_keys(self) -> list[str]:
        """The keys that wait for a worker, next first."""
        return list(self._ready)

    def check(self) -> None:
        """Assert what always holds."""
        assert set(self._ready) == self._dirty - self._processing.keys()
        assert len(set(self._ready)) == len(self._ready)
        assert self._added_at.keys() == self._dirty
        assert {(at, key) for key, at in self._waiting.items()} <= {(at, key) for at, _, key in self._heap}

    def add(self, key: str) -> None:
        """`key` needs a reconcile. Nothing happens if it waits already, or after shut_down()."""
        if self._shut_down or key in self._dirty:
            return
        self._dirty.add(key)
        self._added_at[key] = self._seconds()
        if self._metrics is not None:
            self._metrics.added()
        if key in self._processing:
            return  # done() makes it ready
        self._ready.append(key)
        self._wake_getter()

    def add_after(self, key: str, seconds: float) -> None:
        """add(key) once `seconds` have passed; at once if that is not in the future."""
        if self._shut_down:
            return
        if self._metrics is not None:
            self._metrics.retried()
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        planned = self._waiting.get(key)
        if planned is not None and planned <= at:
            return
        self._waiting[key] = at
        self._heap_serial += 1
        heapq.heappush(self._heap, (at, self._heap_serial, key))
        if self._heap[0][2] == key:
            self._set_timer(loop)

    def add_rate_limited(self, key: str, *, failed: bool = True) -> None:
        """add(key) when the rate limiter allows it.

        failed=False: nothing went wrong, it is only too early for this key. It then backs off by itself, and takes no
        token from the bucket that it shares with keys that did fail.
        """
        self.add_after(key, (self._limiter if failed else self._too_early).when(key))

    def forget(self, key: str) -> None:
        """The failures of `key` no longer count. What waits goes on waiting."""
        self._limiter.forget(key)
        self._too_early.forget(key)

    def num_requeues(self, key: str) -> int:
        """How often `key` was put back by add_rate_limited() since it was last forgotten."""
        return self._limiter.num_requeues(key)

    async def get(self) -> str:
        """Wait for a key and mark it processing; give it back with done().

        Cancellation: safe; a cancelled get() has taken no key. Raises QueueShutDown after shut_down(), when no key is
        left.
        """
        loop = asyncio.get_running_loop()
        while not self._ready:
            if self._shut_down:
                raise QueueShutDown(self.name)
            getter: asyncio.Future[None] = loop.create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                getter.cancel()
                if getter in self._getters:
                    self._getters.remove(getter)
                elif self._ready:
                    self._wake_getter()  # we were woken for a key that another getter can now take
                raise
        key = self._ready.popleft()
        self._dirty.discard(key)
        now = self._processing[key] = self._seconds()
        added_at = self._added_at.pop(key)
        if self._metrics is not None:
            self._metrics.started(max(0.0, now - added_at))
        return key

    def done(self, key: str) -> None:
        """The worker is finished with `key`. If it was added meanwhile, it is ready again."""
        started_at = self._processing.pop(key, None)
        if started_at is not None and self._metrics is not None:
            self._metrics.finished(max(0.0, self._seconds() - started_at))
        if started_at is not None and key in self._dirty:
            self._ready.append(key)
            self._wake_getter()
        elif self._idle is not None and not self._processing and not self._ready:
            self._idle.set()

    def shut_down(self) -> None:
        """Take no more keys; getters have what is ready, then end with QueueShutDown. Waiting keys are lost."""
        self._shut_down = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()
        self._heap.clear()
        while self._getters:
            self._wake_getter()

    async def shut_down_with_drain(self) -> None:
        """shut_down(), then wait until every key handed out was given back and none is ready.

        Cancellation: the queue stays shut down.
        """
        self.shut_down()
        if self._processing or self._ready:
            if self._idle is None:
                self._idle = asyncio.Event()
            await self._idle.wait()

    def unfinished_work_seconds(self) -> float:
        """Age of the work in progress, summed over the keys being processed."""
        now = self._seconds()
        return sum(now - started_at for started_at in self._processing.values())

    def longest_running_processor_seconds(self) -> float:
        """Age of the oldest piece of work in progress; 0 if there is none."""
        now = self._seconds()
        return max((now - started_at for started_at in self._processing.values()), default=0.0)

    def _wake_getter(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._heap[0][0], self._add_due) if self._heap else None

    def _add_due(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        # The loop fires timers up to its clock's resolution early; such a key is due, or we would spin on it.
        now = max(loop.time(), self._heap[0][0]) if self._heap else loop.time()
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            if self._waiting.get(key) == at:
                del self._waiting[key]
                self.add(key)
        self._set_timer(loop)
