"""Work that takes long, outside the synchronous handling of a request.

A request is handled synchronously, so that it sees one state of the store. Where that would block the event loop for
too long, the handler raises `Deferred` before it changes anything: the work runs in a thread or task, its result is
stored, and the request is handled again from its beginning. The result is used if its inputs are still the same.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable
from copy import deepcopy
from datetime import datetime
from typing import Any, Protocol, TypeVar

from kubeloop.kube.clock import Clock

R = TypeVar("R")


class Costed(Protocol):
    """The outcome of a run, with its cost in CEL cost units."""

    @property
    def cost(self) -> float: ...


OutcomeT = TypeVar("OutcomeT", bound=Costed)
OutcomeT_co = TypeVar("OutcomeT_co", bound=Costed, covariant=True)


class CostedProgram(Protocol[OutcomeT_co]):
    """A compiled expression whose runs have a cost (languages.cel.program.Program)."""

    def run(self, values: dict[str, Any], budget: float) -> OutcomeT_co: ...


_LOOP_BUDGET = 20_000  # CEL cost units, about 10 ms
_RUN_COST = 10


class Deferred(Exception):
    """The request must be handled again after `work`."""

    def __init__(self, key: Hashable, work: Callable[[], Awaitable[Any]]) -> None:
        super().__init__("the request is deferred")
        self.key = key
        self.work = work


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


class DeferredWork:
    """Deferred work of the request that is being handled, and results of earlier attempts."""

    def __init__(self) -> None:
        self.may_defer = False
        """True while the request may be deferred: until it changes something."""
        self._loop_budget: LoopBudget | None = None
        self._results: dict[Hashable, Any] = {}
        self._alone = asyncio.Lock()

    def begin(self, results: dict[Hashable, Any]) -> None:
        """Start handling a request. results: of its deferred work so far, by key."""
        self.may_defer = True
        self._loop_budget = None
        self._results = results

    def end(self) -> None:
        self.may_defer = False
        self._results = {}

    def take_result(self, key: Hashable) -> Any | None:
        """Remove and return the result of the work with this key."""
        return self._results.pop(key, None)

    def compute_or_defer(self, key: Callable[[], Hashable], compute: Callable[[LoopBudget], R]) -> R:
        """Return compute(), a pure function of the inputs that `key` identifies. Raises Deferred if it takes long.

        All calls for one request share one budget.
        """
        if not self.may_defer:
            return compute(LoopBudget())
        if self._results and (stored := self._results.get(key())) is not None:
            result: R = deepcopy(stored)  # the caller may change it, and the request may be handled again
            return result
        self._loop_budget = self._loop_budget or LoopBudget(_LOOP_BUDGET)
        try:
            return compute(self._loop_budget)
        except BudgetExceeded:
            raise Deferred(key(), lambda: self._in_thread(lambda: compute(LoopBudget()))) from None

    async def _in_thread(self, compute: Callable[[], Any]) -> Any:
        """Compute in a thread, one at a time: two threads would delay the event loop twice as long."""
        async with self._alone:
            return await asyncio.to_thread(compute)


class FreezableClock:
    """A clock that can be frozen while a deferred request is handled again. frozen_at: None while it runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.frozen_at: datetime | None = None

    def now(self) -> datetime:
        return self.frozen_at or self._clock.now()

    def time_ns(self) -> int:
        return self._clock.time_ns()
