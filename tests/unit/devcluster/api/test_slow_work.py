"""Handlers that wait for slow work."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from kubeloop.devcluster.api.slow_work import (
    BudgetExceeded,
    ComputeThread,
    HandlerTasks,
    Handling,
    LoopBudget,
    SlowWork,
    Suspended,
    run,
    start,
)


async def immediate() -> int:
    return 1


async def returning(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def failing() -> int:
    await asyncio.sleep(0)
    raise ValueError("no")


class Handler:
    """A handler that adds two results of slow work. ended: True once it has ended, in whatever way."""

    def __init__(self) -> None:
        self.ended = False

    async def add(self) -> int:
        try:
            return await SlowWork(lambda: returning(1)) + await SlowWork(lambda: returning(2))
        finally:
            self.ended = True


def test_handler_without_slow_work_finishes_at_once():
    assert start(immediate()) == 1


async def test_handler_is_run_with_and_without_slow_work():
    assert [await run(Handler().add()), await run(immediate())] == [3, 1]


async def test_suspended_handler_gets_each_result():
    suspended = start(Handler().add())
    assert isinstance(suspended, Suspended)
    assert await suspended() == 3


async def test_suspended_handler_gets_the_exception_of_its_work():
    async def catch() -> str:
        try:
            await SlowWork(failing)
        except ValueError as error:
            return str(error)
        return ""

    suspended = start(catch())
    assert isinstance(suspended, Suspended)
    assert await suspended() == "no"


async def test_exception_of_a_handler_is_raised():
    async def handle() -> int:
        return await SlowWork(failing)

    suspended = start(handle())
    assert isinstance(suspended, Suspended)
    with pytest.raises(ValueError, match="no"):
        await suspended()


async def test_cancelled_handler_ends_at_its_work():
    handler = Handler()
    suspended = start(handler.add())
    assert isinstance(suspended, Suspended)
    task = asyncio.create_task(suspended())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert handler.ended


async def test_handlers_without_a_caller_finish_at_once_or_in_a_task():
    results: list[int] = []

    async def note(handling: Handling[int]) -> None:
        results.append(await handling)

    handlers = HandlerTasks()
    handlers.start(note(Handler().add()))
    handlers.start(note(immediate()))
    assert results == [1]
    task = asyncio.create_task(handlers.run())
    async with asyncio.timeout(60):
        while len(results) < 2:
            await asyncio.sleep(0)
    task.cancel()
    assert results == [1, 3]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_computations_run_in_a_thread_one_at_a_time(is_cancelled: bool):
    thread, loop = ComputeThread(), asyncio.get_running_loop()
    started, may_end = [asyncio.Event(), asyncio.Event()], threading.Event()

    def compute(event: asyncio.Event) -> bool:
        loop.call_soon_threadsafe(event.set)
        return may_end.wait(60)

    first, second = [asyncio.create_task(thread.run(partial(compute, event))) for event in started]
    await started[0].wait()
    if is_cancelled:
        first.cancel()
    for _ in range(100):
        await asyncio.sleep(0)
    assert (first.cancelled(), started[1].is_set()) == (is_cancelled, False)
    may_end.set()
    assert await second


class Outcome:
    def __init__(self, cost: float) -> None:
        self.cost = cost


class Program:
    """A program whose runs cost `cost`."""

    def __init__(self, cost: float) -> None:
        self._cost = cost

    def run(self, values: dict[str, Any], budget: float) -> Outcome:
        return Outcome(self._cost)


def test_each_run_has_an_overhead_in_addition_to_its_cost():
    budget = LoopBudget(100)
    budget.run(Program(40), {})
    budget.run(Program(40), {})
    with pytest.raises(BudgetExceeded):
        budget.run(Program(0), {})
