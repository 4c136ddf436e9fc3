"""Context shared by all controllers of a process. Source: ControllerContext of kube-controller-manager."""

from __future__ import annotations

import msgspec

from kubeloop.controllers.runtime.metrics_interface import ControllerMetrics
from kubeloop.controllers.runtime.rate_limiter import RateLimiter
from kubeloop.controllers.runtime.work_queue import WorkQueue
from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.client.api_client import Client
from kubeloop.kube.clock import Clock
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.tracing.recording.reconcile_recorder import ReconcileRecorder


class ControllerContext(msgspec.Struct, frozen=True):
    """Client, informers, clock, recorder of traces and metrics of all controllers."""

    client: Client
    informers: InformerFactory
    clock: Clock
    traces: ReconcileRecorder
    metrics: ControllerMetrics | None = None
    feature_gates: FeatureGates = DEFAULT_FEATURE_GATES

    def new_queue(self, name: str, limiter: RateLimiter | None = None) -> WorkQueue:
        """Return a work queue with metrics; without a limiter it has the default one."""
        metrics = self.metrics.queue(name) if self.metrics is not None else None
        return WorkQueue(name, limiter=limiter, metrics=metrics, seconds=self.seconds)

    def seconds(self) -> float:
        """Return the clock's time in seconds, for durations in metrics.

        The event loop's own clock may advance in whole milliseconds only.
        """
        return self.clock.time_ns() / 1e9
