"""The work queue, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.controllers.runtime.queue.rate_limiter import (
    ItemExponentialFailureRateLimiter,
    backoff_seconds,
    controller_rate_limiter,
)
from kubeloop.controllers.runtime.queue.work_queue import QueueShutDown, WorkQueue
from kubeloop.testing import virtual_time
from support.simulation.metric_values import RecordedMetrics

pytestmark = pytest.mark.virtual_time


async def test_keys_are_returned_once_in_order_of_arrival():
    queue = WorkQueue()
    for key in ("a", "b", "a", "c"):
        queue.add(key)
    assert list(queue._ready) == ["a", "b", "c"]
    assert [await queue.get() for _ in range(3)] == ["a", "b", "c"]
    assert len(queue) == 0


async def test_key_in_processing_is_not_returned_until_done():
    queue = WorkQueue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.check()
    assert list(queue._ready) == []
    queue.done("a")
    assert list(queue._ready) == ["a"]
    assert await queue.get() == "a"
    queue.done("a")
    assert list(queue._ready) == []


async def test_delayed_key_becomes_ready_at_its_time():
    queue = WorkQueue()
    queue.add_after("a", 5.0)
    await asyncio.sleep(4.9)
    assert list(queue._ready) == []
    await asyncio.sleep(0.2)
    assert list(queue._ready) == ["a"]


async def test_earliest_of_several_delays_is_used():
    queue = WorkQueue()
    queue.add_after("a", 5.0)
    queue.add_after("a", 1.0)
    queue.add_after("a", 9.0)
    queue.check()
    await asyncio.sleep(1.1)
    assert list(queue._ready) == ["a"]
    await queue.get()
    queue.done("a")
    await asyncio.sleep(20.0)
    assert list(queue._ready) == []


async def test_delay_of_zero_or_less_adds_key_at_once():
    queue = WorkQueue()
    queue.add_after("a", 0.0)
    queue.add_after("b", -1.0)
    assert list(queue._ready) == ["a", "b"]


async def test_backoff_grows_per_key_until_forgotten():
    queue = WorkQueue(limiter=ItemExponentialFailureRateLimiter())
    for failures, seconds in enumerate((0.005, 0.010, 0.020)):
        assert queue.num_requeues("a") == failures
        before = asyncio.get_running_loop().time()
        queue.add_rate_limited("a")
        await queue.get()
        queue.done("a")
        assert asyncio.get_running_loop().time() - before == pytest.approx(seconds, abs=0.001)
    queue.forget("a")
    assert queue.num_requeues("a") == 0


async def test_postponed_keys_take_no_token_from_failed_keys():
    queue = WorkQueue(limiter=controller_rate_limiter())
    for number in range(500):
        queue.add_rate_limited(f"early-{number}", failed=False)
    queue.add_rate_limited("failed")
    await asyncio.sleep(0.01)
    assert "failed" in list(queue._ready)
    assert queue.num_requeues("early-1") == 0


@pytest.mark.parametrize("failed", [True, False], ids=["failed", "postponed"])
async def test_forgotten_key_begins_with_the_first_delay(failed):
    queue = WorkQueue()
    loop, delays = asyncio.get_running_loop(), []
    for forget in (False, False, False, True):
        if forget:
            queue.forget("a")
        start = loop.time()
        queue.add_rate_limited("a", failed=failed)
        queue.done(await queue.get())
        delays.append(loop.time() - start)
    assert delays[0] < delays[1] < delays[2]
    assert delays[3] == pytest.approx(delays[0])


async def test_cancelled_get_takes_no_key_and_wakes_next_getter():
    queue = WorkQueue()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(queue.get())
        second = tasks.create_task(queue.get())
        await asyncio.sleep(0.1)
        queue.add("a")
        first.cancel()  # after it was woken for "a", before it ran
        await asyncio.sleep(0.1)
        assert second.done()
        assert second.result() == "a"


async def test_shut_down_queue_returns_ready_keys_and_rejects_new_ones():
    queue = WorkQueue()
    queue.add("a")
    queue.add_after("later", 1.0)
    queue.shut_down()
    queue.add("b")
    assert await queue.get() == "a"
    with pytest.raises(QueueShutDown):
        await queue.get()


async def test_shut_down_ends_pending_get_calls():
    queue = WorkQueue()

    async def worker() -> str:
        try:
            return await queue.get()
        except QueueShutDown:
            return "ended"

    async with asyncio.TaskGroup() as tasks:
        workers = [tasks.create_task(worker()) for _ in range(3)]
        await asyncio.sleep(0.1)
        queue.shut_down()
    assert [worker.result() for worker in workers] == ["ended"] * 3


async def test_metrics_record_queue_and_work_durations():
    metrics = RecordedMetrics()
    queue = WorkQueue("q", families=metrics)
    queue.add_after("a", 1.0)
    await asyncio.sleep(3.0)
    await queue.get()
    queue.add("b")
    await queue.get()
    await asyncio.sleep(2.0)
    queue.add("c")
    assert queue.unfinished_work_seconds() == pytest.approx(4.0)
    assert queue.longest_running_processor_seconds() == pytest.approx(2.0)
    assert metrics.values("workqueue_") == {
        "adds_total,q": 3,
        "retries_total,q": 1,
        "queue_duration_seconds_count,q": 2,
        "work_duration_seconds_count,q": 0,
        "depth,q": 1,
        "unfinished_work_seconds,q": pytest.approx(4.0),
        "longest_running_processor_seconds,q": pytest.approx(2.0),
    }
    queue.done("a")
    assert metrics.sums("workqueue_") == {
        "queue_duration_seconds_sum,q": pytest.approx(2.0),
        "work_duration_seconds_sum,q": pytest.approx(2.0),
    }


steps = st.lists(
    st.tuples(st.sampled_from(["add", "after", "get", "done", "sleep"]), st.sampled_from("abcd"), st.floats(0, 3)),
    max_size=40,
)


@settings(max_examples=60)
@given(steps=steps)
def test_random_operations_lose_and_duplicate_no_key(steps):
    async def main() -> None:
        queue = WorkQueue()
        added: set[str] = set()
        processing: list[str] = []
        for step, key, seconds in steps:
            match step:
                case "add":
                    queue.add(key)
                    added.add(key)
                case "after":
                    queue.add_after(key, seconds)
                    added.add(key)
                case "get" if len(queue):
                    taken = await queue.get()
                    assert taken not in processing
                    processing.append(taken)
                case "done" if processing:
                    queue.done(processing.pop(0))
                case "sleep":
                    await asyncio.sleep(seconds)
            queue.check()
        await asyncio.sleep(4.0)
        returned = set(processing)
        for key in processing:
            queue.done(key)
        while len(queue):
            key = await queue.get()
            returned.add(key)
            queue.done(key)
        assert returned <= added

    virtual_time.run(main())


@given(failures=st.integers(0, 5000))
def test_backoff_is_monotonic_and_capped(failures):
    assert 0.005 <= backoff_seconds(failures) <= backoff_seconds(failures + 1) <= 1000.0


async def test_reasons_are_distinct_and_cleared_by_pop():
    queue = WorkQueue()
    for reason in ("pod added", "pod deleted", "pod added", ""):
        queue.add("ns/web", reason)
    await queue.get()
    queue.add("ns/web", "pod changed")
    assert queue.pop_reasons("ns/web") == "pod added, pod deleted, pod changed"
    assert queue.pop_reasons("ns/web") == "retry or time"


async def test_reasons_per_key_are_limited_to_four():
    queue = WorkQueue()
    for number in range(6):
        queue.add("ns/web", str(number))
    assert queue.pop_reasons("ns/web") == "0, 1, 2, 3"
