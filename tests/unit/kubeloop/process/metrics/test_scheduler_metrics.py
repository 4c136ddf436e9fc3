"""Scheduler metrics."""

from prometheus_client import CollectorRegistry, generate_latest

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.process.metrics.scheduler_metrics import PrometheusSchedulerMetrics, ScrapeTimeCollector


class StubState:
    def in_flight_events(self):
        return {"PodPopped": 2}

    def unschedulable_pods(self):
        return {("NodeName", "default-scheduler"): 3}

    def plugin_evaluations(self):
        return {("NodeName", "Filter", "default-scheduler"): 4}

    def bindings_in_flight(self):
        return 5


def text(registry):
    return generate_latest(registry).decode()


def test_scheduler_metrics_have_kube_scheduler_names():
    registry = CollectorRegistry()
    metrics = PrometheusSchedulerMetrics(registry)
    metrics.attempt("scheduled", "default-scheduler", 0.5)
    metrics.algorithm(0.25)
    metrics.pod_scheduled(2, 1.5, after_flush=False)
    metrics.pod_scheduled(40, 1.5, after_flush=True)
    metrics.pending_pods(active=1, backoff=2, unschedulable=3, gated=4)
    metrics.queue_incoming("active", "UnscheduledPodAdd")
    metrics.extension_point("Filter", "Success", "default-scheduler", 0.001)
    metrics.plugin("NodeName", "Filter", "Success", 0.001)
    metrics.preemption_attempt()
    metrics.preemption_attempt()
    metrics.preemption_victims(2)
    metrics.preemption_victims(3)
    metrics.victims_evicted("error", 0.25)
    metrics.volume_stage_failed("bind")
    metrics.permit_wait("allowed", 0.5)
    metrics.claim_created(succeeded=True)
    metrics.claim_created(succeeded=False)
    metrics.binding_conditions_awaited("default-scheduler", "gpu.example.com", "timeout", 2.5)
    metrics.binding_conditions_allocated("default-scheduler", "gpu.example.com", "timeout")
    metrics.queueing_hint("NodeName", "NodeAdd", "Queue", 0.25)
    metrics.event_handled("NodeAdd", 0.5)
    registry.register(ScrapeTimeCollector(StubState()))
    metrics.cache_size(nodes=5, pods=6, assumed_pods=7)
    page = text(registry)
    for line in (
        'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1.0',
        'scheduler_scheduling_attempt_duration_seconds_sum{profile="default-scheduler",result="scheduled"} 0.5',
        "scheduler_scheduling_algorithm_duration_seconds_sum 0.25",
        "scheduler_pod_scheduling_attempts_sum 42.0",
        'scheduler_pod_scheduling_sli_duration_seconds_sum{attempts="2"} 1.5',
        'scheduler_pod_scheduling_sli_duration_seconds_sum{attempts="16+"} 1.5',
        'scheduler_pending_pods{queue="gated"} 4.0',
        'scheduler_queue_incoming_pods_total{event="UnscheduledPodAdd",queue="active"} 1.0',
        "scheduler_preemption_attempts_total 2.0",
        "scheduler_pod_scheduled_after_flush_total 1.0",
        'scheduler_queueing_hint_execution_duration_seconds_sum{event="NodeAdd",hint="Queue",plugin="NodeName"} 0.25',
        'scheduler_event_handling_duration_seconds_sum{event="NodeAdd"} 0.5',
        'scheduler_inflight_events{event="PodPopped"} 2.0',
        'scheduler_unschedulable_pods{plugin="NodeName",profile="default-scheduler"} 3.0',
        'scheduler_plugin_evaluation_total{extension_point="Filter",plugin="NodeName",profile="default-scheduler"} 4.0',
        'scheduler_goroutines{operation="binding"} 5.0',
        "scheduler_preemption_victims_count 2.0",
        "scheduler_preemption_victims_sum 5.0",
        'scheduler_preemption_goroutines_execution_total{result="error"} 1.0',
        'scheduler_preemption_goroutines_duration_seconds_sum{result="error"} 0.25',
        'scheduler_volume_scheduling_stage_error_total{operation="bind"} 1.0',
        'scheduler_permit_wait_duration_seconds_sum{result="allowed"} 0.5',
        'scheduler_cache_size{type="assumed_pods"} 7.0',
        'scheduler_resourceclaim_creates_total{status="success"} 1.0',
        'scheduler_resourceclaim_creates_total{status="failure"} 1.0',
        "scheduler_dra_bindingconditions_wait_duration_seconds_sum"
        '{driver="gpu.example.com",profile="default-scheduler",status="timeout"} 2.5',
        "scheduler_dra_bindingconditions_allocations_total"
        '{driver="gpu.example.com",profile="default-scheduler",status="timeout"} 1.0',
    ):
        assert line in page


def test_metrics_of_pod_groups_need_their_feature_gate():
    for enabled in (True, False):
        registry = CollectorRegistry()
        metrics = PrometheusSchedulerMetrics(registry, FeatureGates({"GenericWorkload": enabled}))
        metrics.pod_group_attempt("waiting_on_preemption", "default-scheduler", 0.5)
        metrics.pod_group_algorithm(0.25)
        labels = '{profile="default-scheduler",result="waiting_on_preemption"}'
        for line in (
            f"scheduler_podgroup_schedule_attempts_total{labels} 1.0",
            f"scheduler_podgroup_scheduling_attempt_duration_seconds_sum{labels} 0.5",
            "scheduler_podgroup_scheduling_algorithm_duration_seconds_sum 0.25",
        ):
            assert (line in text(registry)) is enabled
        assert ("scheduler_podgroup" in text(registry)) is enabled


def test_metrics_of_async_preemption_need_its_feature_gate():
    for enabled in (True, False):
        registry = CollectorRegistry()
        metrics = PrometheusSchedulerMetrics(registry, FeatureGates({"SchedulerAsyncPreemption": enabled}))
        metrics.victims_evicted("success", 0.1)
        assert ("scheduler_preemption_goroutines" in text(registry)) is enabled
