"""Interface for the metrics of the scheduler, under kube-scheduler's names. Imports the standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

AttemptResult = Literal["scheduled", "unschedulable", "error"]
GroupAttemptResult = Literal["scheduled", "unschedulable", "waiting_on_preemption", "error"]
CallResult = Literal["success", "error"]
BackgroundCall = Literal["pod_status_patch", "pod_binding"]
VolumeStage = Literal["predicate", "assume", "bind"]
BindingConditionsResult = Literal["success", "failure", "timeout", "error"]


class ScrapeTimeMetrics(Protocol):
    """Metrics that are computed on each scrape; see Scheduler.gauges."""

    def in_flight_events(self) -> Mapping[str, int]:
        """Return the number of events logged for pods in flight, by event; "PodPopped" for the pods themselves."""
        ...

    def unschedulable_pods(self) -> Mapping[tuple[str, str], int]:
        """Return (plugin, profile) -> number of queued pods that the plugin rejected in their last attempt."""
        ...

    def plugin_evaluations(self) -> Mapping[tuple[str, str, str], int]:
        """Return (plugin, extension point, profile) -> number of attempts in which the plugin ran there."""
        ...

    def bindings_in_flight(self) -> int: ...


class SchedulerMetrics:
    """Metrics that the scheduler reports. This base class ignores them.

    Every method is cheap and never raises. Durations are seconds.
    """

    times_extension_points: bool = True
    """False: extension points and plugins are neither timed nor reported, which saves the clock readings."""

    def queueing_hint(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        """scheduler_queueing_hint_execution_duration_seconds{plugin,event,hint}; one call in ten is measured."""

    def event_handled(self, event: str, seconds: float) -> None:
        """scheduler_event_handling_duration_seconds{event}."""

    def attempt(self, result: AttemptResult, profile: str, seconds: float) -> None:
        """scheduler_schedule_attempts_total, scheduler_scheduling_attempt_duration_seconds."""

    def algorithm(self, seconds: float) -> None:
        """scheduler_scheduling_algorithm_duration_seconds: from the snapshot to the chosen node."""

    def pod_scheduled(self, attempts: int, sli_seconds: float, *, after_flush: bool) -> None:
        """scheduler_pod_scheduling_attempts, scheduler_pod_scheduling_sli_duration_seconds{attempts}.

        after_flush, for scheduler_pod_scheduled_after_flush_total: the pod was retried after 5 minutes without event.
        """

    def pending_pods(self, *, active: int, backoff: int, unschedulable: int, gated: int) -> None:
        """scheduler_pending_pods{queue}."""

    def queue_incoming(self, queue: str, event: str) -> None:
        """scheduler_queue_incoming_pods_total{queue,event}."""

    def extension_point(self, extension_point: str, status: str, profile: str, seconds: float) -> None:
        """scheduler_framework_extension_point_duration_seconds{extension_point,status,profile}."""

    def plugin(self, plugin: str, extension_point: str, status: str, seconds: float) -> None:
        """scheduler_plugin_execution_duration_seconds{plugin,extension_point,status}; one cycle in ten is measured."""

    def preemption_attempt(self) -> None:
        """scheduler_preemption_attempts_total."""

    def preemption_victims(self, count: int) -> None:
        """scheduler_preemption_victims."""

    def victims_evicted(self, result: CallResult, seconds: float) -> None:
        """scheduler_preemption_goroutines_execution_total, scheduler_preemption_goroutines_duration_seconds{result}.

        Covers one preemption, from its first request to the deletion of its last victim.
        """

    def background_call(self, call: BackgroundCall, result: CallResult, seconds: float) -> None:
        """scheduler_async_api_call_execution_total, .._duration_seconds{call_type,result}."""

    def background_calls_pending(self, call: BackgroundCall, count: int) -> None:
        """scheduler_pending_async_api_calls{call_type}."""

    def volume_stage_failed(self, stage: VolumeStage) -> None:
        """scheduler_volume_scheduling_stage_error_total{operation=stage}: errors, not missing volumes."""

    def permit_wait(self, result: str, seconds: float) -> None:
        """scheduler_permit_wait_duration_seconds{result}."""

    def claim_created(self, *, succeeded: bool) -> None:
        """scheduler_resourceclaim_creates_total{status}: requests that create the claim for extended resources."""

    def binding_conditions_awaited(
        self, profile: str, driver: str, result: BindingConditionsResult, seconds: float
    ) -> None:
        """scheduler_dra_bindingconditions_wait_duration_seconds{profile,driver,status}; one call per device."""

    def binding_conditions_allocated(self, profile: str, driver: str, result: BindingConditionsResult) -> None:
        """scheduler_dra_bindingconditions_allocations_total{profile,driver,status}; for devices with conditions."""

    def pod_group_attempt(self, result: GroupAttemptResult, profile: str, seconds: float) -> None:
        """scheduler_podgroup_schedule_attempts_total, scheduler_podgroup_scheduling_attempt_duration_seconds."""

    def pod_group_algorithm(self, seconds: float) -> None:
        """scheduler_podgroup_scheduling_algorithm_duration_seconds: from the snapshot to the chosen nodes."""

    def cache_size(self, *, nodes: int, pods: int, assumed_pods: int) -> None:
        """scheduler_cache_size{type}."""


class NoMetrics(SchedulerMetrics):
    times_extension_points = False


NO_METRICS = NoMetrics()
