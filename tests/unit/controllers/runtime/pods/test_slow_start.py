"""Slow start: batches that double in size and end with the first failure."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.controllers.runtime.pods.slow_start import slow_start_batch


class Calls:
    """Records the number of calls per batch; the calls with numbers in `failing` raise."""

    def __init__(self, failing: set[int]) -> None:
        self.failing = failing
        self.count = 0
        self.in_flight = 0
        self.batches: list[int] = []

    async def call(self) -> None:
        if not self.in_flight:
            self.batches.append(0)
        self.batches[-1] += 1
        self.in_flight += 1
        self.count += 1
        number = self.count
        await asyncio.sleep(0)
        self.in_flight -= 1
        if number in self.failing:
            raise ValueError(f"call {number}")


@pytest.mark.parametrize(
    ("count", "initial", "failing", "batches", "succeeded", "error"),
    [
        pytest.param(0, 1, set(), [], 0, None, id="nothing to do"),
        pytest.param(10, 1, set(), [1, 2, 4, 3], 10, None, id="batches double"),
        pytest.param(5, 8, set(), [5], 5, None, id="initial batch is limited by the count"),
        pytest.param(10, 1, {1}, [1], 0, "call 1", id="first call fails"),
        pytest.param(10, 1, {5, 7}, [1, 2, 4], 5, "call 5", id="started batch is completed"),
    ],
)
async def test_slow_start_batch(count, initial, failing, batches, succeeded, error):
    calls = Calls(failing)
    result = await slow_start_batch(count, calls.call, initial_batch_size=initial)
    assert calls.batches == batches
    assert (result[0], str(result[1]) if result[1] else None) == (succeeded, error)


async def test_batches_are_limited():
    calls = Calls(failing=set())
    assert await slow_start_batch(12, calls.call, max_batch_size=3) == (12, None)
    assert calls.batches == [1, 2, 3, 3, 3]
