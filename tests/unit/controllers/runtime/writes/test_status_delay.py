"""Postponed status writes, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.controllers.runtime.queue.work_queue import WorkQueue
from kubeloop.controllers.runtime.writes.status_delay import StatusDelay

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def queue() -> WorkQueue:
    return WorkQueue()


async def taken(queue: WorkQueue) -> list[str]:
    """Return the ready keys, which are reconciled without a result."""
    keys = [await queue.get() for _ in range(len(queue))]
    for key in keys:
        queue.done(key)
    return keys


async def test_status_is_postponed_once_until_its_key_is_enqueued(queue):
    delay = StatusDelay[str](queue, 0.5)
    assert delay.postpone("a", "old")
    await asyncio.sleep(0.3)
    assert delay.postpone("a", "old"), "a second reconcile does not extend the delay"
    await asyncio.sleep(0.19)
    assert await taken(queue) == []
    await asyncio.sleep(0.02)
    assert await taken(queue) == ["a"]
    assert not delay.postpone("a", "old")
    await asyncio.sleep(10)
    assert await taken(queue) == [], "enqueued once"
    delay.forget("a")
    assert delay.postpone("a", "old")


async def test_postponed_status_is_pending_until_it_is_forgotten(queue):
    delay = StatusDelay[str](queue, 0.5)
    assert delay.pending("a") is None
    assert delay.postpone("a", "first")
    assert delay.postpone("a", "second")
    await asyncio.sleep(1)
    assert not delay.postpone("a", "third")
    assert delay.pending("a") == "second"
    delay.forget("a")
    assert delay.pending("a") is None


async def test_written_status_is_not_enqueued(queue):
    delay = StatusDelay[str](queue, 0.5)
    for key in ("a", "b", "c"):
        assert delay.postpone(key, "old")
        await asyncio.sleep(0.1)
    delay.forget("a")
    delay.forget("c")
    assert delay.postpone("c", "old"), "a new delay begins"
    await asyncio.sleep(0.31)
    assert await taken(queue) == ["b"]
    await asyncio.sleep(0.2)
    assert await taken(queue) == ["c"]


async def test_without_delay_nothing_is_postponed(queue):
    assert not StatusDelay[str](queue, 0.0).postpone("a", "old")
