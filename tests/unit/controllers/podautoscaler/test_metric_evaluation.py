"""Evaluation of one metric: proposal, status, and the messages of kube-controller-manager."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.controllers.podautoscaler.autoscaler_spec import MetricSpec
from kubeloop.controllers.podautoscaler.metric_evaluation import InvalidMetric, MetricEvaluator, ScaledPods
from kubeloop.controllers.podautoscaler.metrics import AutoscalerMetrics
from kubeloop.controllers.podautoscaler.replica_calculation import MetricError, PodMetric, ReadinessRules, Tolerances
from kubeloop.controllers.podautoscaler.scale_target import ScaleTargets
from kubeloop.kube.metric_families import NO_FAMILIES
from kubeloop.kube.objects.api_types import Pod, convert

pytestmark = pytest.mark.virtual_time

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
PODS = {"a": 30, "b": 50}
ONE_VALUE = 900


class Metrics:
    """Stands in for MetricsClient: the same values from every API, or an error."""

    def __init__(self, error: str = "") -> None:
        self._error = error

    async def resource(self, *arguments: Any) -> dict[str, PodMetric]:
        if self._error:
            raise MetricError(self._error)
        return {name: PodMetric(value, NOW, 0.0) for name, value in PODS.items()}

    of_pods = resource

    async def external(self, *arguments: Any) -> int:
        if self._error:
            raise MetricError(self._error)
        return ONE_VALUE

    of_object = external


def pod(name: str) -> Pod:
    started = "2026-01-31T11:00:00Z"
    status = {
        "phase": "Running",
        "startTime": started,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": started}],
    }
    container = {"name": "main", "resources": {"requests": {"cpu": "100m", "memory": "1"}}}
    return convert(Pod, {"metadata": {"name": name}, "spec": {"containers": [container]}, "status": status})


def resource_metric(type_: str = "Resource", **target: Any) -> dict[str, Any]:
    field = type_[0].lower() + type_[1:]
    container = {"container": "main"} if type_ == "ContainerResource" else {}
    return {"type": type_, field: {"name": "cpu", **container, "target": target}}


def named_metric(type_: str, **target: Any) -> dict[str, Any]:
    described = {"describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"}} if type_ == "Object" else {}
    return {"type": type_, type_.lower(): {"metric": {"name": "m"}, **described, "target": target}}


async def evaluate(client: Any, body: dict[str, Any], error: str = "", pods: str = "ab") -> Any:
    rules = ReadinessRules(300.0, 30.0)
    metrics = AutoscalerMetrics(NO_FAMILIES)
    evaluator = MetricEvaluator(Metrics(error), ScaleTargets(client), rules, metrics, lambda: 0.0, pod_level=True)
    scaled = ScaledPods("ns", [pod(name) for name in pods], "app=web", 2, 2, 2)
    return await evaluator.evaluate(convert(MetricSpec, body), body, scaled, Tolerances(0.1, 0.1), NOW)


@pytest.mark.parametrize(
    ("body", "replicas", "name", "current"),
    [
        pytest.param(
            resource_metric(averageUtilization=20),
            4,
            "cpu resource utilization (percentage of request)",
            {"averageUtilization": 40, "averageValue": "40m"},
            id="utilization",
        ),
        pytest.param(
            resource_metric("ContainerResource", averageUtilization=20),
            4,
            "cpu container resource utilization (percentage of request)",
            {"averageUtilization": 40, "averageValue": "40m"},
            id="container utilization",
        ),
        pytest.param(
            resource_metric(averageValue="10m"), 8, "cpu resource", {"averageValue": "40m"}, id="average value"
        ),
        pytest.param(named_metric("Pods", averageValue="10m"), 8, "pods metric m", {"averageValue": "40m"}, id="pods"),
        pytest.param(
            named_metric("Object", type="Value", value="300m"), 6, "Service metric m", {"value": "900m"}, id="object"
        ),
        pytest.param(
            named_metric("Object", type="AverageValue", averageValue="300m"),
            3,
            "external metric m(nil)",
            {"averageValue": "450m"},
            id="object, average",
        ),
        pytest.param(
            named_metric("External", type="Value", value="300m"),
            6,
            "external metric m(nil)",
            {"value": "900m"},
            id="external",
        ),
        pytest.param(
            named_metric("External", type="AverageValue", averageValue="300m"),
            3,
            "external metric m(nil)",
            {"averageValue": "450m"},
            id="external, average",
        ),
    ],
)
async def test_evaluation(fake_apiserver, body, replicas, name, current):
    evaluation = await evaluate(fake_apiserver.client, body)
    assert (evaluation.replicas, evaluation.name) == (replicas, name)
    (field,) = body.keys() - {"type"}
    source = {key: value for key, value in body[field].items() if key != "target"}
    assert evaluation.status == {"type": body["type"], field: {**source, "current": current}}


@pytest.mark.parametrize(
    ("body", "reason", "prefix", "message"),
    [
        pytest.param(
            resource_metric(averageUtilization=20),
            "FailedGetResourceMetric",
            "failed to get cpu resource metric value",
            "failed to get cpu utilization: unable to get metrics for resource cpu: E",
            id="utilization",
        ),
        pytest.param(
            resource_metric("ContainerResource", averageValue="1"),
            "FailedGetContainerResourceMetric",
            "failed to get main container metric value",
            "failed to get cpu usage: unable to get metrics for resource cpu: E",
            id="container, average value",
        ),
        pytest.param(
            named_metric("Pods", averageValue="1"),
            "FailedGetPodsMetric",
            "failed to get pods metric value",
            "unable to get metric m: E",
            id="pods",
        ),
        pytest.param(
            named_metric("Object", type="Value", value="1"),
            "FailedGetObjectMetric",
            "failed to get object metric value",
            "unable to get metric m: Service on ns s/E",
            id="object",
        ),
        pytest.param(
            named_metric("External", type="AverageValue", averageValue="1"),
            "FailedGetExternalMetric",
            "failed to get m external metric value: failed to get m external metric",
            "unable to get external metric ns/m/nil: E",
            id="external, average",
        ),
    ],
)
async def test_unavailable_metric_has_the_message_of_kube_controller_manager(
    fake_apiserver, body, reason, prefix, message
):
    with pytest.raises(InvalidMetric) as error:
        await evaluate(fake_apiserver.client, body, "E")
    assert (error.value.event_reason, error.value.event_message) == (reason, message)
    assert str(error.value) == f"{prefix}: {message}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(resource_metric(averageValue="1"), "failed to get cpu usage: ", id="average value"),
        pytest.param(resource_metric(averageUtilization=20), "failed to get cpu utilization: ", id="utilization"),
        pytest.param(named_metric("Pods", averageValue="1"), "", id="pods"),
    ],
)
async def test_metric_without_pods_is_an_error(fake_apiserver, body, message):
    with pytest.raises(InvalidMetric) as error:
        await evaluate(fake_apiserver.client, body, pods="")
    assert error.value.event_message == f"{message}no pods returned by selector while calculating replica count"


@pytest.mark.parametrize(
    ("body", "value"),
    [
        pytest.param({"resource": {"name": "memory"}}, "2Ki", id="memory"),
        pytest.param({"resource": {"name": "cpu"}}, "2048", id="cpu"),
        pytest.param({"pods": {"metric": {"name": "m"}}}, "2048", id="pods metric"),
    ],
)
async def test_only_memory_has_binary_units(fake_apiserver, monkeypatch, body, value):
    for name in PODS:
        monkeypatch.setitem(PODS, name, 2048 * 1000)
    ((field, source),) = body.items()
    source["target"] = {"type": "AverageValue", "averageValue": "1"}
    evaluation = await evaluate(fake_apiserver.client, {"type": field.capitalize(), field: source})
    assert evaluation.status[field]["current"]["averageValue"] == value


async def test_unknown_type_is_an_error(fake_apiserver):
    with pytest.raises(InvalidMetric) as error:
        await evaluate(fake_apiserver.client, {"type": "Other"})
    assert (error.value.event_reason, str(error.value)) == (
        "InvalidMetricSourceType",
        'unknown metric source type "Other"',
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            resource_metric(),
            "invalid resource metric source: neither an average utilization target nor an average value",
            id="resource",
        ),
        pytest.param(
            named_metric("Object", type="Value"), "invalid object metric source: neither a value", id="object"
        ),
        pytest.param(
            named_metric("External", type="Value"), "invalid external metric source: neither a value", id="external"
        ),
    ],
)
async def test_metric_without_a_target_is_invalid(fake_apiserver, body, message):
    with pytest.raises(InvalidMetric, match=message):
        await evaluate(fake_apiserver.client, body)
