"""What controllers tell about themselves, as protocols: `kubeloop.metrics` implements them with prometheus-client.

Metric names are kube-controller-manager's. May import the standard library only.
"""

from __future__ import annotations

from typing import Protocol


class QueueState(Protocol):
    """What a collector may ask a work queue at the moment of a scrape. Call it on the event loop."""

    def __len__(self) -> int:
        """workqueue_depth: keys that wait for a worker."""
        ...

    def unfinished_work_seconds(self) -> float:
        """workqueue_unfinished_work_seconds: seconds of work in progress, summed over the keys being processed."""
        ...

    def longest_running_processor_seconds(self) -> float:
        """workqueue_longest_running_processor_seconds: age of the oldest piece of work in progress."""
        ...


class QueueMetrics(Protocol):
    """Metrics of one queue; the label `name` is the queue's."""

    def attach(self, queue: QueueState) -> None:
        """Called once by the queue: the gauges are read from it when somebody scrapes."""
        ...

    def added(self) -> None:
        """workqueue_adds_total: one more key was added (a key that waits already does not count again)."""
        ...

    def retried(self) -> None:
        """workqueue_retries_total: one more key was put back, to be added after a delay."""
        ...

    def started(self, waited_seconds: float) -> None:
        """workqueue_queue_duration_seconds: a worker took a key that had waited this long."""
        ...

    def finished(self, worked_seconds: float) -> None:
        """workqueue_work_duration_seconds: a worker gave a key back after this long."""
        ...


class ControllerMetrics(Protocol):
    """Metrics of all controllers. `controller` is "deployment", "replicaset", "replicationmanager", ..."""

    def queue(self, name: str) -> QueueMetrics:
        """The metrics of the queue `name`."""
        ...

    def reconciled(self, controller: str, seconds: float, *, error: bool) -> None:
        """One reconcile took this long and failed, or did not."""
        ...

    def deletion_age_ratio(self, ratio: float) -> None:
        """replicaset_controller_sorting_deletion_age_ratio: of a Pod chosen for deletion, to the youngest ready one."""
        ...

    def stale_sync_skipped(self, controller: str) -> None:
        """replicaset_controller_stale_sync_skips_total: a sync was put off, the caches lag behind our own writes."""
        ...
