"""Prometheus metrics under the names of kube-controller-manager and kube-scheduler.

Each part of kubeloop reports through a small protocol of its own room; here those calls become metrics of one registry.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kubeloop import KUBERNETES_VERSION, __version__
from kubeloop.controllers.runtime.metrics_interface import ControllerMetrics, QueueMetrics, QueueState
from kubeloop.kube.client.transport import Response, StreamedResponse, Transport, TransportError
from kubeloop.process.metric_series import Counter, Gauge, Histogram, Registration, Registry
from kubeloop.scheduler.metrics import AttemptResult, EvictionResult, SchedulerMetrics, SchedulerState, VolumeStage

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# Source: k8s.io/component-base/metrics/prometheus/workqueue: ExponentialBuckets(10e-9, 10, 12)
_QUEUE_BUCKETS = tuple(1e-8 * 10**power for power in range(12))
_RECONCILE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# Source: pkg/controller/replicaset/metrics: ExponentialBuckets(0.25, 2, 6)
_DELETION_AGE_RATIO_BUCKETS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_MOST_ATTEMPTS = 16  # more of them share one label value
_PLUGIN_BUCKETS = tuple(0.00001 * 1.5**power for power in range(20))
# Source: k8s.io/component-base/metrics/prometheus/restclient
_REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


def new_registry() -> Registry:
    """A registry with the process' own metrics and kubeloop_build_info."""
    registry = Registry()
    registry.register(_ProcessMetrics())
    build = Gauge("kubeloop_build_info", "Version of kubeloop.", ["version", "kubernetes"], registry=registry)
    build.labels(__version__, KUBERNETES_VERSION).set(1)
    return registry


class _ProcessMetrics:
    """process_*: memory, CPU, file descriptors."""

    def collect(self) -> Iterable[Metric]:
        from prometheus_client import ProcessCollector

        return ProcessCollector(registry=None).collect()


class PrometheusControllerMetrics(ControllerMetrics):
    """workqueue_*, reconcile durations and errors, and what the ReplicaSet controller counts."""

    def __init__(self, registry: Registration) -> None:
        self._queues = _QueueFamilies(registry)
        self._seconds = Histogram(
            "kubeloop_reconcile_duration_seconds",
            "How long one reconcile took, per controller.",
            ["controller"],
            buckets=_RECONCILE_BUCKETS,
            registry=registry,
        )
        self._errors = Counter(
            "kubeloop_reconcile_errors_total",
            "Reconciles that failed, per controller.",
            ["controller"],
            registry=registry,
        )
        self._age_ratio = Histogram(
            "replicaset_controller_sorting_deletion_age_ratio",
            "The ratio of chosen deleted pod's ages to the current youngest pod's age (at the time).",
            buckets=_DELETION_AGE_RATIO_BUCKETS,
            registry=registry,
        )
        self._stale = {
            controller: Counter(
                name, f"Syncs of the {controller} controller put off because caches lag.", registry=registry
            )
            for controller, name in {
                "replicaset": "replicaset_controller_stale_sync_skips_total",
                "replicationmanager": "replicationcontroller_controller_stale_sync_skips_total",
            }.items()
        }

    def queue(self, name: str) -> QueueMetrics:
        return _PrometheusQueue(self._queues, name)

    def reconciled(self, controller: str, seconds: float, *, error: bool) -> None:
        self._seconds.labels(controller).observe(seconds)
        if error:
            self._errors.labels(controller).inc()

    def deletion_age_ratio(self, ratio: float) -> None:
        self._age_ratio.observe(ratio)

    def stale_sync_skipped(self, controller: str) -> None:
        self._stale[controller].inc()


