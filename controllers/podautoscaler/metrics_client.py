"""Client of the metrics APIs: resource metrics of pods, custom metrics and external metrics.

Errors have the texts of kube-controller-manager, which end up in conditions. Source:
pkg/controller/podautoscaler/metrics/client.go, k8s.io/metrics/pkg/client.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from kubeloop.controllers.podautoscaler.replica_calculation import MAX_INT64, MetricError, PodMetric
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import JSONValue, LabelSelector, Quantity, Struct, decode
from kubeloop.kube.selectors.selectors import selector_from
from kubeloop.kube.values.durations import duration_seconds
from kubeloop.kube.values.quantities import milli_value
from kubeloop.kube.values.times import go_duration_seconds

_CUSTOM_VERSIONS = ("v1beta2", "v1beta1")
_DEFAULT_WINDOW_SECONDS = 60


class ContainerMetrics(Struct):
    name: str = ""
    usage: dict[str, Quantity] = msgspec.field(default_factory=dict)


class MetricsMeta(Struct):
    name: str = ""


class PodMetrics(Struct, kw_only=True):
    """metrics.k8s.io/v1beta1 PodMetrics."""

    metadata: MetricsMeta = MetricsMeta()
    timestamp: datetime
    window: str = ""
    containers: tuple[ContainerMetrics, ...] = ()


class _PodMetricsList(Struct):
    items: tuple[PodMetrics, ...] = ()


class _MetricValue(Struct, kw_only=True):
    """An item of MetricValueList (custom metrics) or ExternalMetricValueList."""

    described_object: MetricsMeta = MetricsMeta()
    timestamp: datetime
    window_seconds: int | None = None
    value: Quantity = 0


class _MetricValues(Struct):
    items: tuple[_MetricValue, ...] = ()


def resource_usage(pod_metrics: Mapping[str, PodMetrics], resource: str, container: str) -> dict[str, PodMetric]:
    """Return the usage of each pod, or of its `container` if that is not ""; pods without a complete sample lack."""
    usage: dict[str, PodMetric] = {}
    for name, entry in pod_metrics.items():
        containers = [it for it in entry.containers if container in ("", it.name)]
        if containers and all(resource in it.usage for it in containers):
            total = sum(milli_value(it.usage[resource]) for it in containers)
            window = duration_seconds(entry.window) or 0.0
            usage[name] = PodMetric(total, entry.timestamp, window)
    return usage


class MetricsClient:
    """Reads metrics. All methods raise MetricError."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def resource(self, resource: str, namespace: str, selector: str, container: str) -> dict[str, PodMetric]:
        """Return the usage of the selected pods by name."""
        path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"
        try:
            listed = await self._get(_PodMetricsList, path, "pods.metrics.k8s.io", labelSelector=selector)
        except MetricError as error:
            raise MetricError(f"unable to fetch metrics from resource metrics API: {error}") from error
        if not listed.items:
            raise MetricError("no metrics returned from resource metrics API")
        return resource_usage({item.metadata.name: item for item in listed.items}, resource, container)

    async def of_pods(
        self, metric: str, namespace: str, selector: str, metric_selector: LabelSelector | None
    ) -> dict[str, PodMetric]:
        """Return a custom metric of the selected pods by name."""
        path = f"namespaces/{namespace}/pods/*/{quote(metric)}"
        values = await self._custom(path, metric_selector, f"pods.custom.metrics.k8s.io {metric}", selector)
        if not values:
            raise MetricError("no metrics returned from custom metrics API")
        metrics = {}
        for item in values:
            seconds = _DEFAULT_WINDOW_SECONDS if item.window_seconds is None else item.window_seconds
            pod_metric = PodMetric(milli_value(item.value), item.timestamp, go_duration_seconds(seconds))
            metrics[item.described_object.name] = pod_metric
        return metrics

    async def of_object(
        self, metric: str, namespace: str, group_resource: str, name: str, metric_selector: LabelSelector | None
    ) -> int:
        """Return a custom metric of one object, in thousandths. A Namespace is always that of the autoscaler."""
        path = f"namespaces/{namespace}/{group_resource}/{quote(name)}/{quote(metric)}"
        if group_resource == "namespaces":
            path = f"namespaces/{namespace}/metrics/{quote(metric)}"
        values = await self._custom(path, metric_selector, f"{group_resource}.custom.metrics.k8s.io {name}")
        if len(values) != 1:
            problem = f"the custom metrics API server returned {len(values)} results when we asked for exactly one"
            raise MetricError(f"unable to fetch metrics from custom metrics API: {problem}")
        return milli_value(values[0].value)

    async def external(self, metric: str, namespace: str, metric_selector: LabelSelector | None) -> int:
        """Return the sum of an external metric's values, in thousandths."""
        path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{quote(metric)}"
        try:
            values = await self._get(
                _MetricValues, path, f"{metric}.external.metrics.k8s.io", labelSelector=_text(metric_selector)
            )
        except MetricError as error:
            raise MetricError(f"unable to fetch metrics from external metrics API: {error}") from error
        if not values.items:
            raise MetricError("no metrics returned from external metrics API")
        return min(sum(milli_value(item.value) for item in values.items), MAX_INT64)

    async def _custom(
        self, path: str, metric_selector: LabelSelector | None, subject: str, selector: str = ""
    ) -> tuple[_MetricValue, ...]:
        """Return the values at a path below the version of the custom metrics API that the server prefers."""
        try:
            group = await self._get(dict[str, JSONValue], "/apis/custom.metrics.k8s.io", "")
            versions = [version["version"] for version in group.get("versions") or ()]
            version = next((known for known in _CUSTOM_VERSIONS if known in versions), "")
            if not version:
                raise MetricError("no custom metrics API (custom.metrics.k8s.io) registered")
            query = {"labelSelector": selector, "metricLabelSelector": _text(metric_selector)}
            listed: _MetricValues = await self._get(
                _MetricValues, f"/apis/custom.metrics.k8s.io/{version}/{path}", subject, **query
            )
        except MetricError as error:
            raise MetricError(f"unable to fetch metrics from custom metrics API: {error}") from error
        return listed.items

    async def _get(self, type_: Any, path: str, subject: str, **query: str) -> Any:
        """Return a decoded document. subject: what is read, for the error; "" for the group of custom metrics."""
        options = urlencode({name: value for name, value in query.items() if value})
        try:
            response = await self._client.raw("GET", f"{path}?{options}" if options else path)
            return decode(type_, response.body)
        except NotFound as error:
            if not subject:
                raise MetricError("no custom metrics API (custom.metrics.k8s.io) registered") from error
            if error.status.details is None:  # nothing is served at the path, as opposed to a missing metric
                raise MetricError(f"the server could not find the requested resource (get {subject})") from error
            raise MetricError(str(error)) from error
        except (ApiError, ServerUnreachable, msgspec.DecodeError) as error:
            raise MetricError(str(error)) from error


def _text(selector: LabelSelector | None) -> str:
    return "" if selector is None else str(selector_from(selector))
