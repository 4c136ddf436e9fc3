"""The pace of reconciles, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.controllers.runtime.queue.reconcile_pace import FEWEST, MAX_WAIT_SECONDS, ReconcilePace

pytestmark = pytest.mark.virtual_time


async def begun(pace: ReconcilePace, count: int, *, creates_pods: bool = False) -> list[asyncio.Task[None]]:
    """Return the tasks of `count` calls of begin(), after they have run as far as they can."""
    tasks = [asyncio.create_task(pace.begin(creates_pods=creates_pods)) for _ in range(count)]
    await settle()
    return tasks


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def states(tasks: list[asyncio.Task[None]]) -> list[bool]:
    return [task.done() for task in tasks]


@pytest.fixture
def busy_pace() -> ReconcilePace:
    return ReconcilePace(server_is_busy=lambda: True)


async def test_reconciles_wait_for_a_turn_of_the_scheduler():
    pace = ReconcilePace(has_urgent_work=lambda: True)
    tasks = await begun(pace, 3)
    assert states(tasks) == [False] * 3
    pace.resume()
    await settle()
    assert states(tasks) == [True] * 3
    assert states(await begun(pace, 1)) == [False]


async def test_reconcile_waits_for_the_scheduler_for_limited_time():
    loop = asyncio.get_running_loop()
    began = loop.time()
    await ReconcilePace(has_urgent_work=lambda: True).begin()
    assert loop.time() - began == pytest.approx(MAX_WAIT_SECONDS)


async def test_reconcile_does_not_begin_at_the_end_of_another_while_pods_wait_for_the_scheduler():
    is_urgent = False
    pace = ReconcilePace(has_urgent_work=lambda: is_urgent)
    await begun(pace, 1)
    is_urgent = True
    tasks = await begun(pace, 1)
    pace.end()
    await settle()
    assert states(tasks) == [False]


async def test_reconciles_do_not_wait_for_each_other_while_server_is_idle():
    assert states(await begun(ReconcilePace(), 20)) == [True] * 20


async def test_few_reconciles_run_while_server_is_busy(busy_pace):
    tasks = await begun(busy_pace, FEWEST + 3)
    assert states(tasks) == [True] * FEWEST + [False] * 3
    busy_pace.end()
    await settle()
    assert states(tasks) == [True] * (FEWEST + 1) + [False] * 2


async def test_reconcile_waits_for_others_for_limited_time(busy_pace):
    tasks = await begun(busy_pace, FEWEST + 3)
    await asyncio.sleep(MAX_WAIT_SECONDS * 0.9)
    assert states(tasks) == [True] * FEWEST + [False] * 3
    await asyncio.sleep(MAX_WAIT_SECONDS * 0.2)
    assert all(states(tasks))
    for _ in range(3):
        busy_pace.end()
    assert states(await begun(busy_pace, 1)) == [False]
    busy_pace.end()
    assert states(await begun(busy_pace, 1)) == [False]  # after the one that has waited


async def test_waiting_reconciles_that_create_pods_begin_first(busy_pace):
    await begun(busy_pace, FEWEST)
    others = await begun(busy_pace, 2)
    creating = await begun(busy_pace, 2, creates_pods=True)
    for expected in ([True, False, False, False], [True, True, False, False], [True, True, True, False]):
        busy_pace.end()
        await settle()
        assert states(creating + others) == expected


async def test_reconcile_does_not_overtake_waiting_ones_that_create_pods():
    busy = True
    pace = ReconcilePace(server_is_busy=lambda: busy)
    await begun(pace, FEWEST)
    creating = await begun(pace, 1, creates_pods=True)
    busy = False
    assert states(await begun(pace, 1)) == [False]
    pace.end()
    pace.end()
    await settle()
    assert states(creating) == [True]


async def test_reconciles_that_run_when_server_becomes_busy_are_replaced_by_fewer():
    busy = False
    pace = ReconcilePace(server_is_busy=lambda: busy)
    await begun(pace, 3 * FEWEST)
    busy = True
    tasks = await begun(pace, 30)  # each reduces the limit
    for _ in range(2 * FEWEST):
        pace.end()
    await settle()
    assert not any(states(tasks))
    pace.end()
    await settle()
    assert states(tasks) == [True] + [False] * 29


async def test_limit_grows_when_server_is_no_longer_busy(busy_pace):
    busy = True
    pace = ReconcilePace(server_is_busy=lambda: busy)
    await begun(pace, FEWEST + 1)
    await asyncio.sleep(MAX_WAIT_SECONDS * 2)
    busy = False
    for _ in range(200):
        await pace.begin()
    for _ in range(200):
        pace.end()
    assert all(states(await begun(pace, 3 * FEWEST)))


async def test_cancelled_wait_does_not_take_the_turn_of_another(busy_pace):
    tasks = await begun(busy_pace, FEWEST + 2)
    tasks[FEWEST].cancel()
    await settle()
    busy_pace.end()
    await settle()
    assert tasks[FEWEST].cancelled()
    assert tasks[FEWEST + 1].done()


async def test_reconcile_cancelled_when_it_may_begin_leaves_its_place_to_the_next(busy_pace):
    tasks = await begun(busy_pace, FEWEST + 2)
    busy_pace.end()
    tasks[FEWEST].cancel()  # before it continues
    await settle()
    assert tasks[FEWEST].cancelled()
    assert tasks[FEWEST + 1].done()


async def test_no_other_reconcile_takes_the_place_of_the_one_that_may_begin(busy_pace):
    tasks = await begun(busy_pace, FEWEST + 1)
    busy_pace.end()
    (other,) = await begun(busy_pace, 1, creates_pods=True)
    assert tasks[FEWEST].done()
    assert not other.done()
