"""Metrics of autoscalers: recorded from their status, served again to the controller's client."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.controllers.podautoscaler.metrics_client import MetricsClient
from kubeloop.controllers.podautoscaler.replica_calculation import MetricError
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.objects.api_types import LabelSelector
from kubeloop.kube.objects.resources import HORIZONTAL_POD_AUTOSCALERS, PODS, REPLICA_SETS
from kubeloop.planning.recorded_metrics import MetricsTransport, RecordedMetrics
from kubeloop.testing.virtual_time import VirtualClock
from support.apiserver.fake_apiserver import FakeApiServer

pytestmark = pytest.mark.virtual_time
SELECTOR = {"matchLabels": {"queue": "a"}}
REPLICA_SET = {
    "metadata": {
        "name": "web-1",
        "namespace": "ns",
        "uid": "rs",
        "ownerReferences": [{"kind": "Deployment", "name": "web", "uid": "d", "controller": True}],
    },
    "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {}},
}


def pod(name: str, *, ready: str = "True", labels: str = "web") -> dict[str, Any]:
    owner = {"kind": "ReplicaSet", "name": "web-1", "uid": "rs", "controller": True}
    metadata = {"name": name, "namespace": "ns", "uid": name, "labels": {"app": labels}, "ownerReferences": [owner]}
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2025-12-31T00:00:00Z"}
    spec = {"containers": [{"name": "app"}, {"name": "proxy"}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running", "conditions": [condition]}}


def autoscaler(*metrics: dict[str, Any], replicas: int = 2) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "namespace": "ns"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}},
        "status": {"currentReplicas": replicas, "currentMetrics": list(metrics)},
    }


def resource(name: str, average: str) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": name, "current": {"averageValue": average}}}


def named(type_: str, name: str, **current: str) -> dict[str, Any]:
    part = {"metric": {"name": name, "selector": SELECTOR}, "current": current, "describedObject": {"name": "door"}}
    return {"type": type_, type_.lower(): part}


def recorded(*metrics: dict[str, Any]) -> RecordedMetrics:
    """Return the metrics of an autoscaler of two ready pods."""
    series = RecordedMetrics(datetime(2026, 1, 1, tzinfo=UTC))
    series.observe(0.0, REPLICA_SETS, REPLICA_SET)
    for name in ("a", "b"):
        series.observe(0.0, PODS, pod(name))
    series.observe(0.0, HORIZONTAL_POD_AUTOSCALERS, autoscaler(*metrics))
    return series


def client(metrics: RecordedMetrics, *pods: dict[str, Any]) -> MetricsClient:
    """Return the client of a cluster with these pods."""
    api = FakeApiServer(serves_metrics=True)
    for resource_, objects in ((REPLICA_SETS, [REPLICA_SET]), (PODS, pods)):
        for obj in objects:
            api.store.table(resource_).create(f"ns/{obj['metadata']['name']}", obj)
    clock = VirtualClock()
    transport = MetricsTransport(api.transport, metrics, api.store, clock)
    return MetricsClient(ApiClient(transport, clock=clock, rng=random.Random(0)))


async def test_usage_is_divided_among_the_ready_pods():
    metrics = client(recorded(resource("cpu", "90m")), pod("x"), pod("y"), pod("z"), pod("new", ready="False"))
    usage = await metrics.resource("cpu", "ns", "app=web", "")
    assert {name: metric.value for name, metric in usage.items()} == {"x": 60, "y": 60, "z": 60, "new": 60}


async def test_usage_of_one_container_is_its_own():
    container = {"name": "memory", "container": "proxy", "current": {"averageValue": "1k"}}
    whole = resource("memory", "5k")
    metrics = client(recorded(whole, {"type": "ContainerResource", "containerResource": container}), pod("x"), pod("y"))
    for name, thousands in (("", 5), ("proxy", 1), ("app", 4)):
        usage = await metrics.resource("memory", "ns", "app=web", name)
        assert usage["x"].value == thousands * 1_000_000, name


async def test_metric_of_pods_is_divided_and_others_are_not():
    metrics = client(
        recorded(
            named("Pods", "requests", averageValue="10"),
            named("Object", "visitors", value="7"),
            named("External", "messages", averageValue="15"),
        ),
        pod("x"),
    )
    selector = LabelSelector(match_labels={"queue": "a"})
    assert (await metrics.of_pods("requests", "ns", "app=web", selector))["x"].value == 20_000
    assert await metrics.of_object("visitors", "ns", "services", "door", selector) == 7_000
    assert await metrics.external("messages", "ns", selector) == 30_000


async def test_pods_of_other_workloads_have_no_metrics():
    other = pod("other", labels="other")
    other["metadata"]["ownerReferences"] = []
    metrics = client(recorded(resource("cpu", "90m")), other)
    with pytest.raises(MetricError):
        await metrics.resource("cpu", "ns", "app=other", "")
    with pytest.raises(MetricError):
        await metrics.external("messages", "ns", None)


async def test_usage_that_is_not_recorded_is_that_of_the_cluster():
    used = pod("used")
    used["metadata"]["annotations"] = {"kwok.x-k8s.io/usage-cpu": "70m"}
    metrics = client(RecordedMetrics(datetime(2026, 1, 1, tzinfo=UTC)), used)
    assert (await metrics.resource("cpu", "ns", "app=web", "app"))["used"].value == 70


def test_metrics_change_with_the_nearest_sample():
    series = recorded(resource("cpu", "90m"))
    series.observe(15.2, HORIZONTAL_POD_AUTOSCALERS, autoscaler(resource("cpu", "50m")))
    series.observe(30.2, HORIZONTAL_POD_AUTOSCALERS, autoscaler())
    at = [[*series.at("ns", "Deployment/web", seconds).values()] for seconds in (0.0, 7.0, 15.0, 22.0, 30.0)]
    assert at == [[90], [90], [50], [50], []]


def test_pods_count_from_a_window_after_they_are_ready_until_they_end():
    series = recorded()
    late = pod("late")
    late["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:10Z"
    series.observe(10.4, PODS, late)
    series.observe(60.0, PODS, pod("a", ready="False"))
    series.observe(70.0, PODS, late, deleted=True)
    counts = [series.pods_at("ns", "Deployment/web", seconds) for seconds in (0.0, 24.9, 25.0, 60.0, 70.0)]
    assert counts == [2, 2, 3, 2, 1]
    assert series.pods_at("ns", "Deployment/other", 0.0) == 0
