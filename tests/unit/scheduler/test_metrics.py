"""Metrics of a running scheduler."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kubeloop.process.metrics.scheduler_metrics import PrometheusSchedulerMetrics, ScrapeTimeCollector

pytestmark = pytest.mark.virtual_time

PROFILE = {"profile": "default-scheduler"}


async def test_event_hint_and_evaluation_metrics(cluster: Any, scheduling: Any) -> None:
    registry = CollectorRegistry()

    def sample(name: str, **labels: str) -> float:
        return registry.get_sample_value(f"scheduler_{name}", labels) or 0.0

    cluster.node("a", cpu="1")
    cluster.pod("small")
    cluster.pod("large", cpu="2")
    async with scheduling(metrics=PrometheusSchedulerMetrics(registry)) as scheduler:
        registry.register(ScrapeTimeCollector(scheduler.gauges))
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
