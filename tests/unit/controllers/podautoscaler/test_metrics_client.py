"""Client of the metrics APIs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.controllers.podautoscaler.metrics_client import MetricsClient, PodMetrics, resource_usage
from kubeloop.controllers.podautoscaler.replica_calculation import MetricError, PodMetric
from kubeloop.kube.errors import ServerUnreachable, from_status
from kubeloop.kube.objects.api_types import ApiStatus, StatusDetails, convert
from support.objects.autoscaled_pods import add_running_pods

pytestmark = pytest.mark.virtual_time

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def pod_metrics(*usages: dict[str, str]) -> PodMetrics:
    containers = [{"name": f"c{number}", "usage": usage} for number, usage in enumerate(usages)]
    return convert(PodMetrics, {"timestamp": "2026-01-31T12:00:00Z", "window": "30s", "containers": containers})


@pytest.mark.parametrize(
    ("subject", "container", "milli"),
    [
        pytest.param(pod_metrics({"cpu": "1"}, {"cpu": "500m"}), "", 1500, id="sum of all containers"),
        pytest.param(pod_metrics({"cpu": "1"}, {"cpu": "500m"}), "c1", 500, id="one container"),
        pytest.param(pod_metrics({"cpu": "1"}, {"memory": "1Mi"}), "", None, id="incomplete"),
        pytest.param(pod_metrics({"memory": "1"}), "c0", None, id="container without this resource"),
        pytest.param(pod_metrics(), "", None, id="no containers"),
    ],
)
def test_resource_usage(subject, container, milli):
    expected = {} if milli is None else {"a": PodMetric(milli, AT, 30.0)}
    assert resource_usage({"a": subject}, "cpu", container) == expected


async def test_resource_metrics_of_selected_pods(metrics_apiserver):
    add_running_pods(metrics_apiserver, {"a": "20m"}, app="web")
    add_running_pods(metrics_apiserver, {"b": "30m"}, app="db")
    metrics = await MetricsClient(metrics_apiserver.client).resource("cpu", "ns", "app=web", "")
    assert {name: metric.value for name, metric in metrics.items()} == {"a": 20}


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        pytest.param(
            "resource",
            ("cpu", "ns", "app=web", ""),
            "unable to fetch metrics from resource metrics API: the server could not find the requested resource "
            "(get pods.metrics.k8s.io)",
            id="resource",
        ),
        pytest.param(
            "of_pods",
            ("rate", "ns", "app=web", None),
            "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered",
            id="pods",
        ),
        pytest.param(
            "of_object",
            ("rate", "ns", "services", "x", None),
            "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered",
            id="object",
        ),
        pytest.param(
            "external",
            ("queue", "ns", None),
            "unable to fetch metrics from external metrics API: the server could not find the requested resource "
            "(get queue.external.metrics.k8s.io)",
            id="external",
        ),
    ],
)
async def test_unserved_metrics_api_is_an_error(fake_apiserver, method, arguments, message):
    with pytest.raises(MetricError) as error:
        await getattr(MetricsClient(fake_apiserver.client), method)(*arguments)
    assert str(error.value) == message


class MetricsAdapter:
    """A client of a server with the custom and the external metrics API; `targets` are the requested ones."""

    def __init__(self, *items: str) -> None:
        self._items = items
        self.targets: list[str] = []

    async def raw(self, method: str, target: str) -> Any:
        self.targets.append(target)
        body = f'{{"items":[{",".join(self._items)}]}}'
        if target == "/apis/custom.metrics.k8s.io":
            body = '{"versions":[{"version":"v1beta1"},{"version":"v1beta2"}]}'
        return type("Response", (), {"body": body.encode()})


ITEM = '{"describedObject":{"name":"a"},"timestamp":"2026-01-31T12:00:00Z","value":"1500m"}'


async def test_custom_metrics_of_pods():
    adapter = MetricsAdapter(ITEM)
    metrics = await MetricsClient(adapter).of_pods("rate", "ns", "app=web", None)
    assert metrics == {"a": PodMetric(1500, AT, 60.0)}
    path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns/pods/*/rate?labelSelector=app%3Dweb"
    assert adapter.targets[-1] == path


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        pytest.param("ingresses.networking.k8s.io", "ns/ingresses.networking.k8s.io/x/rate", id="object"),
        pytest.param("namespaces", "ns/metrics/rate", id="namespace"),
    ],
)
async def test_custom_metric_of_an_object(resource, path):
    adapter = MetricsAdapter(ITEM)
    assert await MetricsClient(adapter).of_object("rate", "ns", resource, "x", None) == 1500
    assert adapter.targets[-1] == f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{path}"


async def test_custom_metric_of_an_object_has_one_value():
    with pytest.raises(MetricError, match="returned 2 results when we asked for exactly one"):
        await MetricsClient(MetricsAdapter(ITEM, ITEM)).of_object("rate", "ns", "services", "x", None)


async def test_external_metric_is_the_sum_of_its_values():
    assert await MetricsClient(MetricsAdapter(ITEM, ITEM)).external("queue", "ns", None) == 3000
    with pytest.raises(MetricError, match="no metrics returned from external metrics API"):
        await MetricsClient(MetricsAdapter()).external("queue", "ns", None)


class FailingAdapter(MetricsAdapter):
    """A client of a server whose custom metrics cannot be read."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def raw(self, method: str, target: str) -> Any:
        response = await super().raw(method, target)
        if target != "/apis/custom.metrics.k8s.io":
            raise self._error
        return response


