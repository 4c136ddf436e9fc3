"""One sync of an autoscaler: conditions, events and the replicas of its target."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.podautoscaler.autoscaler_sync import (
    ABLE_TO_SCALE,
    SCALED_TO_ZERO,
    SCALING_ACTIVE,
    SCALING_LIMITED,
)
from kubeloop.controllers.podautoscaler.horizontal_controller import HorizontalController
from kubeloop.devcluster.api import errors
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import HORIZONTAL_POD_AUTOSCALERS, NAMESPACES
from support.apiserver.fake_apiserver import FakeApiServer
from support.objects.autoscaled_pods import (
    CPU_METRIC,
    add_autoscaler,
    add_running_pods,
    add_target,
    autoscaler_context,
    conditions,
    reasons,
    replicas,
    set_replicas,
    status,
)

pytestmark = pytest.mark.virtual_time

EXTERNAL = {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "5"}}}


@pytest.fixture
async def apiserver(metrics_apiserver, start):
    await start(metrics_apiserver.informers, HorizontalController(autoscaler_context(metrics_apiserver)))
    return metrics_apiserver


async def synced() -> None:
    await asyncio.sleep(16)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        pytest.param(
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "no"},
            'deployments.apps "no" not found',
            id="no such object",
        ),
        pytest.param(
            {"apiVersion": "example.com/v1", "kind": "Gizmo", "name": "x"},
            'no matches for kind "Gizmo" in group "example.com"',
            id="no such kind",
        ),
        pytest.param(
            {"apiVersion": "batch/v1", "kind": "Job", "name": "x"},
            "the server could not find the requested resource",
            id="no subresource scale",
        ),
    ],
)
async def test_target_without_scale_is_reported(apiserver, target, message):
    add_autoscaler(apiserver, scaleTargetRef=target)
    await synced()
    (condition,) = status(apiserver)["conditions"]
    assert condition["message"] == f"the HPA controller was unable to get the target's current scale: {message}"
    assert conditions(apiserver) == {ABLE_TO_SCALE: ("False", "FailedGetScale")}
    assert reasons(apiserver) == ["FailedGetScale"]


@pytest.mark.parametrize(
    ("current", "expected", "reason"),
    [
        pytest.param(12, 10, "Current number of replicas above Spec.MaxReplicas", id="above maximum"),
        pytest.param(1, 3, "Current number of replicas below Spec.MinReplicas", id="below minimum"),
    ],
)
async def test_replicas_outside_the_range_are_corrected_without_metrics(apiserver, current, expected, reason):
    add_target(apiserver, current)
    add_autoscaler(apiserver, minReplicas=3)
    await synced()
    assert replicas(apiserver) == expected
    (event,) = apiserver.context.events.events
    assert event.message == f"New size: {expected}; reason: {reason}"


async def test_target_without_replicas_is_not_scaled(apiserver):
    add_target(apiserver, 0)
    add_autoscaler(apiserver)
    await synced()
    assert replicas(apiserver) == 0
    assert conditions(apiserver)[SCALING_ACTIVE] == ("False", "ScalingDisabled")


async def test_missing_usage_is_a_condition_with_the_message_of_kube_controller_manager(apiserver):
    add_target(apiserver, 1)
    add_running_pods(apiserver, {"a": ""})
    add_autoscaler(apiserver)
    await synced()
    active = status(apiserver)["conditions"][1]
    assert active["message"] == (
        "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for "
        "resource cpu: no metrics returned from resource metrics API"
    )
    assert status(apiserver)["currentMetrics"] == [{"type": ""}]
    assert reasons(apiserver) == ["FailedGetResourceMetric", "FailedComputeMetricsReplicas"]
    assert apiserver.context.events.events[1].message == (
        "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: failed to get "
        "cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API"
    )


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        pytest.param("200m", 8, id="scales up by the others"),
        pytest.param("10m", 2, id="does not scale down"),
    ],
)
async def test_one_invalid_metric_prevents_only_a_scale_down(apiserver, usage, expected):
    add_target(apiserver, 2)
    add_running_pods(apiserver, {"a": usage, "b": usage})
    add_autoscaler(apiserver, EXTERNAL, CPU_METRIC, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    await synced()
    await synced()
    assert replicas(apiserver) == expected
    assert "FailedGetExternalMetric" in reasons(apiserver)


@pytest.mark.parametrize("limit", [{"maxReplicas": 2}, {"minReplicas": 2}])
async def test_replicas_at_a_limit_of_the_range_are_scaled_by_metrics(apiserver, limit):
    usage = "10m" if "maxReplicas" in limit else "200m"
    add_target(apiserver, 2)
    add_running_pods(apiserver, {"a": usage, "b": usage})
    add_autoscaler(apiserver, **limit, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    await synced()
    assert (replicas(apiserver) < 2) is ("maxReplicas" in limit)
    assert replicas(apiserver) != 2


async def test_behavior_limits_the_change(apiserver):
    policies = [{"type": "Pods", "value": 1, "periodSeconds": 60}]
    add_target(apiserver, 2)
    add_running_pods(apiserver, {"a": "200m", "b": "200m"})
    add_autoscaler(apiserver, behavior={"scaleUp": {"policies": policies}})
    await synced()
    assert replicas(apiserver) == 3
    assert conditions(apiserver)[SCALING_LIMITED] == ("True", "ScaleUpLimit")
    await synced()
    assert replicas(apiserver) == 3
    await asyncio.sleep(60)
    assert replicas(apiserver) == 4


async def test_tolerance_of_the_behavior_applies(apiserver):
    add_target(apiserver, 2)
    add_running_pods(apiserver, {"a": "60m", "b": "60m"})
    add_autoscaler(apiserver, behavior={"scaleUp": {"tolerance": "0.3"}})
    await synced()
    assert replicas(apiserver) == 2


async def test_failed_scaling_is_reported(apiserver):
    def reject(method: str, path: str) -> errors.StatusError | None:
        return errors.internal_error("etcd") if method == "PUT" and path.endswith("/scale") else None

    apiserver.transport.reject = reject
    add_target(apiserver, 12)
    add_autoscaler(apiserver)
    await asyncio.sleep(60)  # the client retries
    assert conditions(apiserver) == {ABLE_TO_SCALE: ("False", "FailedUpdateScale")}
    assert reasons(apiserver)[0] == "FailedRescale"
    assert status(apiserver)["currentReplicas"] == 12


@pytest.fixture
async def external_value(start) -> Any:
    """Start the controller with HPAScaleToZero and an external metric; return the server and the metric's value."""
    server = FakeApiServer(gates=FeatureGates({"HPAScaleToZero": True}), serves_metrics=True)
    server.add(NAMESPACES, "ns")
    value = {"value": "0"}
    context = autoscaler_context(server)

    async def raw(method: str, target: str, **options: Any) -> Any:
        if target.startswith("/apis/external.metrics.k8s.io"):
            item = b'{"items":[{"metricName":"queue","timestamp":"2026-01-31T12:00:00Z","value":"%s"}]}'
            return type("Response", (), {"body": item % value["value"].encode()})
        return await original(method, target, **options)

    original = context.client.raw
    context.client.raw = raw
    await start(server.informers, HorizontalController(context))
    return server, value


