"""scheduler_* metrics with the names of kube-scheduler. Source: pkg/scheduler/metrics."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.process.metrics.metrics_registry import (
    PrometheusCounter,
    PrometheusGauge,
    PrometheusHistogram,
    Registerer,
)
from kubeloop.scheduler.metrics_interface import (
    AttemptResult,
    BackgroundCall,
    BindingConditionsResult,
    CallResult,
    GroupAttemptResult,
    SchedulerMetrics,
    ScrapeTimeMetrics,
    VolumeStage,
)

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_MAX_ATTEMPTS_LABEL = 16  # label value "16+" from here on
_PLUGIN_BUCKETS = tuple(0.00001 * 1.5**power for power in range(20))


class ScrapeTimeCollector:
    """scheduler_inflight_events, _unschedulable_pods, _plugin_evaluation_total and _goroutines."""

    def __init__(self, metrics: ScrapeTimeMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """Return the metrics that are read from the scheduler at each scrape."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        in_flight = GaugeMetricFamily(
            "scheduler_inflight_events",
            "Number of events tracked for pods being scheduled, by event.",
            labels=["event"],
        )
        unschedulable = GaugeMetricFamily(
            "scheduler_unschedulable_pods",
            "Number of unschedulable pods by plugin; a pod counts for each plugin that rejected it.",
            labels=["plugin", "profile"],
        )
        evaluations = CounterMetricFamily(
            "scheduler_plugin_evaluation",
            "Number of attempts to schedule pods by plugin and extension point (PreFilter, Filter, PreScore, Score).",
            labels=["plugin", "extension_point", "profile"],
        )
        goroutines = GaugeMetricFamily(
            "scheduler_goroutines", "Number of running tasks, by operation.", labels=["operation"]
        )
        for event, count in self._metrics.in_flight_events().items():
            in_flight.add_metric([event], count)
        for plugin_profile, count in self._metrics.unschedulable_pods().items():
            unschedulable.add_metric(plugin_profile, count)
        for evaluation_labels, count in self._metrics.plugin_evaluations().items():
            evaluations.add_metric(evaluation_labels, count)
        goroutines.add_metric(["binding"], self._metrics.bindings_in_flight())
        return in_flight, unschedulable, evaluations, goroutines


