"""An asyncio event loop in virtual time: when no task is ready, the clock jumps to the next timer.

Days of waiting take milliseconds, and the order of events depends on the program alone. `VirtualTimeLoop` is the loop,
`VirtualClock` its wall clock, `run(coroutine)` is `asyncio.run` on such a loop. In tests, mark a module or a test with
`@pytest.mark.virtual_time` and pytest-asyncio runs it on this loop (see `tests/conftest.py`).

For programs without sockets, subprocesses and threads: external events have no place in virtual time. A function passed
to `run_in_executor` (or `asyncio.to_thread`) runs immediately, in the loop's own thread. May import the standard
library only.

Virtual time costs per event, not per second: periodic work that waits with `kubeloop.kube.clock.pause` is skipped while
nothing else runs.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import math
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_MAX_TASKS_LISTED = 20
_MAX_CANCELLED_TIMERS = 100  # with more of them, in most of the heap, all are removed
_running_loop = asyncio.get_running_loop
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YOUNG_OBJECTS = 40_000  # new objects per garbage collection: a run creates many objects and little garbage


class DeadlockError(RuntimeError):
    """Nothing is ready and no timer is set: no task can ever continue."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0.0 seconds and advances only while every task waits.

    Raises DeadlockError out of the running `run_until_complete` if no task can ever continue; the message lists the
    tasks and where they wait.
    """

    is_virtual = True
    # attributes of asyncio.BaseEventLoop
    _ready: deque[asyncio.Handle]
    _scheduled: list[_Due]  # a heap; the one of asyncio holds TimerHandles
    _timer_cancelled_count: int
    _stopping: bool
    _closed: bool
    _selector: selectors.BaseSelector
    _check_closed: Callable[[], None]
    _process_events: Callable[[list[tuple[selectors.SelectorKey, int]]], None]

    def __init__(self) -> None:
        self._virtual_seconds = 0.0
        super().__init__(selectors.SelectSelector())
        # A timer is due when it is less than this away. The value exceeds the spacing of floats below a century in
        # seconds, so that adding a small delay to a large time cannot leave a timer in the future forever.
        self._clock_resolution = 1e-6
        self._pauses: dict[_Pause, None] = {}  # those that other callbacks end
        self._other_callbacks = 0  # that have run since the last jump, without those of pauses

    def time(self) -> float:
        return self._virtual_seconds

    def advance(self, seconds: float) -> None:
        """Advance the time while no task waits, as a long computation would. Timers that it passes become due."""
        self._virtual_seconds += seconds

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            self._check_closed()
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if self._closed:
            self._check_closed()
        due = _Due(when)
        timer = due.timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, due)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: object) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    async def pause(self, seconds: float, due: float | None, has_work: Callable[[], bool] | None) -> float:
        """Wait and return as `kubeloop.kube.clock.pause` does. Cancellation: safe."""
        pause = _Pause(self.create_future(), self._virtual_seconds, seconds, has_work)
        if due is not None:
            self._end_pause_at(pause, due)
        self._pauses[pause] = None
        try:
            await pause.over
            assert pause.timer is not None
            return self._virtual_seconds - pause.timer.when()
        finally:
            self._pauses.pop(pause, None)
            if pause.timer is not None:
                pause.timer.cancel()

    def _end_pause_at(self, pause: _Pause, due: float) -> None:
        """End the pause after the number of periods that reaches `due`, at least one."""
        periods = max(1, math.ceil((due - pause.began_at - self._clock_resolution) / pause.seconds))
        pause.timer = self.call_at(pause.began_at + periods * pause.seconds, self._end_pause, pause)

    def _end_pause(self, pause: _Pause) -> None:
        if not pause.over.done():
            pause.over.set_result(None)
        self._other_callbacks -= 2  # this one, and the step of the task that waits

    def _run_once(self) -> None:
        ready, timers = self._ready, self._scheduled
        if self._timer_cancelled_count > _MAX_CANCELLED_TIMERS or (timers and timers[0].timer.cancelled()):
            self._drop_cancelled_timers(timers)
        if not ready:
            if self._other_callbacks:
                self._other_callbacks = 0
                for pause in [pause for pause in self._pauses if pause.has_work is None or pause.has_work()]:
                    del self._pauses[pause]
                    if pause.timer is not None:
                        pause.timer.cancel()
                    self._end_pause_at(pause, self._virtual_seconds)
                self._drop_cancelled_timers(timers)
            if len(self._selector.get_map()) > 1:  # more than the loop's own pipe
                self._process_events(self._selector.select(0))
            if not ready and not self._stopping:
                if not timers:
                    raise DeadlockError(_describe(asyncio.all_tasks(self)))
                self._virtual_seconds = max(self._virtual_seconds, float(timers[0]))
        # A timer may run one clock resolution early. A task that then waits for the same moment again ("until time()
        # has reached it") would spin forever at a time that is a rounding error before it.
        end = self._virtual_seconds + self._clock_resolution
        while timers and timers[0] < end:
            due = heapq.heappop(timers)
            due.timer._scheduled = False  # type: ignore[attr-defined]
            if due > self._virtual_seconds:
                self._virtual_seconds = float(due)
            ready.append(due.timer)
        count = len(ready)
        self._other_callbacks += count
        for _ in range(count):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _drop_cancelled_timers(self, timers: list[_Due]) -> None:
        if self._timer_cancelled_count > _MAX_CANCELLED_TIMERS and self._timer_cancelled_count * 2 > len(timers):
            for due in timers:
                if due.timer.cancelled():
                    due.timer._scheduled = False  # type: ignore[attr-defined]
            timers[:] = [due for due in timers if not due.timer.cancelled()]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0].timer.cancelled():
            self._timer_cancelled_count -= 1
            heapq.heappop(timers).timer._scheduled = False  # type: ignore[attr-defined]


class _Due(float):
    """Time of a timer, by which the heap orders it: comparisons of TimerHandles take most of a heap's time."""

    __slots__ = ("timer",)
    timer: asyncio.TimerHandle


