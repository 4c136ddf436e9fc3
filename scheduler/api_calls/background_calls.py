"""Metrics of API calls that scheduling does not wait for: the feature gate SchedulerAsyncAPICalls.

Status patches are in the background with the gate off, too. Source: backend/api_dispatcher of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from kubeloop.kube.clock import Clock
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.scheduler.metrics import NO_METRICS, BackgroundCall, CallResult, SchedulerMetrics


class _Owner(Protocol):
    """A SchedulerContext."""

    @property
    def clock(self) -> Clock: ...

    @property
    def feature_gates(self) -> FeatureGates: ...

    @property
    def metrics(self) -> SchedulerMetrics: ...


class BackgroundCalls:
    """Reports calls to the metrics; does nothing with the gate off."""

    def __init__(self, owner: _Owner) -> None:
        self._now_ns = owner.clock.time_ns
        self._metrics = owner.metrics if owner.feature_gates.enabled("SchedulerAsyncAPICalls") else NO_METRICS

    def pending(self, call: BackgroundCall, count: int) -> None:
        """Report the number of calls that have not been sent yet."""
        self._metrics.background_calls_pending(call, count)

    @contextmanager
    def sending(self, call: BackgroundCall) -> Iterator[None]:
        """Measure a call. An exception counts as an error."""
        started_ns = self._now_ns()
        result: CallResult = "error"
        try:
            yield
            result = "success"
        finally:
            self._metrics.background_call(call, result, (self._now_ns() - started_ns) / 1e9)
