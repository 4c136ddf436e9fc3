"""The HorizontalPodAutoscaler controller with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.controllers.podautoscaler.horizontal_controller import HorizontalController
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.resources import HORIZONTAL_POD_AUTOSCALERS, PODS
from support.apiserver.faulty_transport import SentRequest
from support.objects.autoscaled_pods import (
    MERGE_PATCH,
    add_autoscaler,
    add_running_pods,
    add_target,
    autoscaler_context,
    conditions,
    reasons,
    replicas,
    status,
)

pytestmark = pytest.mark.virtual_time

PERIOD = 15


@pytest.fixture
async def apiserver(metrics_apiserver, start):
    await start(metrics_apiserver.informers, HorizontalController(autoscaler_context(metrics_apiserver)))
    return metrics_apiserver


async def test_target_is_scaled_up_after_one_sync_period(apiserver):
    add_target(apiserver, 2)
    add_running_pods(apiserver, {"a": "100m", "b": "80m"})
    add_autoscaler(apiserver)
    await asyncio.sleep(PERIOD - 1)
    assert replicas(apiserver) == 2
    await asyncio.sleep(2)
    assert replicas(apiserver) == 4
    written = status(apiserver)
    assert (written["currentReplicas"], written["desiredReplicas"]) == (2, 4)
    assert written["currentMetrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 90, "averageValue": "90m"}}}
    ]
    assert "lastScaleTime" in written
    assert conditions(apiserver) == {
        "AbleToScale": ("True", "SucceededRescale"),
        "ScalingActive": ("True", "ValidMetricFound"),
        "ScalingLimited": ("False", "DesiredWithinRange"),
    }
    assert reasons(apiserver) == ["SuccessfulRescale"]


async def test_scale_down_waits_for_the_stabilization_window(apiserver):
    add_target(apiserver, 4)
    add_running_pods(apiserver, dict.fromkeys("abcd", "10m"))
    add_autoscaler(apiserver)
    await asyncio.sleep(280)
    assert replicas(apiserver) == 4
    assert conditions(apiserver)["AbleToScale"] == ("True", "ScaleDownStabilized")
    await asyncio.sleep(60)
    assert replicas(apiserver) == 1


async def test_each_autoscaler_is_synced_once_per_period(apiserver):
    add_target(apiserver, 1)
    add_running_pods(apiserver, {"a": "50m"})
    add_autoscaler(apiserver)
    await asyncio.sleep(5 * PERIOD + 5)
    patched = [path for path in apiserver.written("PATCH") if path.endswith("/status")]
    assert len(patched) == 1  # all later syncs find the same status
    annotation = {"metadata": {"annotations": {"kwok.x-k8s.io/usage-cpu": "200m"}}}
    apiserver.api.succeed("PATCH", PODS.path("ns", "a"), annotation, content_type=MERGE_PATCH)
    await asyncio.sleep(PERIOD)
    assert replicas(apiserver) == 4


async def test_two_autoscalers_of_the_same_pods_are_ambiguous(apiserver):
    add_target(apiserver, 1)
    add_running_pods(apiserver, {"a": "200m"})
    add_autoscaler(apiserver)
    await asyncio.sleep(1)
    add_autoscaler(apiserver, name="other")
    await asyncio.sleep(2 * PERIOD)
    for name in ("web", "other"):
        assert conditions(apiserver, name)["ScalingActive"] == ("False", "AmbiguousSelector")
    apiserver.delete(HORIZONTAL_POD_AUTOSCALERS, "other")
    await asyncio.sleep(2 * PERIOD)
    assert conditions(apiserver)["ScalingActive"][0] == "True"


async def test_deleted_and_recreated_autoscaler_has_no_history(apiserver):
    add_target(apiserver, 4)
    add_running_pods(apiserver, dict.fromkeys("abcd", "50m"))
    add_autoscaler(apiserver)
    await asyncio.sleep(2 * PERIOD)
    apiserver.delete(HORIZONTAL_POD_AUTOSCALERS, "web")
    await asyncio.sleep(2 * PERIOD)
    add_autoscaler(apiserver, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    await asyncio.sleep(PERIOD + 1)
    assert conditions(apiserver)["AbleToScale"] == ("True", "ReadyForNewScale")


async def test_failed_status_write_is_reported_and_retried(apiserver):
    def reject(method: str, path: str) -> errors.StatusError | None:
        return errors.internal_error("etcd") if method == "PATCH" and path.endswith("/status") else None

    apiserver.transport.reject = reject
    add_target(apiserver, 1)
    add_running_pods(apiserver, {"a": "50m"})
    add_autoscaler(apiserver)
    await asyncio.sleep(PERIOD + 5)
    assert reasons(apiserver)[-1] == "FailedUpdateStatus"
    assert sum(apiserver.metrics.values("kubeloop_reconcile_errors").values()) == 1
    apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(2 * PERIOD)
    assert conditions(apiserver)["ScalingActive"][0] == "True"


async def test_cancelled_sync_writes_nothing(metrics_apiserver, start):
    async def hang(request: SentRequest) -> None:
        if "metrics.k8s.io" in request.path:
            await asyncio.Event().wait()

    metrics_apiserver.transport.before_request = hang
    add_target(metrics_apiserver, 1)
    add_autoscaler(metrics_apiserver)
    await start(metrics_apiserver.informers)
    controller = asyncio.ensure_future(HorizontalController(autoscaler_context(metrics_apiserver)).run())
    await asyncio.sleep(PERIOD + 1)
    assert "metrics.k8s.io" in metrics_apiserver.transport.sent[-1].path
    controller.cancel()
    await asyncio.wait([controller])
    assert metrics_apiserver.written("PATCH") == []