class _Pause:
    """Periodic work that waits: since when, and its period. `timer` ends it, unless only other callbacks do."""

    __slots__ = ("began_at", "has_work", "over", "seconds", "timer")

    def __init__(
        self, over: asyncio.Future[None], began_at: float, seconds: float, has_work: Callable[[], bool] | None
    ) -> None:
        self.over = over
        self.began_at = began_at
        self.seconds = seconds
        self.has_work = has_work
        self.timer: asyncio.TimerHandle | None = None


def _describe(tasks: Iterable[asyncio.Task[Any]]) -> str:
    lines = []
    for task in sorted(tasks, key=lambda task: task.get_name()):
        frames = task.get_stack(limit=1)
        place = f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else "?"
        lines.append(f"  {task.get_name()} ({task.get_coro()!r}) waits at {place}")
    more = [f"  and {len(lines) - _MAX_TASKS_LISTED} more"] if len(lines) > _MAX_TASKS_LISTED else []
    return "\n".join(["deadlock: nothing is ready and no timer is set", *lines[:_MAX_TASKS_LISTED], *more])


class VirtualClock:
    """A `kubeloop.kube.clock.Clock` that follows the loop: `start` is the wall time when the loop's time is 0.

    Without a loop, it follows the loop that runs at the time of the call.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop | None = None, *, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    ) -> None:
        self._loop = loop
        self._start_ns = round(start.timestamp()) * 1_000_000_000 + start.microsecond * 1_000
        # of the loop's last time that was read: the clock is read 200 times at one time
        self._seconds = math.nan
        self._time_ns = 0
        self._now: datetime | None = None

    def time_ns(self) -> int:
        seconds = (self._loop or _running_loop()).time()
        if seconds != self._seconds:
            self._seconds, self._now = seconds, None
            self._time_ns = self._start_ns + round(seconds * 1e9)
        return self._time_ns

    def now(self) -> datetime:
        time_ns = self.time_ns()
        if self._now is None:
            self._now = _EPOCH + timedelta(microseconds=time_ns // 1_000)
        return self._now


def run(main: Coroutine[Any, Any, T], *, debug: bool | None = None) -> T:
    """`asyncio.run` in virtual time, on a new loop: for tests that are not coroutines, such as those of hypothesis.

    Meanwhile, garbage is collected less often.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(max(_YOUNG_OBJECTS, thresholds[0]) if thresholds[0] else 0, *thresholds[1:])
    try:
        with asyncio.Runner(debug=debug, loop_factory=VirtualTimeLoop) as runner:
            return runner.run(main)
    finally:
        gc.set_threshold(*thresholds)
