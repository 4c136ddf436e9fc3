"""Metrics of the scheduler: names, feature gates, and those of a running one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.process.metrics.metrics_registry import PrometheusFamilies
from kubeloop.process.metrics.scheduler_gauges import SchedulerGaugesCollector
from kubeloop.scheduler.metrics import SchedulerMetrics

pytestmark = pytest.mark.virtual_time

PROFILE = {"profile": "default-scheduler"}


class RecordedBuckets(PrometheusFamilies):
    """Records the buckets of the histograms that are created."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self.buckets: dict[str, list[float]] = {}

    def histogram(self, name: str, *arguments: Any, buckets: Any, **options: Any) -> Any:
        self.buckets[name] = [*buckets]
        return super().histogram(name, *arguments, buckets=buckets, **options)


async def test_event_hint_and_evaluation_metrics(cluster: Any, scheduling: Any) -> None:
    registry = CollectorRegistry()

    def sample(name: str, **labels: str) -> float:
        return registry.get_sample_value(f"scheduler_{name}", labels) or 0.0

    cluster.node("a", cpu="1")
    cluster.pod("small")
    cluster.pod("large", cpu="2")
    async with scheduling(metrics=SchedulerMetrics(PrometheusFamilies(registry))) as scheduler:
        registry.register(SchedulerGaugesCollector(scheduler.gauges))
        await asyncio.sleep(2)
        assert cluster.node_of("default/small") == "a"
        assert sample("unschedulable_pods", plugin="NodeResourcesFit", **PROFILE) == 1
        assert sample("plugin_evaluation_total", plugin="NodeResourcesFit", extension_point="Filter", **PROFILE) == 2
        # Neither pod has host ports, so that the plugin skips them.
        assert sample("plugin_evaluation_total", plugin="NodePorts", extension_point="Filter", **PROFILE) == 0
        assert sample("event_handling_duration_seconds_count", event="AssignedPodAdd") == 1
        cluster.node("b", cpu="4")
        await asyncio.sleep(15)
        assert cluster.node_of("default/large") == "b"
        assert sample("unschedulable_pods", plugin="NodeResourcesFit", **PROFILE) == 0
        assert sample("event_handling_duration_seconds_count", event="NodeAdd") == 2
        hints = [
            sample_.value
            for family in registry.collect()
            for sample_ in family.samples
            if sample_.name == "scheduler_queueing_hint_execution_duration_seconds_count"
        ]
        assert sum(hints) >= 1
        assert sample("pod_scheduled_after_flush_total") == 0
        assert sample("inflight_events", event="PodPopped") == 0
        assert sample("goroutines", operation="binding") == 0


def test_scheduler_metrics_have_kube_scheduler_names():
    registry = CollectorRegistry()
    metrics = SchedulerMetrics(PrometheusFamilies(registry))
    metrics.attempt("scheduled", "default-scheduler", 0.5)
    metrics.algorithm(0.25)
    metrics.pod_scheduled(2, 1.5, after_flush=False)
    metrics.pod_scheduled(40, 1.5, after_flush=True)
    metrics.count_pending_pods(active=lambda: 1, backoff=lambda: 2, unschedulable=lambda: 3, gated=lambda: 4)
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
    metrics.count_cached(nodes=lambda: 5, pods=lambda: 6, assumed_pods=lambda: 7)
    page = generate_latest(registry).decode()
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


# first bound, factor and number: metrics.ExponentialBuckets in pkg/scheduler/metrics/metrics.go of v1.36
BUCKETS = {
    "event_handling_duration_seconds": (0.0001, 2, 12),
    "scheduling_attempt_duration_seconds": (0.001, 2, 15),
    "scheduling_algorithm_duration_seconds": (0.001, 2, 15),
    "preemption_victims": (1, 2, 7),
    "pod_scheduling_sli_duration_seconds": (0.01, 2, 20),
    "pod_scheduling_attempts": (1, 2, 5),
    "framework_extension_point_duration_seconds": (0.0001, 2, 12),
    "plugin_execution_duration_seconds": (0.00001, 1.5, 20),
    "queueing_hint_execution_duration_seconds": (0.00001, 1.5, 20),
    "permit_wait_duration_seconds": (0.001, 2, 15),
    "preemption_goroutines_duration_seconds": (0.01, 2, 20),
    "async_api_call_execution_duration_seconds": (0.001, 2, 15),
    "dra_bindingconditions_wait_duration_seconds": (0.1, 2, 14),
    "podgroup_scheduling_attempt_duration_seconds": (0.001, 2, 15),
    "podgroup_scheduling_algorithm_duration_seconds": (0.001, 2, 15),
}


def test_buckets_of_histograms_are_those_of_kube_scheduler():
    families = RecordedBuckets()
    gates = dict.fromkeys(("GenericWorkload", "DRADeviceBindingConditions", "SchedulerAsyncAPICalls"), True)
    SchedulerMetrics(families, FeatureGates(gates))
    assert families.buckets == {
        f"scheduler_{name}": pytest.approx([first * factor**power for power in range(count)])
        for name, (first, factor, count) in BUCKETS.items()
    }


def test_metrics_of_pod_groups_need_their_feature_gate():
    for enabled in (True, False):
        registry = CollectorRegistry()
        metrics = SchedulerMetrics(PrometheusFamilies(registry), FeatureGates({"GenericWorkload": enabled}))
        metrics.pod_group_attempt("waiting_on_preemption", "default-scheduler", 0.5)
        metrics.pod_group_algorithm(0.25)
        labels = '{profile="default-scheduler",result="waiting_on_preemption"}'
        for line in (
            f"scheduler_podgroup_schedule_attempts_total{labels} 1.0",
            f"scheduler_podgroup_scheduling_attempt_duration_seconds_sum{labels} 0.5",
            "scheduler_podgroup_scheduling_algorithm_duration_seconds_sum 0.25",
        ):
            assert (line in generate_latest(registry).decode()) is enabled
        assert ("scheduler_podgroup" in generate_latest(registry).decode()) is enabled


def test_metrics_of_async_preemption_need_its_feature_gate():
    for enabled in (True, False):
        registry = CollectorRegistry()
        metrics = SchedulerMetrics(PrometheusFamilies(registry), FeatureGates({"SchedulerAsyncPreemption": enabled}))
        metrics.victims_evicted("success", 0.1)
        assert ("scheduler_preemption_goroutines" in generate_latest(registry).decode()) is enabled
