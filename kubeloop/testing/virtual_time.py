"""An asyncio event loop in virtual time: when no task is ready, the clock jumps to the next timer.

Days of waiting take milliseconds, and the order of events depends on the program alone. `VirtualTimeLoop` is the loop,
`VirtualClock` its wall clock, `run(coroutine)` is `asyncio.run` on such a loop. In tests, mark a module or a test with
`@pytest.mark.virtual_time` and pytest-asyncio runs it on this loop (see `tests/conftest.py`).

For programs without sockets, subprocesses and threads: external events have no place in virtual time. A function passed
to `run_in_executor` (or `asyncio.to_thread`) runs immediately, in the loop's own thread. May import the standard
library only.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

_MAX_TASKS_LISTED = 20


class DeadlockError(RuntimeError):
    """Nothing is ready and no timer is set: no task can ever continue."""


class _JumpingSelector(selectors.SelectSelector):
    """Moves the clock where the loop would sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.would_sleep: Callable[[float | None], None] = lambda timeout: None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            self.would_sleep(timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0.0 seconds and advances only while every task waits.

    Raises DeadlockError out of the running `run_until_complete` if no task can ever continue; the message lists the
    tasks and where they wait.
    """

    def __init__(self) -> None:
        self._virtual_seconds = 0.0
        selector = _JumpingSelector()
        super().__init__(selector)
        selector.would_sleep = self._jump
        # A timer is due when it is less than this away. The value exceeds the spacing of floats below a century in
        # seconds, so that adding a small delay to a large time cannot leave a timer in the future forever.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._virtual_seconds

    def advance(self, seconds: float) -> None:
        """Advance the time while no task waits, as a long computation would. Timers that it passes become due."""
        self._virtual_seconds += seconds

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: object) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _run_once(self) -> None:
        # A timer may run one clock resolution early. A task that then waits for the same moment again ("until time()
        # has reached it") would spin forever at a time that is a rounding error before it.
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if scheduled and scheduled[0].when() < self._virtual_seconds + self._clock_resolution:
            self._virtual_seconds = max(self._virtual_seconds, scheduled[0].when())
        super()._run_once()  # type: ignore[misc]

    def _jump(self, timeout: float | None) -> None:
        if timeout is None:
            raise DeadlockError(_describe(asyncio.all_tasks(self)))
        self._virtual_seconds += timeout


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

    def time_ns(self) -> int:
        loop = self._loop or asyncio.get_running_loop()
        return self._start_ns + round(loop.time() * 1e9)

    def now(self) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.time_ns() // 1_000)


def run(main: Coroutine[Any, Any, T], *, debug: bool | None = None) -> T:
    """`asyncio.run` in virtual time, on a new loop: for tests that are not coroutines, such as those of hypothesis."""
    with asyncio.Runner(debug=debug, loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
