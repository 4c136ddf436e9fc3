"""Work that takes too long for the event loop, such as webhook calls and expensive expressions.

A handler that may have to wait is a coroutine that awaits nothing but `SlowWork`. `start` runs it without a task; a
handler that needs no slow work finishes at once. Otherwise a task does the work and continues the coroutine where it
stopped. Other requests are handled meanwhile, so a handler must check its inputs again before it writes to the store,
and raises `Outdated` if they have changed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

R = TypeVar("R")


class SlowWork(Generic[R]):
    """Work that a handler awaits. run: starts it on a running event loop and returns an awaitable of its result.

    Awaiting SlowWork returns that result, or raises its exception.
    """

    __slots__ = ("run",)

    def __init__(self, run: Callable[[], Awaitable[R]]) -> None:
        self.run = run

    def __await__(self) -> Generator[SlowWork[R], R, R]:
        return (yield self)


class Outdated(Exception):
    """While a handler waited for slow work, its inputs have changed: the request must be handled again."""


Handling = Coroutine[SlowWork[Any], Any, R]
"""A handler that may await SlowWork, and nothing else."""


class Suspended(Generic[R]):
    """A handler that waits for slow work. Calling it, once, does the work and the rest of the handler.

    Cancellation of the call: the handler ends at the work that it waits for.
    """

    __slots__ = ("_handling", "_work")

    def __init__(self, handling: Handling[R], work: SlowWork[Any]) -> None:
        self._handling = handling
        self._work = work

    async def __call__(self) -> R:
        handling, work = self._handling, self._work
        try:
            while True:
                try:
                    result = await work.run()
                except Exception as error:
                    work = handling.throw(error)
                else:
                    work = handling.send(result)
        except StopIteration as finished:
            value: R = finished.value
            return value
        finally:
            handling.close()


def start(handling: Handling[R]) -> R | Suspended[R]:
    """Run a handler and return its result, or the suspended handler if it needs slow work."""
    try:
        work = handling.send(None)
    except StopIteration as finished:
        value: R = finished.value
        return value
    return Suspended(handling, work)


async def run(handling: Handling[R]) -> R:
    """Run a handler in a task, which does its slow work, if there is any."""
    result = start(handling)
    return await result() if isinstance(result, Suspended) else result


class HandlerTasks:
    """Runs handlers whose results are not needed: each at once up to its first slow work, and the rest in a task."""

    def __init__(self) -> None:
        self._suspended: asyncio.Queue[Suspended[None]] = asyncio.Queue()

    def start(self, handling: Handling[None]) -> None:
        """Run a handler. An exception before its first slow work is raised here, a later one by run()."""
        suspended = start(handling)
        if suspended is not None:
            self._suspended.put_nowait(suspended)

    async def run(self) -> None:
        """Finish the handlers that need slow work, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                suspended = await self._suspended.get()
                tasks.create_task(suspended())


# --- expensive expressions --------------------------------------------------------------------------------------------


class Costed(Protocol):
    """The outcome of a run, with its cost in CEL cost units."""

    @property
    def cost(self) -> float: ...


OutcomeT = TypeVar("OutcomeT", bound=Costed)
OutcomeT_co = TypeVar("OutcomeT_co", bound=Costed, covariant=True)


class CostedProgram(Protocol[OutcomeT_co]):
    """A compiled expression whose runs have a cost (`cel.program.CelProgram`)."""

    def run(self, values: dict[str, Any], budget: float) -> OutcomeT_co: ...


LOOP_BUDGET = 20_000  # CEL cost units, about 10 ms
_RUN_COST = 10


class BudgetExceeded(Exception):
    """Expressions cost more than may run on the event loop."""


class LoopBudget:
    """CEL cost units that expressions may use on the event loop; each run has an overhead in addition."""

    __slots__ = ("_left",)

    def __init__(self, left: float = math.inf) -> None:
        self._left = left

    def run(self, program: CostedProgram[OutcomeT], values: dict[str, Any]) -> OutcomeT:
        """Run a program and charge its cost. Raises BudgetExceeded."""
        outcome = program.run(values, self._left)
        self._left -= outcome.cost + _RUN_COST
        if self._left < 0:
            raise BudgetExceeded
        return outcome


class SlowWorkContext(Protocol):
    """The part of a request's context (RequestContext) that slow work needs."""

    async def compute(self, compute: Callable[[LoopBudget], R]) -> R:
        """Return compute(), on the event loop if it is cheap, else in a thread."""
        ...


class ComputeThread:
    """A thread for computations, which run one at a time: two threads would delay the event loop twice as long."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, compute: Callable[[], R]) -> R:
        """Return compute(). Cancellation: a computation that has begun continues, and others wait for its end."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute")
        return await asyncio.get_running_loop().run_in_executor(self._executor, compute)
