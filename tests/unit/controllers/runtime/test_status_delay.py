"""Postponed status writes, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.controllers.runtime.status_delay import StatusDelay
from kubeloop.controllers.runtime.work_queue import WorkQueue

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
    delay = StatusDelay(queue, 0.5)
    assert delay.postpone("a")
    await asyncio.sleep(0.3)
    assert delay.postpone("a"), "a second reconcile does not extend the delay"
    await asyncio.sleep(0.19)
    assert await taken(queue) == []
    await asyncio.sleep(0.02)
    assert await taken(queue) == ["a"]
    assert not delay.postpone("a")
    await asyncio.sleep(10)
    assert await taken(queue) == [], "enqueued once"
    delay.forget("a")
    assert delay.postpone("a")


async def test_written_status_is_not_enqueued(queue):
    delay = StatusDelay(queue, 0.5)
    for key in ("a", "b", "c"):
        assert delay.postpone(key)
        await asyncio.sleep(0.1)
    delay.forget("a")
    delay.forget("c")
    assert delay.postpone("c"), "a new delay begins"
    await asyncio.sleep(0.31)
    assert await taken(queue) == ["b"]
    await asyncio.sleep(0.2)
    assert await taken(queue) == ["c"]


async def test_without_delay_nothing_is_postponed(queue):
    assert not StatusDelay(queue, 0.0).postpone("a")
