"""The metrics API of a development cluster with simulated nodes."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.devcluster.server.metrics_api import WINDOW
from kubeloop.kube.clock import rfc3339
from support.apiserver.api_requests import InProcessApi

BASE = "/apis/metrics.k8s.io/v1beta1"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
MERGE_PATCH = "application/merge-patch+json"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def set_ready(api: InProcessApi, name: str, status: str) -> None:
    conditions = {"conditions": [{"type": "Ready", "status": status}]}
    api.succeed("PATCH", f"/api/v1/nodes/{name}/status", {"status": conditions}, content_type=MERGE_PATCH)


@pytest.fixture
async def api() -> InProcessApi:
    api = InProcessApi(settings=ServingSettings(serves_metrics=True))
    for name in ("n1", "n2"):
        api.create("/api/v1/nodes", {"metadata": {"name": name}})
        set_ready(api, name, "True")
    for namespace in ("x", "y"):
        api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    return api


def run_pod(api: InProcessApi, namespace: str, name: str, cpu: str = "", containers: int = 1) -> None:
    """Create a running pod on n1. cpu: its usage per container."""
    annotations = {"kwok.x-k8s.io/usage-cpu": cpu} if cpu else {}
    listed = [{"name": f"c{number}", "image": "i"} for number in range(containers)]
    body = {
        "metadata": {"name": name, "labels": {"app": name}, "annotations": annotations},
        "spec": {"nodeName": "n1", "containers": listed},
    }
    api.create(f"/api/v1/namespaces/{namespace}/pods", body)
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
    api.succeed("PATCH", path, {"status": {"phase": "Running"}}, content_type=MERGE_PATCH)


def names(content: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in content["items"]]


async def test_pods_with_usage_have_metrics(api: InProcessApi):
    run_pod(api, "x", "a", "250m", containers=2)
    run_pod(api, "x", "b")
    status, metrics = api("GET", f"{BASE}/namespaces/x/pods/a")
    assert status == 200
    assert (metrics["kind"], metrics["apiVersion"]) == ("PodMetrics", "metrics.k8s.io/v1beta1")
    assert metrics["containers"] == [{"name": name, "usage": {"cpu": "250m"}} for name in ("c0", "c1")]
    assert metrics["metadata"]["labels"] == {"app": "a"}
    assert metrics["timestamp"] <= rfc3339(api.server.clock.now())
    assert metrics["window"] == WINDOW
    assert api("GET", f"{BASE}/namespaces/x/pods/b")[0] == 404


async def test_pod_metrics_are_listed_by_namespace_and_selector(api: InProcessApi):
    run_pod(api, "x", "a", "1")
    run_pod(api, "x", "b", "1")
    run_pod(api, "y", "c", "1")
    assert names(api("GET", f"{BASE}/pods")[1]) == ["a", "b", "c"]
    content = api("GET", f"{BASE}/namespaces/x/pods")[1]
    assert (content["kind"], names(content)) == ("PodMetricsList", ["a", "b"])
    assert names(api("GET", f"{BASE}/pods?labelSelector=app%3Db")[1]) == ["b"]
    assert names(api("GET", f"{BASE}/pods?fieldSelector=metadata.name%3Dc")[1]) == ["c"]


async def test_node_metrics_are_the_sum_of_their_pods(api: InProcessApi):
    run_pod(api, "x", "a", "250m", containers=2)
    run_pod(api, "y", "b", "1")
    content = api("GET", f"{BASE}/nodes")[1]
    assert [(item["metadata"]["name"], item["usage"]) for item in content["items"]] == [
        ("n1", {"cpu": "1500m", "memory": "0"}),
        ("n2", {"cpu": "0", "memory": "0"}),
    ]


async def test_nodes_that_are_not_ready_have_no_metrics(api: InProcessApi):
    set_ready(api, "n1", "Unknown")
    assert names(api("GET", f"{BASE}/nodes")[1]) == ["n2"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("POST", "/namespaces/x/pods", 405, id="read-only"),
        pytest.param("GET", "/pods/a", 404, id="pod without namespace"),
        pytest.param("GET", "/namespaces/x/nodes", 404, id="node in a namespace"),
        pytest.param("GET", "/namespaces/x/pods/a/log", 404, id="subresource"),
        pytest.param("GET", "/services", 404, id="other resource"),
    ],
)
async def test_other_requests_are_errors(api: InProcessApi, method, path, status):
    assert api(method, BASE + path, {} if method == "POST" else None)[0] == status


async def test_discovery_has_the_api(api: InProcessApi):
    groups = api("GET", "/apis")[1]["groups"]
    assert api("GET", "/apis/metrics.k8s.io")[1] == {"kind": "APIGroup", "apiVersion": "v1", **groups[-1]}
    listed = api("GET", BASE)[1]
    assert [(entry["name"], entry["kind"], entry["verbs"]) for entry in listed["resources"]] == [
        ("nodes", "NodeMetrics", ["get", "list"]),
        ("pods", "PodMetrics", ["get", "list"]),
    ]
    aggregated = api("GET", "/apis", accept=AGGREGATED)[1]["items"][-1]
    assert aggregated["metadata"]["name"] == "metrics.k8s.io"
    assert [entry["resource"] for entry in aggregated["versions"][0]["resources"]] == ["nodes", "pods"]


async def test_discovery_has_the_api_in_addition_to_custom_resources(api: InProcessApi):
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names_ = {"plural": "widgets", "kind": "Widget"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names_, "versions": [version]}
    api.create(CRDS, {"metadata": {"name": "widgets.example.com"}, "spec": spec})
    groups = {group["name"] for group in api("GET", "/apis")[1]["groups"]}
    assert groups >= {"example.com", "metrics.k8s.io"}


async def test_server_without_simulated_nodes_has_no_metrics():
    api = InProcessApi()
    assert api("GET", f"{BASE}/pods")[0] == 404
    assert "metrics.k8s.io" not in {group["name"] for group in api("GET", "/apis")[1]["groups"]}
