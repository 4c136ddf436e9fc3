"""Event loop lag metrics: kubeloop_event_loop_lag_seconds and its maximum."""

from __future__ import annotations

import asyncio

from kubeloop.process.metrics.registry import Gauge, Histogram, Registration

_LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class LoopLag:
    """How late the event loop runs what is due: kubeloop_event_loop_lag_seconds, and the worst since the start
    (DESIGN.md, decision 9). What holds the loop for less than a sample's distance may be seen in part, or not."""

    _EVERY_SECONDS = 0.025

    def __init__(self, registry: Registration) -> None:
        self._lag = Histogram(
            "kubeloop_event_loop_lag_seconds",
            "How late the event loop ran a timer, sampled forty times a second.",
            buckets=_LAG_BUCKETS,
            registry=registry,
        )
        self.worst_seconds = 0.0
        Gauge(
            "kubeloop_event_loop_lag_worst_seconds",
            "The latest that the event loop ran a timer since the process started.",
            registry=registry,
        ).set_function(lambda: self.worst_seconds)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + self._EVERY_SECONDS
            await asyncio.sleep(self._EVERY_SECONDS)
            late = max(0.0, loop.time() - due)
            self.worst_seconds = max(self.worst_seconds, late)
            self._lag.observe(late)
