"""Limit of concurrent writes, and the order in which they begin. Time is virtual."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.kube.client.write_gate import FEWEST, MOST, SHORT_SECONDS, SLOW_FACTOR, Rank, WriteGate, WriteLimit
from support.simulation.write_gates import FixedLimit

pytestmark = pytest.mark.virtual_time

UNLIMITED = float("inf")


def bind(limit: WriteLimit, milliseconds: float, *, count: int = 1, at: float = 100.0) -> float:
    """Report bind requests of this duration, and return the limit."""
    for _ in range(count):
        limit.bound(milliseconds / 1000, at)
    return limit.value(at)


@pytest.fixture
def limit() -> WriteLimit:
    """A limit of a server that binds pods in 2 ms."""
    limit = WriteLimit()
    bind(limit, 2.0)
    return limit


def test_there_is_no_limit_before_the_first_bind_request():
    assert WriteLimit().value(100.0) == UNLIMITED


def test_limit_falls_while_bind_requests_are_slow_and_rises_when_they_are_not(limit):
    assert bind(limit, 30.0, count=50) == FEWEST
    assert FEWEST < bind(limit, 2.0, count=10) < MOST
    assert bind(limit, 2.0, count=40) == MOST


@pytest.mark.parametrize(("fastest", "target"), [(0.5, SHORT_SECONDS * 1000), (2.0, 2.0 * SLOW_FACTOR)])
def test_limit_settles_where_bind_requests_take_the_target(fastest, target):
    limit = WriteLimit()
    bind(limit, fastest)
    before = bind(limit, 30.0, count=10)
    assert FEWEST < before < MOST
    assert bind(limit, target, count=100) == pytest.approx(before)
    assert bind(limit, target * 1.1) < before


def test_requests_to_a_distant_server_are_not_slow():
    limit = WriteLimit()
    assert bind(limit, 80.0, count=100) == MOST
    assert bind(limit, 200.0, count=100) == MOST


def test_clock_that_was_set_changes_nothing(limit):
    before = bind(limit, 30.0, count=10)
    assert bind(limit, -5000.0) == before
    assert bind(limit, 30.0) < before


def test_limit_ends_a_tenth_of_a_second_after_the_last_bind_request(limit):
    assert bind(limit, 30.0, count=1000) == FEWEST
    assert limit.value(100.09) == FEWEST
    assert limit.value(100.11) == UNLIMITED
    assert bind(limit, 30.0, at=100.2) > MOST / 2  # starts anew


def test_server_that_became_slower_for_good_is_not_busy_after_two_minutes(limit):
    for seconds in range(1, 61):
        bind(limit, 30.0, at=100.0 + seconds, count=30)
    assert bind(limit, 30.0, at=161.0, count=1000) == FEWEST
    assert bind(limit, 30.0, at=222.0, count=1000) == MOST


async def started(gate: WriteGate, rank: Rank, count: int) -> list[asyncio.Task[None]]:
    """Return the tasks of `count` calls of begin(), after they have run as far as they can."""
    tasks = [asyncio.create_task(gate.begin(rank)) for _ in range(count)]
    await settle()
    return tasks


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def states(tasks: list[asyncio.Task[None]]) -> list[bool]:
    return [task.done() for task in tasks]


@pytest.fixture
async def gate() -> WriteGate:
    """A gate where as much runs as the limit permits."""
    gate = WriteGate(FixedLimit())
    assert all(states(await started(gate, Rank.RECONCILE, FixedLimit.VALUE)))
    return gate


async def test_waiting_work_begins_in_order_of_rank(gate):
    tasks = [task for rank in (Rank.EVENT, Rank.RECONCILE, Rank.POD_CREATION) for task in await started(gate, rank, 1)]
    for expected in ([False, False, True], [False, True, True], [True, True, True]):
        gate.end()
        await settle()
        assert states(tasks) == expected


async def test_work_does_not_overtake_that_of_its_rank(gate):
    gate._limit.VALUE = FixedLimit.VALUE + 1
    (first,) = await started(gate, Rank.RECONCILE, 1)
    (second,) = await started(gate, Rank.RECONCILE, 1)
    gate._limit.VALUE += 1
    assert states(await started(gate, Rank.RECONCILE, 1) + await started(gate, Rank.POD_CREATION, 1)) == [False, True]
    assert states([first, second]) == [True, False]


async def test_all_that_waits_begins_when_the_limit_has_ended(gate):
    tasks = await started(gate, Rank.EVENT, 50)
    gate._limit.VALUE = UNLIMITED
    gate.end()
    await settle()
    assert all(states(tasks))


async def test_cancelled_wait_does_not_take_the_turn_of_another(gate):
    tasks = await started(gate, Rank.EVENT, 2)
    tasks[0].cancel()
    await settle()
    gate.end()
    await settle()
    assert tasks[0].cancelled()
    assert tasks[1].done()


async def test_work_cancelled_when_it_may_begin_leaves_its_place_to_the_next(gate):
    tasks = await started(gate, Rank.EVENT, 2)
    gate.end()
    tasks[0].cancel()  # before it continues
    await settle()
    assert tasks[0].cancelled()
    assert tasks[1].done()


async def test_no_other_work_takes_the_place_of_that_which_may_begin(gate):
    tasks = await started(gate, Rank.EVENT, 1)
    gate.end()
    (other,) = await started(gate, Rank.POD_CREATION, 1)
    assert tasks[0].done()
    assert not other.done()
