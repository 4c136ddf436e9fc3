"""workqueue_* and reconcile metrics, with the names of kube-controller-manager."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kubeloop.controllers.runtime.metrics_interface import ControllerMetrics, QueueMetrics, QueueState
from kubeloop.process.metrics.metrics_registry import (
    PrometheusCounter,
    PrometheusGauge,
    PrometheusHistogram,
    Registerer,
)

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

F = TypeVar("F")

# Source: k8s.io/component-base/metrics/prometheus/workqueue: ExponentialBuckets(10e-9, 10, 12)
_QUEUE_BUCKETS = tuple(1e-8 * 10**power for power in range(12))
_RECONCILE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# Source: pkg/controller/replicaset/metrics: ExponentialBuckets(0.25, 2, 6)
_DELETION_AGE_RATIO_BUCKETS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


class PrometheusControllerMetrics(ControllerMetrics):
    """workqueue_*, reconcile durations and errors, and metrics of the ReplicaSet controller."""

    def __init__(self, registry: Registerer) -> None:
        self._registry = registry
        self._families: dict[str, Any] = {}
        self._queues = _QueueFamilies(registry)
        self._seconds = PrometheusHistogram(
            "kubeloop_reconcile_duration_seconds",
            "Duration of reconciles in seconds, by controller.",
            ["controller"],
            buckets=_RECONCILE_BUCKETS,
            registry=registry,
        )
        self._errors = PrometheusCounter(
            "kubeloop_reconcile_errors_total",
            "Number of failed reconciles, by controller.",
            ["controller"],
            registry=registry,
        )
        self._age_ratio = PrometheusHistogram(
            "replicaset_controller_sorting_deletion_age_ratio",
            "The ratio of chosen deleted pod's ages to the current youngest pod's age (at the time).",
            buckets=_DELETION_AGE_RATIO_BUCKETS,
            registry=registry,
        )
        self._stale = {
            controller: PrometheusCounter(
                name,
                f"Number of syncs of the {controller} controller that were postponed because its caches were stale.",
                ("group", "resource"),
                registry=registry,
            )
            for controller, name in {
                "replicaset": "replicaset_controller_stale_sync_skips_total",
                "replicationmanager": "replicationcontroller_controller_stale_sync_skips_total",
                "statefulset": "statefulset_controller_stale_sync_skips_total",
                "daemonset": "daemonset_controller_stale_sync_skips_total",
                "job": "job_controller_stale_sync_skips_total",
            }.items()
        }

    def counter(self, name: str, documentation: str, labels: Sequence[str] = ()) -> PrometheusCounter:
        return self._family(name, lambda: PrometheusCounter(name, documentation, labels, registry=self._registry))

    def gauge(self, name: str, documentation: str, labels: Sequence[str] = ()) -> PrometheusGauge:
        return self._family(name, lambda: PrometheusGauge(name, documentation, labels, registry=self._registry))

    def histogram(
        self, name: str, documentation: str, labels: Sequence[str] = (), *, buckets: Sequence[float]
    ) -> PrometheusHistogram:
        return self._family(
            name, lambda: PrometheusHistogram(name, documentation, labels, buckets=buckets, registry=self._registry)
        )

    def _family(self, name: str, create: Callable[[], F]) -> F:
        """Return the family of this name; the first request creates it."""
        if name not in self._families:
            self._families[name] = create()
        family: F = self._families[name]
        return family

    def queue(self, name: str) -> QueueMetrics:
        return _PrometheusQueue(self._queues, name)

    def reconciled(self, controller: str, seconds: float, *, error: bool) -> None:
        self._seconds.labels(controller).observe(seconds)
        if error:
            self._errors.labels(controller).inc()

    def deletion_age_ratio(self, ratio: float) -> None:
        self._age_ratio.observe(ratio)

    def stale_sync_skipped(self, controller: str, group_resource: str) -> None:
        counter = self._stale.get(controller)
        if counter is not None:
            resource, _, group = group_resource.partition(".")
            counter.labels(group, resource).inc()


class _QueueFamilies:
    """Metrics of all work queues; gauges are read from the queues at each scrape."""

    def __init__(self, registry: Registerer) -> None:
        self.states: dict[str, QueueState] = {}
        self.adds = PrometheusCounter(
            "workqueue_adds_total", "Total number of adds handled by workqueue.", ["name"], registry=registry
        )
        self.retries = PrometheusCounter(
            "workqueue_retries_total", "Total number of retries handled by workqueue.", ["name"], registry=registry
        )
        self.waited = PrometheusHistogram(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested.",
            ["name"],
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        )
        self.worked = PrometheusHistogram(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
            ["name"],
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        )
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.metrics_core import GaugeMetricFamily

        families = (
            ("workqueue_depth", "Current depth of workqueue.", len),
            (
                "workqueue_unfinished_work_seconds",
                "Seconds of work in progress, summed over the items being processed.",
                lambda state: state.unfinished_work_seconds(),
            ),
            (
                "workqueue_longest_running_processor_seconds",
                "How many seconds the longest running processor for workqueue has been running.",
                lambda state: state.longest_running_processor_seconds(),
            ),
        )
        for metric, documentation, read in families:
            family = GaugeMetricFamily(metric, documentation, labels=["name"])
            for name, state in self.states.items():
                family.add_metric([name], read(state))
            yield family


class _PrometheusQueue(QueueMetrics):
    def __init__(self, families: _QueueFamilies, name: str) -> None:
        self._name = name
        self._states = families.states
        self._adds = families.adds.labels(name)
        self._retries = families.retries.labels(name)
        self._waited = families.waited.labels(name)
        self._worked = families.worked.labels(name)

    def attach(self, queue: QueueState) -> None:
        self._states[self._name] = queue

    def added(self) -> None:
        self._adds.inc()

    def retried(self) -> None:
        self._retries.inc()

    def started(self, waited_seconds: float) -> None:
        self._waited.observe(waited_seconds)

    def finished(self, worked_seconds: float) -> None:
        self._worked.observe(worked_seconds)