@pytest.mark.parametrize(
    ("error", "message"),
    [
        pytest.param(
            from_status(ApiStatus(code=404, message="no such metric", details=StatusDetails(name="x"))),
            "no such metric",
            id="no such metric",
        ),
        pytest.param(
            from_status(ApiStatus(code=404, message="404 page not found")),
            "the server could not find the requested resource",
            id="nothing is served there",
        ),
        pytest.param(from_status(ApiStatus(code=500, message="adapter failed")), "adapter failed", id="server error"),
        pytest.param(ServerUnreachable("refused", maybe_applied=False), "refused", id="unreachable"),
    ],
)
async def test_failed_request_is_an_error_of_the_metrics_api(error, message):
    with pytest.raises(MetricError, match=f"^unable to fetch metrics from custom metrics API: {message}"):
        await MetricsClient(FailingAdapter(error)).of_object("rate", "ns", "services", "x", None)


async def test_invalid_response_is_an_error_of_the_metrics_api():
    with pytest.raises(MetricError, match=r"^unable to fetch metrics from custom metrics API: JSON is malformed"):
        await MetricsClient(MetricsAdapter("no JSON")).of_object("rate", "ns", "services", "x", None)


class EmptyAdapter(MetricsAdapter):
    """A server whose custom metrics API has these versions."""

    def __init__(self, *versions: str) -> None:
        super().__init__()
        self._versions = versions

    async def raw(self, method: str, target: str) -> Any:
        if target != "/apis/custom.metrics.k8s.io":
            return await super().raw(method, target)
        versions = ",".join(f'{{"version":"{version}"}}' for version in self._versions)
        return type("Response", (), {"body": f'{{"versions":[{versions}]}}'.encode()})


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        pytest.param(("v1beta2",), "no metrics returned from custom metrics API", id="no pods"),
        pytest.param(("v1alpha1",), r"no custom metrics API \(custom.metrics.k8s.io\) registered", id="old version"),
        pytest.param((), r"no custom metrics API \(custom.metrics.k8s.io\) registered", id="no version"),
    ],
)
async def test_custom_metrics_that_are_missing(versions, message):
    with pytest.raises(MetricError, match=message):
        await MetricsClient(EmptyAdapter(*versions)).of_pods("rate", "ns", "app=web", None)


@pytest.mark.parametrize(
    ("versions", "version"),
    [(("v1beta1",), "v1beta1"), (("v1beta2", "v1beta1"), "v1beta2"), (("v1beta1", "v1beta2"), "v1beta2")],
)
async def test_preferred_version_of_custom_metrics(versions, version):
    adapter = EmptyAdapter(*versions)
    with pytest.raises(MetricError, match="returned 0 results"):
        await MetricsClient(adapter).of_object("rate", "ns", "services", "x", None)
    assert adapter.targets[-1].startswith(f"/apis/custom.metrics.k8s.io/{version}/")
