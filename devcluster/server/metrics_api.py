"""The metrics API, metrics.k8s.io/v1beta1: usage of simulated pods and their nodes, in the role of metrics-server.

Served by clusters with simulated nodes only, so it is not in the registry of served resources; its objects are computed
on each read. Imported with the first request for its paths.
"""

from __future__ import annotations

from dataclasses import replace

from kubeloop.devcluster.api.request_info import RequestInfo
from kubeloop.devcluster.api.served_resources import READ_ONLY, ServedResource
from kubeloop.devcluster.kubelet.pods.resource_usage import USAGE_ANNOTATIONS, Usage, container_usage, total_usage
from kubeloop.devcluster.openapi import discovery
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES, PODS, Resource
from kubeloop.kube.values.quantities import parse_quantity

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
WINDOW = "15s"
"""Window of each sample: the default resolution of metrics-server."""
_NOTHING: Usage = dict.fromkeys(USAGE_ANNOTATIONS, parse_quantity("0"))

_NODE_METRICS: Resource[JSON] = Resource(GROUP, VERSION, "NodeMetrics", "nodes", False, dict)
_POD_METRICS: Resource[JSON] = Resource(GROUP, VERSION, "PodMetrics", "pods", True, dict)
SERVED = tuple(ServedResource(resource, verbs=READ_ONLY) for resource in (_NODE_METRICS, _POD_METRICS))


def route_metrics(path: str, store: ObjectStore, clock: Clock) -> RequestInfo | None:
    """Return the resource of a path with its current objects, or None if the path is not one of this API."""
    rest = path.strip("/").split("/")[3:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    served = next((it for it in SERVED if rest and it.resource.plural == rest[0]), None)
    name = rest[1] if len(rest) == 2 else ""
    if served is None or len(rest) > 2 or (namespace and not served.resource.namespaced):
        return None
    if name and served.resource.namespaced and not namespace:
        return None
    now = rfc3339(clock.now())
    if served.resource is _POD_METRICS:
        return RequestInfo(replace(served, compute_objects=lambda: _pods(store, namespace, now)), namespace, name, "")
    return RequestInfo(replace(served, compute_objects=lambda: _nodes(store, now)), namespace, name, "")


def _pods(store: ObjectStore, namespace: str, now: str) -> list[JSON]:
    metrics = []
    for stored in store.table(PODS).list(namespace):
        pod = stored.object
        usage = container_usage(pod)
        if usage:
            containers = [{"name": it["name"], "usage": _amounts(usage)} for it in pod["spec"]["containers"]]
            metrics.append(_sample(_POD_METRICS, pod, now) | {"containers": containers})
    return metrics


def _nodes(store: ObjectStore, now: str) -> list[JSON]:
    """Return the metrics of all ready nodes; a node without pods whose usage is set uses nothing."""
    pods: dict[str, list[JSON]] = {}
    for stored in store.table(PODS).list():
        if container_usage(stored.object):
            pods.setdefault(stored.object["spec"].get("nodeName", ""), []).append(stored.object)
    return [
        _sample(_NODE_METRICS, node.object, now)
        | {"usage": _amounts(_NOTHING | total_usage(pods.get(node.object["metadata"]["name"], ())))}
        for node in store.table(NODES).list()
        if _is_ready(node.object)
    ]


def _is_ready(node: JSON) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _amounts(usage: Usage) -> dict[str, str]:
    return {resource: quantity.canonical() for resource, quantity in usage.items()}


def _sample(resource: Resource[JSON], obj: JSON, now: str) -> JSON:
    """Return the metrics of an object, without its usage."""
    metadata = {name: obj["metadata"][name] for name in ("name", "namespace", "labels") if name in obj["metadata"]}
    return {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {**metadata, "creationTimestamp": now},
        "timestamp": now,
        "window": WINDOW,
    }


def metrics_discovery(path: str, accept: str, document: tuple[JSON, str] | None) -> tuple[JSON, str] | None:
    """Return the discovery document at a path and its content type, with this API.

    document: what the server has at the path without this API. Raises StatusError 406.
    """
    group = discovery.api_group(GROUP, (VERSION,))
    match path.strip("/"):
        case "apis" if document is not None:
            content, form = document
            if not discovery.is_aggregated(form):
                return {**content, "groups": [*content["groups"], group]}, form
            resources = [discovery.aggregated_resource(served, served.verbs, ()) for served in SERVED]
            versions = [discovery.aggregated_version(VERSION, resources)]
            item = {"metadata": {"name": GROUP}, "versions": versions}
            return {**content, "items": [*content["items"], item]}, form
        case "apis/metrics.k8s.io":
            content = {"kind": "APIGroup", "apiVersion": "v1", **group}
        case "apis/metrics.k8s.io/v1beta1":
            content = {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{GROUP}/{VERSION}",
                "resources": [discovery.api_resource(served, served.verbs, "") for served in SERVED],
            }
        case _:
            return document
    return content, discovery.discovery_content_type(path, accept)