class PrometheusSchedulerMetrics(SchedulerMetrics):
    """The scheduler_* metrics that are counted as they happen."""

    def __init__(self, registry: Registerer, gates: FeatureGates = DEFAULT_FEATURE_GATES) -> None:
        counter = partial(PrometheusCounter, registry=registry)
        gauge = partial(PrometheusGauge, registry=registry)
        histogram = partial(PrometheusHistogram, registry=registry)
        # Without evictions in the background there are no metrics of them.
        evictions_registry = registry if gates.enabled("SchedulerAsyncPreemption") else None
        self._attempts = counter(
            "scheduler_schedule_attempts_total",
            "Number of attempts to schedule pods, by the result.",
            ["result", "profile"],
        )
        self._attempt_seconds = histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding).",
            ["result", "profile"],
            buckets=_exponential_buckets(0.001, 15),
        )
        self._algorithm_seconds = histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds.",
            buckets=_exponential_buckets(0.001, 15),
        )
        self._attempts_of_pod = histogram(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod.",
            buckets=_exponential_buckets(1, 5),
        )
        self._sli_seconds = histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Latency from a pod entering the scheduling queue to its binding, without gated time.",
            ["attempts"],
            buckets=_exponential_buckets(0.01, 20),
        )
        self._pending = gauge("scheduler_pending_pods", "Number of pending pods, by the queue type.", ["queue"])
        self._incoming = counter(
            "scheduler_queue_incoming_pods_total",
            "Number of pods added to scheduling queues by event and queue type.",
            ["queue", "event"],
        )
        self._extension_point_seconds = histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency for running all plugins of a specific extension point.",
            ["extension_point", "status", "profile"],
            buckets=_exponential_buckets(0.0001, 12),
        )
        self._plugin_seconds = histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Duration for running a plugin at a specific extension point; one cycle in ten is measured.",
            ["plugin", "extension_point", "status"],
            buckets=_PLUGIN_BUCKETS,
        )
        self._preemptions = counter(
            "scheduler_preemption_attempts_total", "Total preemption attempts in the cluster till now."
        )
        self._victims = histogram(
            "scheduler_preemption_victims", "Number of selected preemption victims.", buckets=_exponential_buckets(1, 7)
        )
        self._evictions = counter(
            "scheduler_preemption_goroutines_execution_total",
            "Number of preemptions whose victims were evicted, by result.",
            ["result"],
            registry=evictions_registry,
        )
        self._eviction_seconds = histogram(
            "scheduler_preemption_goroutines_duration_seconds",
            "Duration in seconds of the eviction of a preemption's victims, by result.",
            ["result"],
            buckets=_exponential_buckets(0.01, 20),
            registry=evictions_registry,
        )
        calls_registry = registry if gates.enabled("SchedulerAsyncAPICalls") else None
        self._background_calls = counter(
            "scheduler_async_api_call_execution_total",
            "Number of API calls in the background, by type and result.",
            ["call_type", "result"],
            registry=calls_registry,
        )
        self._background_call_seconds = histogram(
            "scheduler_async_api_call_execution_duration_seconds",
            "Duration in seconds of API calls in the background, by type and result.",
            ["call_type", "result"],
            buckets=_exponential_buckets(0.001, 15),
            registry=calls_registry,
        )
        self._background_calls_pending = gauge(
            "scheduler_pending_async_api_calls",
            "Number of API calls that have not been sent yet, by type.",
            ["call_type"],
            registry=calls_registry,
        )
        self._volume_failures = counter(
            "scheduler_volume_scheduling_stage_error_total",
            "Volume scheduling stage error count, by operation.",
            ["operation"],
        )
        self._permit_seconds = histogram(
            "scheduler_permit_wait_duration_seconds",
            "Duration of waiting on permit, by result.",
            ["result"],
            buckets=_exponential_buckets(0.001, 15),
        )
        self._claims_created = counter(
            "scheduler_resourceclaim_creates_total",
            "Number of ResourceClaims creation requests within scheduler.",
            ["status"],
            registry=registry if gates.enabled("DRAExtendedResource") else None,
        )
        conditions_registry = registry if gates.enabled("DRADeviceBindingConditions") else None
        self._condition_allocations = counter(
            "scheduler_dra_bindingconditions_allocations_total",
            "Number of allocations using devices with BindingConditions, per driver and scheduling attempt.",
            ["profile", "driver", "status"],
            registry=conditions_registry,
        )
        self._condition_seconds = histogram(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Time in seconds spent waiting for BindingConditions to be satisfied during PreBind.",
            ["profile", "driver", "status"],
            buckets=_exponential_buckets(0.1, 14),
            registry=conditions_registry,
        )
        groups_registry = registry if gates.enabled("GenericWorkload") else None
        self._group_attempts = counter(
            "scheduler_podgroup_schedule_attempts_total",
            "Number of attempts to schedule pod groups, by the result.",
            ["result", "profile"],
            registry=groups_registry,
        )
        self._group_attempt_seconds = histogram(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "Pod group scheduling attempt latency in seconds (scheduling algorithm + binding).",
            ["result", "profile"],
            buckets=_exponential_buckets(0.001, 15),
            registry=groups_registry,
        )
        self._group_algorithm_seconds = histogram(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Pod group scheduling algorithm latency in seconds.",
            buckets=_exponential_buckets(0.001, 15),
            registry=groups_registry,
        )
        self._cache = gauge(
            "scheduler_cache_size", "Number of nodes, pods, and assumed pods in the scheduler cache.", ["type"]
        )
        self._after_flush = counter(
            "scheduler_pod_scheduled_after_flush_total",
            "Number of pods scheduled after a timeout in the unschedulable pods: a missed event or hint.",
        )
        self._hint_seconds = histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Latency for running a queueing hint function of a plugin; one call in ten is measured.",
            ["plugin", "event", "hint"],
            buckets=_PLUGIN_BUCKETS,
        )
        self._event_seconds = histogram(
            "scheduler_event_handling_duration_seconds",
            "Event handling latency in seconds, including moves of pending pods.",
            ["event"],
            buckets=_exponential_buckets(0.0001, 12),
        )

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
        self._sli_seconds.labels(
            str(attempts) if attempts < _MAX_ATTEMPTS_LABEL else f"{_MAX_ATTEMPTS_LABEL}+"
        ).observe(sli_seconds)

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

    def preemption_attempt(self) -> None:
        self._preemptions.inc()

    def preemption_victims(self, count: int) -> None:
        self._victims.observe(count)

    def victims_evicted(self, result: CallResult, seconds: float) -> None:
        self._evictions.labels(result).inc()
        self._eviction_seconds.labels(result).observe(seconds)

    def background_call(self, call: BackgroundCall, result: CallResult, seconds: float) -> None:
        self._background_calls.labels(call, result).inc()
        self._background_call_seconds.labels(call, result).observe(seconds)

    def background_calls_pending(self, call: BackgroundCall, count: int) -> None:
        self._background_calls_pending.labels(call).set(count)

    def volume_stage_failed(self, stage: VolumeStage) -> None:
        self._volume_failures.labels(stage).inc()

    def permit_wait(self, result: str, seconds: float) -> None:
        self._permit_seconds.labels(result).observe(seconds)

    def claim_created(self, *, succeeded: bool) -> None:
        self._claims_created.labels("success" if succeeded else "failure").inc()

    def binding_conditions_awaited(
        self, profile: str, driver: str, result: BindingConditionsResult, seconds: float
    ) -> None:
        self._condition_seconds.labels(profile, driver, result).observe(seconds)

    def binding_conditions_allocated(self, profile: str, driver: str, result: BindingConditionsResult) -> None:
        self._condition_allocations.labels(profile, driver, result).inc()

    def pod_group_attempt(self, result: GroupAttemptResult, profile: str, seconds: float) -> None:
        self._group_attempts.labels(result, profile).inc()
        self._group_attempt_seconds.labels(result, profile).observe(seconds)

    def pod_group_algorithm(self, seconds: float) -> None:
        self._group_algorithm_seconds.observe(seconds)

    def cache_size(self, *, nodes: int, pods: int, assumed_pods: int) -> None:
        self._cache.labels("nodes").set(nodes)
        self._cache.labels("pods").set(pods)
        self._cache.labels("assumed_pods").set(assumed_pods)


def _exponential_buckets(first: float, count: int) -> tuple[float, ...]:
    """Return exponential histogram buckets: `first`, and each next bound twice the previous one."""
    return tuple(first * 2**power for power in range(count))
