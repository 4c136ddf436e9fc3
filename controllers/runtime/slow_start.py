"""Slow start: do something many times, in batches of 1, 2, 4, ... that end with the first failure.

A create that fails for a reason common to all (quota, admission) is then tried a few times and not five hundred times.
Source: slowStartBatch in pkg/controller/replicaset/replica_set.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def slow_start_batch(
    count: int, call: Callable[[], Awaitable[None]], *, initial_batch_size: int = 1
) -> tuple[int, Exception | None]:
    """Call `call` up to `count` times, each batch at once. Returns how many succeeded, and the first error.

    A batch that has begun is completed; after a failure no further one begins. Cancellation: cancels the calls in
    flight.
    """
    remaining, succeeded = count, 0
    batch_size = min(remaining, initial_batch_size)
    while batch_size > 0:
        errors: list[Exception] = []

        async def attempt(errors: list[Exception] = errors) -> None:
            try:
                await call()
            except Exception as error:
                errors.append(error)

        if batch_size == 1:  # as every first batch is: a task of its own would only cost
            await attempt()
        else:
            async with asyncio.TaskGroup() as batch:
                for _ in range(batch_size):
                    batch.create_task(attempt())
        succeeded += batch_size - len(errors)
        if errors:
            return succeeded, errors[0]
        remaining -= batch_size
        batch_size = min(2 * batch_size, remaining)
    return succeeded, None
