"""scheduler_* metrics, with the names of kube-scheduler. Source: pkg/scheduler/metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.metric_families import NO_FAMILIES, MetricFamilies

AttemptResult = Literal["scheduled", "unschedulable", "error"]
GroupAttemptResult = Literal["scheduled", "unschedulable", "waiting_on_preemption", "error"]
CallResult = Literal["success", "error"]
BackgroundCall = Literal["pod_status_patch", "pod_binding"]
VolumeStage = Literal["predicate", "assume", "bind"]
BindingConditionsResult = Literal["success", "failure", "timeout", "error"]

_MAX_ATTEMPTS_LABEL = 16  # label value "16+" from here on
_PLUGIN_BUCKETS = tuple(0.00001 * 1.5**power for power in range(20))


class SchedulerMetrics:
    """Metrics that are counted as they happen. Every method is cheap and never raises. Durations are seconds."""

    times_extension_points: bool = True
    """False: extension points and plugins are neither timed nor reported, which saves the clock readings."""

    def __init__(self, families: MetricFamilies = NO_FAMILIES, gates: FeatureGates = DEFAULT_FEATURE_GATES) -> None:
        def gated(gate: str) -> MetricFamilies:
            return families if gates.enabled(gate) else NO_FAMILIES

        counter, gauge, histogram = families.counter, families.gauge, families.histogram
        # Without evictions in the background there are no metrics of them.
        evictions = gated("SchedulerAsyncPreemption")
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
        ).labels()
        self._attempts_of_pod = histogram(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod.",
            buckets=_exponential_buckets(1, 5),
        ).labels()
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
        ).labels()
        self._victims = histogram(
            "scheduler_preemption_victims", "Number of selected preemption victims.", buckets=_exponential_buckets(1, 7)
        ).labels()
        self._evictions = evictions.counter(
            "scheduler_preemption_goroutines_execution_total",
            "Number of preemptions whose victims were evicted, by result.",
            ["result"],
        )
        self._eviction_seconds = evictions.histogram(
            "scheduler_preemption_goroutines_duration_seconds",
            "Duration in seconds of the eviction of a preemption's victims, by result.",
            ["result"],
            buckets=_exponential_buckets(0.01, 20),
        )
        calls = gated("SchedulerAsyncAPICalls")
        self._background_calls = calls.counter(
            "scheduler_async_api_call_execution_total",
            "Number of API calls in the background, by type and result.",
            ["call_type", "result"],
        )
        self._background_call_seconds = calls.histogram(
            "scheduler_async_api_call_execution_duration_seconds",
            "Duration in seconds of API calls in the background, by type and result.",
            ["call_type", "result"],
            buckets=_exponential_buckets(0.001, 15),
        )
        self._background_calls_pending = calls.gauge(
            "scheduler_pending_async_api_calls",
            "Number of API calls that have not been sent yet, by type.",
            ["call_type"],
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
        self._claims_created = gated("DRAExtendedResource").counter(
            "scheduler_resourceclaim_creates_total",
            "Number of ResourceClaims creation requests within scheduler.",
            ["status"],
        )
        conditions = gated("DRADeviceBindingConditions")
        self._condition_allocations = conditions.counter(
            "scheduler_dra_bindingconditions_allocations_total",
            "Number of allocations using devices with BindingConditions, per driver and scheduling attempt.",
            ["profile", "driver", "status"],
        )
        self._condition_seconds = conditions.histogram(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Time in seconds spent waiting for BindingConditions to be satisfied during PreBind.",
            ["profile", "driver", "status"],
            buckets=_exponential_buckets(0.1, 14),
        )
        groups = gated("GenericWorkload")
        self._group_attempts = groups.counter(
            "scheduler_podgroup_schedule_attempts_total",
            "Number of attempts to schedule pod groups, by the result.",
            ["result", "profile"],
        )
        self._group_attempt_seconds = groups.histogram(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "Pod group scheduling attempt latency in seconds (scheduling algorithm + binding).",
            ["result", "profile"],
            buckets=_exponential_buckets(0.001, 15),
        )
        self._group_algorithm_seconds = groups.histogram(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Pod group scheduling algorithm latency in seconds.",
            buckets=_exponential_buckets(0.001, 15),
        ).labels()
        self._cache = gauge(
            "scheduler_cache_size", "Number of nodes, pods, and assumed pods in the scheduler cache.", ["type"]
        )
        self._after_flush = counter(
            "scheduler_pod_scheduled_after_flush_total",
            "Number of pods scheduled after a timeout in the unschedulable pods: a missed event or hint.",
        ).labels()
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
        """seconds: from the snapshot to the chosen node."""
        self._algorithm_seconds.observe(seconds)

    def pod_scheduled(self, attempts: int, sli_seconds: float, *, after_flush: bool) -> None:
        """after_flush: the pod was retried after 5 minutes without event."""
        if after_flush:
            self._after_flush.inc()
        self._attempts_of_pod.observe(attempts)
        self._sli_seconds.labels(
            str(attempts) if attempts < _MAX_ATTEMPTS_LABEL else f"{_MAX_ATTEMPTS_LABEL}+"
        ).observe(sli_seconds)

    def count_pending_pods(self, **count: Callable[[], int]) -> None:
        """count: returns the number of pods in a queue, by its name."""
        for queue, read in count.items():
            self._pending.labels(queue).set_function(read)

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
        """Record one preemption, from its first request to the deletion of its last victim."""
        self._evictions.labels(result).inc()
        self._eviction_seconds.labels(result).observe(seconds)

    def background_call(self, call: BackgroundCall, result: CallResult, seconds: float) -> None:
        self._background_calls.labels(call, result).inc()
        self._background_call_seconds.labels(call, result).observe(seconds)

    def background_calls_pending(self, call: BackgroundCall, count: int) -> None:
        self._background_calls_pending.labels(call).set(count)

    def volume_stage_failed(self, stage: VolumeStage) -> None:
        """Count an error; missing volumes are none."""
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
        """seconds: from the snapshot to the chosen nodes."""
        self._group_algorithm_seconds.observe(seconds)

    def count_cached(self, **count: Callable[[], int]) -> None:
        """count: returns the number of objects of a type in the cache, by its name."""
        for type_, read in count.items():
            self._cache.labels(type_).set_function(read)


class NoMetrics(SchedulerMetrics):
    times_extension_points = False


def _exponential_buckets(first: float, count: int) -> tuple[float, ...]:
    """Return exponential histogram buckets: `first`, and each next bound twice the previous one."""
    return tuple(first * 2**power for power in range(count))


NO_METRICS = NoMetrics()
