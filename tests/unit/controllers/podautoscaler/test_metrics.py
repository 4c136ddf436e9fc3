"""horizontal_pod_autoscaler_controller_* metrics, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.controllers.podautoscaler.horizontal_controller import HorizontalController
from kubeloop.controllers.podautoscaler.metrics import AutoscalerMetrics
from kubeloop.kube.objects.resources import HORIZONTAL_POD_AUTOSCALERS
from support.objects.autoscaled_pods import add_autoscaler, add_running_pods, add_target, autoscaler_context
from support.simulation.metric_values import RecordedMetrics

pytestmark = pytest.mark.virtual_time
PREFIX = "horizontal_pod_autoscaler_controller_"


@pytest.fixture
async def apiserver(metrics_apiserver, start):
    await start(metrics_apiserver.informers, HorizontalController(autoscaler_context(metrics_apiserver)))
    return metrics_apiserver


async def test_scaling_up_is_counted(apiserver):
    add_target(apiserver, 2)
    add_running_pods(apiserver, {"a": "100m", "b": "80m"})
    add_autoscaler(apiserver)
    await asyncio.sleep(16)
    assert apiserver.metrics.values(PREFIX) == {
        "reconciliations_total,scale_up,none": 1,
        "reconciliation_duration_seconds_count,scale_up,none": 1,
        "metric_computation_total,scale_up,none,Resource": 1,
        "metric_computation_duration_seconds_count,scale_up,none,Resource": 1,
        "num_horizontal_pod_autoscalers": 1,
        "desired_replicas,ns,web": 4,
    }
    await apiserver.client.delete(HORIZONTAL_POD_AUTOSCALERS, "web", "ns")
    await asyncio.sleep(1)
    assert apiserver.metrics.values(PREFIX)["num_horizontal_pod_autoscalers"] == 0


async def test_missing_target_is_an_internal_error(apiserver):
    add_autoscaler(apiserver)
    await asyncio.sleep(16)
    assert apiserver.metrics.values(PREFIX + "reconciliations_total") == {",none,internal": 1}


async def test_missing_usage_is_an_internal_error(apiserver):
    add_target(apiserver, 1)
    add_running_pods(apiserver, {"a": ""})
    add_autoscaler(apiserver)
    await asyncio.sleep(16)
    assert apiserver.metrics.values(PREFIX + "metric_computation_total") == {",none,internal,Resource": 1}


@pytest.mark.parametrize(("change", "action"), [(2, "scale_up"), (-1, "scale_down"), (0, "none")])
def test_action_is_the_sign_of_the_change(change: int, action: str):
    recorded = RecordedMetrics()
    AutoscalerMetrics(recorded).computed("Object", change, "none", 0.1)
    assert recorded.values(PREFIX + "metric_computation_total") == {f",{action},none,Object": 1}
