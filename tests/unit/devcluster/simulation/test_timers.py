"""Timer queue: order, cancellation, due times."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.devcluster.simulation.timers import TimerQueue


def act(_argument: object) -> None:
    """Do nothing."""


def due_arguments(timers: TimerQueue, now: float) -> list[object]:
    arguments = []
    while (timer := timers.pop(now)) is not None:
        arguments.append(timer.argument)
    return arguments


def test_due_timers_are_popped_by_time_and_insertion_order():
    timers = TimerQueue()
    for when, name in ((2.0, "b"), (1.0, "a"), (2.0, "c"), (3.0, "d")):
        timers.at(when, act, name)
    assert timers.next_due() == 1.0
    assert due_arguments(timers, 2.0) == ["a", "b", "c"]
    assert timers.next_due() == 3.0


def test_cancelled_timer_is_skipped():
    timers = TimerQueue()
    first = timers.at(1.0, act, "first")
    timers.at(2.0, act, "second")
    first.cancel()
    first.cancel()
    assert timers.next_due() == 2.0
    assert due_arguments(timers, 5.0) == ["second"]
    assert timers.next_due() is None


@pytest.mark.virtual_time
async def test_wait_ends_with_the_next_timer_or_the_event():
    loop, wake, timers = asyncio.get_running_loop(), asyncio.Event(), TimerQueue()
    timers.at(5.0, act)
    await timers.wait(wake)
    assert loop.time() == 5.0
    assert timers.pop(5.0) is not None
    loop.call_later(2.0, wake.set)
    await timers.wait(wake)
    assert loop.time() == 7.0
    assert not wake.is_set()