async def test_target_is_scaled_to_zero_and_back_under_the_gate(external_value):
    server, value = external_value
    add_target(server, 1)
    add_running_pods(server, {"a": ""})
    add_autoscaler(server, EXTERNAL, minReplicas=0, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    await synced()
    assert replicas(server) == 0
    assert conditions(server)[SCALED_TO_ZERO] == ("True", "ScaledToZero")
    value["value"] = "12"
    await synced()
    assert replicas(server) == 3
    assert conditions(server)[SCALED_TO_ZERO] == ("False", "NotScaledToZero")
    set_replicas(server, 0)  # by a user
    await synced()
    assert replicas(server) == 0
    assert conditions(server)[SCALING_ACTIVE] == ("False", "ScalingDisabled")


async def test_target_at_zero_whose_minimum_is_raised_is_scaled_by_its_metrics(external_value):
    server, value = external_value
    add_target(server, 1)
    add_running_pods(server, {"a": ""})
    add_autoscaler(server, EXTERNAL, minReplicas=0, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    await synced()
    assert replicas(server) == 0
    value["value"] = "12"
    path = HORIZONTAL_POD_AUTOSCALERS.path("ns", "web")
    server.api.succeed("PATCH", path, {"spec": {"minReplicas": 2}}, content_type="application/merge-patch+json")
    await synced()
    assert replicas(server) == 3
