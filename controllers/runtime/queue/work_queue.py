"""Work queue: which keys need a reconcile, and when.

Holds keys ("namespace/name"), never objects; independent of HTTP and resource kinds. The rate limiter decides the
backoff, and the controller interprets the key. Semantics are those of client-go's util/workqueue. For traces, the queue
also holds the reasons for which a key was added; reconciles read the caches, never the event that added their key.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable

from kubeloop.controllers.runtime.queue.rate_limiter import (
    ItemExponentialFailureRateLimiter,
    RateLimiter,
    controller_rate_limiter,
    loop_time,
)
from kubeloop.kube.metric_families import NO_FAMILIES, MetricFamilies

_MAX_REASONS = 4  # per key
# Source: k8s.io/component-base/metrics/prometheus/workqueue: ExponentialBuckets(10e-9, 10, 12)
_BUCKETS = tuple(1e-8 * 10**power for power in range(12))


class QueueShutDown(Exception):
    """get() was called after shut_down() and no key is left."""


class WorkQueue:
    """Keys to reconcile. At most one worker processes a key at a time.

        absent --add--> ready --get--> processing --done--> absent
                          ^                | add: the key changed while it was processed
                          +-----done---- processing and dirty

    A key may also be delayed (add_after). Of several times for one key the earliest is used; adding a delayed key with
    add() does not cancel its delayed add.
    """

    def __init__(
        self,
        name: str = "",
        *,
        limiter: RateLimiter | None = None,
        families: MetricFamilies = NO_FAMILIES,
        seconds: Callable[[], float] = loop_time,
    ) -> None:
        """name: label `name` of the workqueue_* metrics. families: where they are declared. seconds: their clock, in
        seconds. The event loop's own clock may stand still while work is done, and advance in whole milliseconds only.
        """
        self.name = name
        self._seconds = seconds
        self._limiter = limiter if limiter is not None else controller_rate_limiter()
        self._postponed_backoff = ItemExponentialFailureRateLimiter(cap=10.0)
        self._ready: deque[str] = deque()  # in order of arrival
        self._dirty: set[str] = set()  # needs a reconcile: ready, or changed since get()
        self._processing: dict[str, float] = {}  # handed out by get(), not done: key -> seconds() of get()
        self._added_at: dict[str, float] = {}  # dirty keys: seconds() of add()
        self._reasons: dict[str, list[str]] = {}  # by key, since the last pop_reasons()
        self._delayed: dict[str, float] = {}  # add_after: key -> loop time
        self._delayed_heap: list[tuple[float, int, str]] = []  # of _delayed, and entries replaced by an earlier time
        self._delayed_serial = 0
        self._timer: asyncio.TimerHandle | None = None
        self._getters: deque[asyncio.Future[None]] = deque()
        self._shut_down = False
        self._declare_metrics(families)

    def _declare_metrics(self, families: MetricFamilies) -> None:
        labels = ("name",)
        self._adds = families.counter(
            "workqueue_adds_total", "Total number of adds handled by workqueue.", labels
        ).labels(self.name)
        self._retries = families.counter(
            "workqueue_retries_total", "Total number of retries handled by workqueue.", labels
        ).labels(self.name)
        self._waited = families.histogram(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested.",
            labels,
            buckets=_BUCKETS,
        ).labels(self.name)
        self._worked = families.histogram(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
            labels,
            buckets=_BUCKETS,
        ).labels(self.name)
        for name, documentation, read in (
            ("workqueue_depth", "Current depth of workqueue.", self.__len__),
            (
                "workqueue_unfinished_work_seconds",
                "Seconds of work in progress, summed over the items being processed.",
                self.unfinished_work_seconds,
            ),
            (
                "workqueue_longest_running_processor_seconds",
                "How many seconds the longest running processor for workqueue has been running.",
                self.longest_running_processor_seconds,
            ),
        ):
            families.gauge(name, documentation, labels).labels(self.name).set_function(read)

    def __len__(self) -> int:
        """Return the number of keys that are ready for a worker."""
        return len(self._ready)

    def check(self) -> None:
        """Assert the invariants."""
        assert set(self._ready) == self._dirty - self._processing.keys()
        assert len(set(self._ready)) == len(self._ready)
        assert self._added_at.keys() == self._dirty
        assert {(at, key) for key, at in self._delayed.items()} <= {(at, key) for at, _, key in self._delayed_heap}

    def add(self, key: str, reason: str = "") -> None:
        """Mark `key` as needing a reconcile. Does nothing after shut_down().

        The first few distinct reasons are stored; use pop_reasons() in the reconcile.
        """
        if self._shut_down:
            return
        if reason:
            reasons = self._reasons.get(key)
            if reasons is None:
                self._reasons[key] = [reason]
            elif len(reasons) < _MAX_REASONS and reason not in reasons:
                reasons.append(reason)
        if key in self._dirty:
            return
        self._dirty.add(key)
        self._added_at[key] = self._seconds()
        self._adds.inc()
        if key in self._processing:
            return  # made ready by done()
        self._ready.append(key)
        self._wake_getter()

    def pop_reasons(self, key: str) -> str:
        """Return and clear the reasons for which `key` was added; "retry or time" if there are none."""
        reasons = self._reasons.pop(key, None)
        return ", ".join(reasons) if reasons else "retry or time"

    def add_after(self, key: str, seconds: float) -> None:
        """Call add(key) after `seconds`; at once if `seconds` is not positive."""
        if self._shut_down:
            return
        self._retries.inc()
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        scheduled_at = self._delayed.get(key)
        if scheduled_at is not None and scheduled_at <= at:
            return
        self._delayed[key] = at
        self._delayed_serial += 1
        heapq.heappush(self._delayed_heap, (at, self._delayed_serial, key))
        if self._delayed_heap[0][2] == key:
            self._set_timer(loop)

    def add_rate_limited(self, key: str, *, failed: bool = True, at_least_seconds: float = 0.0) -> None:
        """Call add(key) after the delay that the rate limiter returns, and not earlier than `at_least_seconds`.

        failed=False: the reconcile was postponed, not failed. The key then has a backoff of its own, and takes no token
        from the bucket shared with keys that failed.
        """
        delay_seconds = (self._limiter if failed else self._postponed_backoff).when(key)
        self.add_after(key, max(delay_seconds, at_least_seconds))

    def forget(self, key: str) -> None:
        """Reset the failures of `key`. A delayed add is not cancelled."""
        self._limiter.forget(key)
        self._postponed_backoff.forget(key)

    def num_requeues(self, key: str) -> int:
        """Return the number of add_rate_limited() calls for `key` since it was last forgotten."""
        return self._limiter.num_requeues(key)

    async def get(self) -> str:
        """Wait for a key and mark it processing; call done() when finished with it.

        Cancellation: safe; a cancelled get() has taken no key. Raises QueueShutDown after shut_down(), when no key is
        left.
        """
        await self.wait()
        return self.take()

    async def wait(self) -> None:
        """Wait until a key is ready. Raises QueueShutDown like get()."""
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
                    self._wake_getter()  # this getter was woken for a key that another getter can take
                raise

    def take(self) -> str:
        """Mark the first ready key processing, and return it. Raises IndexError if there is none."""
        key = self._ready.popleft()
        self._dirty.discard(key)
        now = self._processing[key] = self._seconds()
        enqueued_at = self._added_at.pop(key)
        self._waited.observe(max(0.0, now - enqueued_at))
        return key

    def done(self, key: str) -> None:
        """Mark `key` as no longer processed. If it was added in the meantime, it is ready again."""
        started_at = self._processing.pop(key, None)
        if started_at is None:
            return
        self._worked.observe(max(0.0, self._seconds() - started_at))
        if key in self._dirty:
            self._ready.append(key)
            self._wake_getter()

    def shut_down(self) -> None:
        """Accept no more keys. get() returns the ready keys, then raises QueueShutDown. Delayed keys are dropped."""
        self._shut_down = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._delayed.clear()
        self._delayed_heap.clear()
        while self._getters:
            self._wake_getter()

    def unfinished_work_seconds(self) -> float:
        """Return the age of the work in progress, summed over the keys being processed."""
        now = self._seconds()
        return sum(now - started_at for started_at in self._processing.values())

    def longest_running_processor_seconds(self) -> float:
        """Return the age of the oldest work in progress; 0 if there is none."""
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
        self._timer = loop.call_at(self._delayed_heap[0][0], self._add_due) if self._delayed_heap else None

    def _add_due(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        # The loop fires timers up to its clock's resolution early. The first key counts as due, to avoid a busy loop.
        now = max(loop.time(), self._delayed_heap[0][0]) if self._delayed_heap else loop.time()
        while self._delayed_heap and self._delayed_heap[0][0] <= now:
            at, _, key = heapq.heappop(self._delayed_heap)
            if self._delayed.get(key) == at:
                del self._delayed[key]
                self.add(key)
        self._set_timer(loop)
