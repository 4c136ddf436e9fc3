"""Work outside the synchronous handling of a request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.devcluster.api.deferred_work import BudgetExceeded, Deferred, DeferredWork, FreezableClock, LoopBudget
from support.set_clock import SetClock


class Outcome:
    def __init__(self, cost: float) -> None:
        self.cost = cost


class Program:
    """A program whose runs cost `cost`."""

    def __init__(self, cost: float) -> None:
        self._cost = cost

    def run(self, values: dict[str, Any], budget: float) -> Outcome:
        return Outcome(self._cost)


def compute(cost: float, budget: LoopBudget) -> list[float]:
    return [budget.run(Program(cost), {}).cost]


def test_each_run_has_an_overhead_in_addition_to_its_cost():
    budget = LoopBudget(100)
    budget.run(Program(40), {})
    budget.run(Program(40), {})
    with pytest.raises(BudgetExceeded):
        budget.run(Program(0), {})


def test_work_is_computed_at_once_while_deferral_is_impossible():
    assert DeferredWork().compute_or_defer(lambda: "key", lambda budget: compute(1e9, budget)) == [1e9]


async def test_expensive_work_is_deferred_and_its_result_reused():
    work = DeferredWork()
    work.begin({})
    assert work.compute_or_defer(lambda: "cheap", lambda budget: compute(1, budget)) == [1]
    with pytest.raises(Deferred) as raised:
        work.compute_or_defer(lambda: "expensive", lambda budget: compute(20_000, budget))
    result = await raised.value.work()
    assert (raised.value.key, result) == ("expensive", [20_000])
    work.begin({"expensive": result})
    reused = work.compute_or_defer(lambda: "expensive", lambda _budget: pytest.fail("computed twice"))
    assert reused == result
    assert reused is not result
    assert (work.take_result("expensive"), work.take_result("expensive")) == (result, None)


def test_clock_stands_still_while_it_is_frozen():
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    inner = SetClock(moment)
    clock = FreezableClock(inner)
    clock.frozen_at = clock.now()
    inner.moment = moment + timedelta(hours=1)
    assert clock.now() == moment
    clock.frozen_at = None
    assert clock.now() == moment + timedelta(hours=1)
