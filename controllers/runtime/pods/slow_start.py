"""Slow start: repeat a call in batches of 1, 2, 4, ... that end with the first failure.

If all creates fail for one common reason (quota, admission), only a few are tried instead of five hundred. Source:
slowStartBatch in pkg/controller/replicaset/replica_set.go and pkg/controller/statefulset/stateful_set_control.go.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable


async def slow_start_batch(
    count: int,
    call: Callable[[], Awaitable[None]],
    *,
    initial_batch_size: int = 1,
    max_batch_size: int = sys.maxsize,
) -> tuple[int, Exception | None]:
    """Run `call` up to `count` times, the calls of a batch concurrently. Returns the successes and the first error.

    A batch that has started is completed; after a failure no further batch starts. Cancellation: cancels the calls in
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

        if batch_size == 1:  # always true for the first batch: no task is needed
            await attempt()
        else:
            async with asyncio.TaskGroup() as batch:
                for _ in range(batch_size):
                    batch.create_task(attempt())
        succeeded += batch_size - len(errors)
        if errors:
            return succeeded, errors[0]
        remaining -= batch_size
        batch_size = min(2 * batch_size, remaining, max_batch_size)
    return succeeded, None
