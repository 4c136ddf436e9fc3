"""Metrics of the event loop's delay."""

import asyncio
import time

import pytest
from prometheus_client import generate_latest

from kubeloop.process.metrics.loop_lag import LoopLag
from kubeloop.process.metrics.process_metrics import new_registry


def block_loop() -> None:
    time.sleep(0.1)


async def test_blocked_loop_raises_the_worst_delay():
    registry = new_registry()
    lag = LoopLag(registry)
    task = asyncio.create_task(lag.run())
    await asyncio.sleep(0)
    block_loop()
    while lag.worst_seconds == 0.0:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert lag.worst_seconds > 0.05
    page = generate_latest(registry).decode()
    assert f"kubeloop_event_loop_lag_worst_seconds {lag.worst_seconds}" in page
    assert "kubeloop_event_loop_lag_seconds_count 0" not in page
