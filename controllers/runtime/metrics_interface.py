"""Interface for the metrics of the controllers; `kubeloop.process.metrics` implements it.

Metric names are those of kube-controller-manager. May import the standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Family(Protocol[T_co]):
    """A metric with labels."""

    def labels(self, *values: str) -> T_co:
        """Return the metric with these label values, in the order of the labels."""
        ...


class CounterMetric(Protocol):
    def inc(self, amount: float = 1.0) -> None: ...


class GaugeMetric(Protocol):
    def set(self, value: float) -> None: ...


class HistogramMetric(Protocol):
    def observe(self, value: float) -> None: ...


class NoMetric:
    """A metric that records nothing, with any labels."""

    def labels(self, *_values: str) -> Self:
        return self

    def inc(self, amount: float = 1.0) -> None: ...

    def set(self, value: float) -> None: ...

    def observe(self, value: float) -> None: ...


class MetricFamilies:
    """Metrics of one controller, with kube-controller-manager's names, which that controller declares itself.

    The same name returns the same family, so that two controllers may share it. This base class records nothing.
    """

    def counter(self, _name: str, _documentation: str, _labels: Sequence[str] = ()) -> Family[CounterMetric]:
        return NoMetric()

    def gauge(self, _name: str, _documentation: str, _labels: Sequence[str] = ()) -> Family[GaugeMetric]:
        return NoMetric()

    def histogram(
        self, _name: str, _documentation: str, _labels: Sequence[str] = (), *, buckets: Sequence[float]
    ) -> Family[HistogramMetric]:
        del buckets
        return NoMetric()


class QueueState(Protocol):
    """State of a work queue that a metrics collector reads during a scrape. Call it on the event loop."""

    def __len__(self) -> int:
        """workqueue_depth: keys that are ready for a worker."""
        ...

    def unfinished_work_seconds(self) -> float:
        """workqueue_unfinished_work_seconds: age of the work in progress, summed over the keys being processed."""
        ...

    def longest_running_processor_seconds(self) -> float:
        """workqueue_longest_running_processor_seconds: age of the oldest work in progress."""
        ...


class QueueMetrics:
    """Metrics of one queue; the label `name` is the queue's name. This base class ignores them."""

    def attach(self, queue: QueueState) -> None:
        """Called once by the queue; each scrape reads the gauges from it."""

    def added(self) -> None:
        """workqueue_adds_total: a key was added (a key that is queued already does not count again)."""

    def retried(self) -> None:
        """workqueue_retries_total: a key was scheduled to be added after a delay."""

    def started(self, waited_seconds: float) -> None:
        """workqueue_queue_duration_seconds: a worker took a key that had been queued for `waited_seconds`."""

    def finished(self, worked_seconds: float) -> None:
        """workqueue_work_duration_seconds: a worker finished a key after `worked_seconds`."""


NO_QUEUE_METRICS = QueueMetrics()


class ControllerMetrics(MetricFamilies):
    """Metrics of all controllers; this base class ignores them.

    `controller` is "deployment", "replicaset", "replicationmanager", ...
    """

    def queue(self, name: str) -> QueueMetrics:
        """Return the metrics of the queue `name`."""
        del name
        return NO_QUEUE_METRICS

    def reconciled(self, controller: str, seconds: float, *, error: bool) -> None:
        """Record one reconcile, its duration and whether it failed."""

    def deletion_age_ratio(self, ratio: float) -> None:
        """replicaset_controller_sorting_deletion_age_ratio: age of a Pod chosen for deletion / youngest ready Pod."""

    def stale_sync_skipped(self, controller: str, group_resource: str) -> None:
        """*_controller_stale_sync_skips_total: a sync was postponed because caches lag behind own writes.

        Not counted for controllers without this metric in kube-controller-manager.
        """


NO_CONTROLLER_METRICS = ControllerMetrics()
