"""Event loop lag metrics: kubeloop_event_loop_lag_seconds and its maximum."""

from __future__ import annotations

import asyncio

from kubeloop.kube.clock import is_virtual
from kubeloop.process.metrics.metrics_registry import PrometheusGauge, PrometheusHistogram, Registerer

_LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class LoopLag:
    """Delay of the event loop's timers: kubeloop_event_loop_lag_seconds, and the maximum since the start.

    A task that blocks the loop for less than the sampling interval may be recorded in part, or not.
    """

    _INTERVAL_SECONDS = 0.025

    def __init__(self, registry: Registerer) -> None:
        self._lag = PrometheusHistogram(
            "kubeloop_event_loop_lag_seconds",
            "Delay of an event loop timer in seconds, sampled forty times a second.",
            buckets=_LAG_BUCKETS,
            registry=registry,
        )
        self.worst_seconds = 0.0
        PrometheusGauge(
            "kubeloop_event_loop_lag_worst_seconds",
            "Longest delay of an event loop timer since the process started.",
            registry=registry,
        ).set_function(lambda: self.worst_seconds)

    async def run(self) -> None:
        """Sample until cancelled. In virtual time, no timer is late."""
        loop = asyncio.get_running_loop()
        while not is_virtual(loop):
            due = loop.time() + self._INTERVAL_SECONDS
            await asyncio.sleep(self._INTERVAL_SECONDS)
            late = max(0.0, loop.time() - due)
            self.worst_seconds = max(self.worst_seconds, late)
            self._lag.observe(late)
