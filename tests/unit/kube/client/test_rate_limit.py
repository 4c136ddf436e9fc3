"""The token bucket. Time is virtual."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.kube.client.rate_limit import TokenBucket

pytestmark = pytest.mark.virtual_time


async def test_burst_passes_at_once_then_rate_applies():
    bucket, loop = TokenBucket(qps=2.0, burst=3), asyncio.get_running_loop()
    times = []
    for _ in range(6):
        await bucket.take()
        times.append(loop.time())
    assert times == pytest.approx([0, 0, 0, 0.5, 1.0, 1.5])


async def test_unused_tokens_accumulate_up_to_burst():
    bucket = TokenBucket(qps=1.0, burst=2)
    assert [bucket.try_take(0.0) for _ in range(3)] == [True, True, False]
    assert [bucket.try_take(100.0) for _ in range(3)] == [True, True, False]
    assert [bucket.try_take(101.5) for _ in range(2)] == [True, False]


async def test_cancelled_take_returns_token():
    bucket = TokenBucket(qps=1.0, burst=1)
    await bucket.take()
    waiting = asyncio.ensure_future(bucket.take())
    await asyncio.sleep(0.1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    before = asyncio.get_running_loop().time()
    await bucket.take()
    assert asyncio.get_running_loop().time() - before == pytest.approx(0.9)