class _QueueFamilies:
    """The metrics of all work queues; gauges are read from the queues when somebody scrapes."""

    def __init__(self, registry: Registration) -> None:
        self.states: dict[str, QueueState] = {}
        self.adds = Counter("workqueue_adds_total", "Keys added to the queue.", ["name"], registry=registry)
        self.retries = Counter("workqueue_retries_total", "Keys put back after a delay.", ["name"], registry=registry)
        self.waited = Histogram(
            "workqueue_queue_duration_seconds",
            "How long a key stayed in the queue before a worker took it.",
            ["name"],
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        )
        self.worked = Histogram(
            "workqueue_work_duration_seconds",
            "How long a worker kept a key.",
            ["name"],
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        )
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.metrics_core import GaugeMetricFamily

        families = (
            ("workqueue_depth", "Keys that wait for a worker.", len),
            (
                "workqueue_unfinished_work_seconds",
                "Seconds of work in progress, summed over the keys being processed.",
                lambda state: state.unfinished_work_seconds(),
            ),
            (
                "workqueue_longest_running_processor_seconds",
                "Age of the oldest piece of work in progress.",
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


class PrometheusSchedulerMetrics(SchedulerMetrics):
    """scheduler_*, as kube-scheduler names them. Source: pkg/scheduler/metrics."""

    def __init__(self, registry: Registration) -> None:
        self._attempts = Counter(
            "scheduler_schedule_attempts_total",
            "Attempts to schedule pods, by the result.",
            ["result", "profile"],
            registry=registry,
        )
        self._attempt_seconds = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "How long an attempt took: scheduling cycle and binding.",
            ["result", "profile"],
            buckets=_doubling(0.001, 15),
            registry=registry,
        )
        self._algorithm_seconds = Histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "How long it took to choose a node.",
            buckets=_doubling(0.001, 15),
            registry=registry,
        )
        self._attempts_of_pod = Histogram(
            "scheduler_pod_scheduling_attempts",
            "Attempts it took to schedule a pod.",
            buckets=_doubling(1, 5),
            registry=registry,
        )
        self._sli_seconds = Histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From a pod entering the scheduling queue to its binding, without time in the gates.",
            ["attempts"],
            buckets=_doubling(0.01, 20),
            registry=registry,
        )
        self._pending = Gauge("scheduler_pending_pods", "Pods that wait, by queue.", ["queue"], registry=registry)
        self._incoming = Counter(
            "scheduler_queue_incoming_pods_total",
            "Pods added to the scheduling queues, by event and queue.",
            ["queue", "event"],
            registry=registry,
        )
        self._extension_point_seconds = Histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "How long all plugins of an extension point took.",
            ["extension_point", "status", "profile"],
            buckets=_doubling(0.0001, 12),
            registry=registry,
        )
        self._plugin_seconds = Histogram(
            "scheduler_plugin_execution_duration_seconds",
            "How long one plugin took at one extension point; one cycle in ten is measured.",
            ["plugin", "extension_point", "status"],
            buckets=_PLUGIN_BUCKETS,
            registry=registry,
        )
        self._preemptions = Counter(
            "scheduler_preemption_attempts_total", "Attempts to preempt in the cluster till now.", registry=registry
        )
        self._victims = Histogram(
            "scheduler_preemption_victims",
            "Victims chosen by a preemption.",
            buckets=_doubling(1, 7),
            registry=registry,
        )
        self._evictions = Counter(
            "scheduler_preemption_goroutines_execution_total",
            "Preemptions whose victims have been told to go, or not all of them, by result.",
            ["result"],
            registry=registry,
        )
        self._eviction_seconds = Histogram(
            "scheduler_preemption_goroutines_duration_seconds",
            "How long it took to tell the victims of a preemption to go, by result.",
            ["result"],
            buckets=_doubling(0.01, 20),
            registry=registry,
        )
        self._volume_failures = Counter(
            "scheduler_volume_scheduling_stage_error_total",
            "Failures to find, assume or bind a pod's volumes, by operation.",
            ["operation"],
            registry=registry,
        )
        self._permit_seconds = Histogram(
            "scheduler_permit_wait_duration_seconds",
            "How long pods waited to be permitted, by result.",
            ["result"],
            buckets=_doubling(0.001, 15),
            registry=registry,
        )
        self._cache = Gauge(
            "scheduler_cache_size", "Nodes, pods and assumed pods in the cache.", ["type"], registry=registry
        )
        self._after_flush = Counter(
            "scheduler_pod_scheduled_after_flush_total",
            "Pods scheduled after five minutes without an event that concerned them: a missed event or a wrong hint.",
            registry=registry,
        )
        self._hint_seconds = Histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "How long a plugin's queueing hint took; one call in ten is measured.",
            ["plugin", "event", "hint"],
            buckets=_PLUGIN_BUCKETS,
            registry=registry,
        )
        self._event_seconds = Histogram(
            "scheduler_event_handling_duration_seconds",
            "How long the scheduler worked on an event, the moves of waiting pods included.",
            ["event"],
            buckets=_doubling(0.0001, 12),
            registry=registry,
        )
        self._state: SchedulerState | None = None
        registry.register(self)

    def attach(self, state: SchedulerState) -> None:
        self._state = state

    def collect(self) -> Iterable[Metric]:
        """What is read from the scheduler when somebody scrapes."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        in_flight = GaugeMetricFamily(
            "scheduler_inflight_events", "Events remembered for pods being scheduled, by event.", labels=["event"]
        )
        unschedulable = GaugeMetricFamily(
            "scheduler_unschedulable_pods",
            "Unschedulable pods by the plugin that rejected them; a pod counts for each of its plugins.",
            labels=["plugin", "profile"],
        )
        evaluations = CounterMetricFamily(
            "scheduler_plugin_evaluation",
            "Attempts in which a plugin had a say, at PreFilter, Filter, PreScore and Score.",
            labels=["plugin", "extension_point", "profile"],
        )
        goroutines = GaugeMetricFamily(
            "scheduler_goroutines", "Tasks under way, by what they do.", labels=["operation"]
        )
        if self._state is not None:
            for event, number in self._state.in_flight_events().items():
                in_flight.add_metric([event], number)
            for rejected, number in self._state.unschedulable_pods().items():
                unschedulable.add_metric(rejected, number)
            for evaluated, number in self._state.plugin_evaluations().items():
                evaluations.add_metric(evaluated, number)
            goroutines.add_metric(["binding"], self._state.bindings_in_flight())
        return in_flight, unschedulable, evaluations, goroutines

    def queueing_hint(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        self._hint_seconds.labels(plugin, event, hint).observe(seconds)

    def event_handled(self, event: str, seconds: float) -> None:
        self._event_seconds.labels(event).observe(seconds)

    def attempt(self, result: AttemptResult, profile: str, seconds: float) -> None:
        self._attempts.labels(result, profile).inc()
        self._attempt_seconds.labels(result, profile).observe(seconds)

    def algorithm(self, seconds: float) -> None:
        self._algorithm_seconds.observe(seconds)

    def pod_scheduled(self, attempts: int, sli_seconds: float, *, after_flush: bool) -> None:
        if after_flush:
            self._after_flush.inc()
        self._attempts_of_pod.observe(attempts)
        self._sli_seconds.labels(str(attempts) if attempts < _MOST_ATTEMPTS else f"{_MOST_ATTEMPTS}+").observe(
            sli_seconds
        )

    def pending_pods(self, *, active: int, backoff: int, unschedulable: int, gated: int) -> None:
        self._pending.labels("active").set(active)
        self._pending.labels("backoff").set(backoff)
        self._pending.labels("unschedulable").set(unschedulable)
        self._pending.labels("gated").set(gated)

    def queue_incoming(self, queue: str, event: str) -> None:
        self._incoming.labels(queue, event).inc()

    def extension_point(self, extension_point: str, status: str, profile: str, seconds: float) -> None:
        self._extension_point_seconds.labels(extension_point, status, profile).observe(seconds)

    def plugin(self, plugin: str, extension_point: str, status: str, seconds: float) -> None:
        self._plugin_seconds.labels(plugin, extension_point, status).observe(seconds)

    def preemption(self, victims: int) -> None:
        self._preemptions.inc()
        if victims:
            self._victims.observe(victims)

    def victims_evicted(self, result: EvictionResult, seconds: float) -> None:
        self._evictions.labels(result).inc()
        self._eviction_seconds.labels(result).observe(seconds)

    def volume_stage_failed(self, stage: VolumeStage) -> None:
        self._volume_failures.labels(stage).inc()

    def permit_wait(self, result: str, seconds: float) -> None:
        self._permit_seconds.labels(result).observe(seconds)

    def cache_size(self, *, nodes: int, pods: int, assumed_pods: int) -> None:
        self._cache.labels("nodes").set(nodes)
        self._cache.labels("pods").set(pods)
        self._cache.labels("assumed_pods").set(assumed_pods)


class MeasuredTransport(Transport):
    """A transport whose requests are counted: rest_client_requests_total, rest_client_request_duration_seconds."""

    def __init__(self, transport: Transport, registry: Registration, now_ns: Callable[[], int]) -> None:
        self._transport = transport
        self._now_ns = now_ns
        self._host = urlsplit(transport.server).netloc or transport.server
        self._requests = Counter(
            "rest_client_requests_total",
            "HTTP requests by status code, method and host; of a request without an answer the code is <error>.",
            ["code", "method", "host"],
            registry=registry,
        )
        self._seconds = Histogram(
            "rest_client_request_duration_seconds",
            "How long requests took, by verb and host; of a watch, until it was answered.",
            ["verb", "host"],
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )

    @property
    def server(self) -> str:
        return self._transport.server

    async def request(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
        timeout_seconds: float | None = None,
    ) -> Response:
        start_ns, code = self._now_ns(), "<error>"
        try:
            answer = await self._transport.request(
                method, target, headers=headers, body=body, timeout_seconds=timeout_seconds
            )
            code = str(answer.status)
            return answer
        finally:
            self._note(method, code, start_ns)

    @asynccontextmanager
    async def stream(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[StreamedResponse]:
        start_ns = self._now_ns()
        try:
            stream = self._transport.stream(method, target, headers=headers, body=body)
            answer = await stream.__aenter__()
        except TransportError:
            self._note(method, "<error>", start_ns)
            raise
        self._note(method, str(answer.status), start_ns)
        async with contextlib.AsyncExitStack() as opened:
            opened.push_async_exit(stream)
            yield answer

    async def close(self) -> None:
        await self._transport.close()

    def _note(self, method: str, code: str, start_ns: int) -> None:
        self._requests.labels(code, method, self._host).inc()
        self._seconds.labels(method, self._host).observe((self._now_ns() - start_ns) / 1e9)


def _doubling(first: float, count: int) -> tuple[float, ...]:
    """Histogram buckets, in the histogram's unit: `first`, each twice the one before."""
    return tuple(first * 2**power for power in range(count))
