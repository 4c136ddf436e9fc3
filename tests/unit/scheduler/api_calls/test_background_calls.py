"""Metrics of API calls in the background, with the feature gate SchedulerAsyncAPICalls on and off."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.process.metrics.metrics_registry import PrometheusFamilies
from kubeloop.scheduler.metrics import SchedulerMetrics
from support.apiserver.faulty_transport import injected_error

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("enabled", [True, False])
async def test_calls_are_measured_if_the_gate_is_on(enabled: bool, cluster: Any, scheduling: Any) -> None:
    registry = CollectorRegistry()
    gates = {"SchedulerAsyncAPICalls": enabled}
    cluster.node("a", cpu="1")
    failures = [injected_error(500)]
    cluster.server.transport.reject = lambda method, path: (
        failures.pop() if failures and path.endswith("/binding") else None
    )
    async with scheduling(metrics=SchedulerMetrics(PrometheusFamilies(registry), FeatureGates(gates)), gates=gates):
        cluster.pod("small", priority=10)
        cluster.pod("large", cpu="2")
        await asyncio.sleep(10)
        assert cluster.node_of("default/small") == "a"
        assert cluster.patches, "statuses are patched with both settings"
    families = {family.name for family in registry.collect()}
    assert ("scheduler_async_api_call_execution_duration_seconds" in families) is enabled
    assert ("scheduler_pending_async_api_calls" in families) is enabled

    def count(call: str, result: str) -> float | None:
        labels = {"call_type": call, "result": result}
        seconds = registry.get_sample_value("scheduler_async_api_call_execution_duration_seconds_count", labels)
        assert seconds == registry.get_sample_value("scheduler_async_api_call_execution_total", labels)
        return seconds

    expected = (1.0, 1.0) if enabled else (None, None)
    assert (count("pod_binding", "error"), count("pod_binding", "success")) == expected
    assert count("pod_status_patch", "success") == (float(len(cluster.patches)) if enabled else None)
    pending = registry.get_sample_value("scheduler_pending_async_api_calls", {"call_type": "pod_status_patch"})
    assert pending == (0.0 if enabled else None)
