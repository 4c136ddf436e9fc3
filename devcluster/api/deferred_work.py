"""What an answer has to wait for.

Requests are answered in one go, so that each sees one state of the store. Where that would hold the event loop for too
long, nothing is done yet and `Later` is raised: the work is done aside, its result kept, and the request answered again
from its beginning. Whoever asks for the work again finds the result, if what it is about is still the same.
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
    """Outcome of a run, with its cost."""

    @property
    def cost(self) -> float: ...


OutcomeT = TypeVar("OutcomeT", bound=Costed)
OutcomeT_co = TypeVar("OutcomeT_co", bound=Costed, covariant=True)


class CostedProgram(Protocol[OutcomeT_co]):
    """A compiled expression whose runs have a cost (languages.cel.program.Program)."""

    def run(self, values: dict[str, Any], budget: float) -> OutcomeT_co: ...


_AT_ONCE = 20_000  # units of cost, or some 10 ms
_RUN_COST = 10


class Later(Exception):
    """The request has to wait for `work`, and be answered again then."""

    def __init__(self, key: Hashable, work: Callable[[], Awaitable[Any]]) -> None:
        super().__init__("the answer takes time")
        self.key = key
        self.work = work


class TakesLong(Exception):
    """Expressions cost more than they were allowed to at once."""


class Allowance:
    """Units of cost that expressions may use at once; each run counts some beside its cost."""

    __slots__ = ("_left",)

    def __init__(self, left: float = math.inf) -> None:
        self._left = left

    def run(self, program: CostedProgram[OutcomeT], values: dict[str, Any]) -> OutcomeT:
        """Raises TakesLong."""
        outcome = program.run(values, self._left)
        self._left -= outcome.cost + _RUN_COST
        if self._left < 0:
            raise TakesLong
        return outcome


class Waiting:
    """What the request that is being answered may wait for, and has waited for."""

    def __init__(self) -> None:
        self.allowed = False
        """May the request be answered later? Not after it has changed something."""
        self._allowance: Allowance | None = None
        self._results: dict[Hashable, Any] = {}
        self._alone = asyncio.Lock()

    def begin(self, results: dict[Hashable, Any]) -> None:
        """A request is about to be answered. results: of what it has waited for."""
        self.allowed = True
        self._allowance = None
        self._results = results

    def end(self) -> None:
        self.allowed = False
        self._results = {}

    def take(self, key: Hashable) -> Any | None:
        """What came of the work of this key, once."""
        return self._results.pop(key, None)

    def worked_out(self, key: Callable[[], Hashable], compute: Callable[[Allowance], R]) -> R:
        """What a function makes of the things that `key` tells, and of nothing else. Raises Later if it takes long.

        All that one request asks for shares an allowance.
        """
        if not self.allowed:
            return compute(Allowance())
        if self._results and (found := self._results.get(key())) is not None:
            result: R = deepcopy(found)  # it may be changed, and asked for again
            return result
        self._allowance = self._allowance or Allowance(_AT_ONCE)
        try:
            return compute(self._allowance)
        except TakesLong:
            raise Later(key(), lambda: self._in_thread(lambda: compute(Allowance()))) from None

    async def _in_thread(self, compute: Callable[[], Any]) -> Any:
        """Compute something beside the event loop, one at a time: two would keep it waiting twice as long."""
        async with self._alone:
            return await asyncio.to_thread(compute)


class RequestClock:
    """A clock that stands still while a request is answered again. held: since when, None if it goes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.held: datetime | None = None

    def now(self) -> datetime:
        return self.held or self._clock.now()

    def time_ns(self) -> int:
        return self._clock.time_ns()
