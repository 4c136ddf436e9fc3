"""The resource quota controllers of kube-controller-manager and kubeloop compute the same usage after the same steps.

Each runs on its own kube-apiserver, without other controllers.
"""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kubeloop.kube.values.quantities import parse_quantity
from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver
from support.processes.cli_processes import Kubeloop

JSON = dict[str, Any]
Used = dict[str, JSON]
QUIET_SECONDS, TIMEOUT_SECONDS = 1.5, 60.0
SHOP = "/api/v1/namespaces/shop"
ALL_RESOURCES = """
pods count/pods cpu memory requests.cpu requests.memory requests.ephemeral-storage limits.cpu limits.memory
limits.ephemeral-storage requests.example.com/gpu hugepages-2Mi requests.hugepages-2Mi services services.nodeports
services.loadbalancers count/services persistentvolumeclaims requests.storage count/persistentvolumeclaims
fast.storageclass.storage.k8s.io/requests.storage fast.storageclass.storage.k8s.io/persistentvolumeclaims secrets
configmaps count/secrets count/configmaps resourcequotas replicationcontrollers count/deployments.apps
count/resourceclaims.resource.k8s.io gpu.deviceclass.resource.k8s.io/devices nic.deviceclass.resource.k8s.io/devices
requests.deviceclass.resource.kubernetes.io/gpu
count/widgets.example.com count/nothing.example.com"""
QUOTAS: dict[str, JSON] = {
    "everything": {"hard": dict.fromkeys(ALL_RESOURCES.split(), "1000Gi")},
    "best-effort": {"hard": {"pods": "9"}, "scopes": ["BestEffort"]},
    "lasting": {"hard": {"pods": "9", "requests.cpu": "9"}, "scopes": ["NotBestEffort", "NotTerminating"]},
    "critical": {
        "hard": {"pods": "9"},
        "scopeSelector": {
            "matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]},
            ]
        },
    },
    "affine": {"hard": {"pods": "9"}, "scopes": ["CrossNamespacePodAffinity"]},
}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
PORTS = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
RESOURCE_CLAIMS = "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims"
WIDGETS = "/apis/example.com/v1/namespaces/shop/widgets"


def pod(requests: JSON | None = None, limits: JSON | None = None, **spec: Any) -> JSON:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return {"nodeName": "remote", **spec, "containers": [{"name": "main", "image": "app:1", "resources": resources}]}


def claim(storage: str, storage_class: str) -> JSON:
    resources = {"requests": {"storage": storage}}
    return {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, "resources": resources}


def create_objects(server: RealApiServer) -> None:
    """Create the objects that the quotas count."""
    server.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    extended = {"example.com/gpu": "2", "hugepages-2Mi": "4Mi", "deviceclass.resource.kubernetes.io/gpu": "3"}
    requests = {"cpu": "250m", "memory": "1Gi", "ephemeral-storage": "1500M", **extended}
    limits = {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "2Gi", **extended}
    init_containers = [{"name": "first", "image": "app:1", "resources": {"requests": {"cpu": "2"}}}]
    terms = [{"topologyKey": "zone", "namespaces": ["other"], "labelSelector": {}}]
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    for name, spec in {
        "large": pod(requests, limits),
        "starting": pod({"cpu": "1"}, initContainers=init_containers),
        "plain": pod(),
        "short": pod({"cpu": "100m"}, activeDeadlineSeconds=600),
        "apart": pod({"memory": "100M"}, affinity=apart),
    }.items():
        server.request("POST", f"{SHOP}/pods", {"metadata": {"name": name}, "spec": spec})
    for name, spec in {
        "inside": {"ports": PORTS},
        "ported": {"ports": PORTS, "type": "NodePort"},
        "balanced": {"ports": PORTS, "type": "LoadBalancer"},
        "balanced-inside": {"ports": PORTS, "type": "LoadBalancer", "allocateLoadBalancerNodePorts": False},
    }.items():
        server.request("POST", f"{SHOP}/services", {"metadata": {"name": name}, "spec": spec})
    for name, spec in {"slow": claim("1Gi", "slow"), "fast": claim("1500M", "fast"), "none": claim("1", "")}.items():
        server.request("POST", f"{SHOP}/persistentvolumeclaims", {"metadata": {"name": name}, "spec": spec})
    spec = {"extendedResourceName": "example.com/gpu"}
    server.request("POST", "/apis/resource.k8s.io/v1/deviceclasses", {"metadata": {"name": "gpu"}, "spec": spec})
    alternatives = [{"name": "a", "deviceClassName": "gpu", "count": 3}, {"name": "b", "deviceClassName": "nic"}]
    exactly = {"deviceClassName": "nic", "allocationMode": "All"}
    for name, requests in {
        "devices": [{"name": "r", "exactly": exactly}, {"name": "s", "exactly": {"deviceClassName": "gpu"}}],
        "alternatives": [{"name": "r", "firstAvailable": alternatives}],
    }.items():
        body = {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}
        server.request("POST", RESOURCE_CLAIMS, body)
    for kind in ("secrets", "configmaps"):
        for name in ("a", "b"):
            server.request("POST", f"{SHOP}/{kind}", {"metadata": {"name": name}})
    _wait_until(lambda: not _refused(server, WIDGETS))
    for name in ("a", "b"):
        body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}}
        server.request("POST", WIDGETS, body)


def steps(server: RealApiServer) -> Iterator[str]:
    def patch(path: str, body: JSON) -> None:
        server.request("PATCH", f"{SHOP}/{path}", body, content_type="application/merge-patch+json")

    def delete(path: str) -> None:
        server.request("DELETE", path if path.startswith("/") else f"{SHOP}/{path}", {"gracePeriodSeconds": 0})

    for name, spec in QUOTAS.items():
        server.request("POST", f"{SHOP}/resourcequotas", {"metadata": {"name": name}, "spec": spec})
    yield "quotas over existing objects"
    for path in (
        "pods/plain",
        "secrets/a",
        "persistentvolumeclaims/slow",
        f"{WIDGETS}/a",
        f"{RESOURCE_CLAIMS}/devices",
    ):
        delete(path)
    yield "objects deleted"
    patch("pods/short/status", {"status": {"phase": "Succeeded"}})
    yield "succeeded pod"
    statuses = [{"name": "main", "image": "", "imageID": "", "ready": True, "restartCount": 0}]
    statuses[0]["resources"] = {"requests": {"cpu": "3", "memory": "1Gi"}}
    statuses[0]["allocatedResources"] = {"cpu": "3", "memory": "1Gi"}
    patch("pods/large/status", {"status": {"containerStatuses": statuses}})
    yield "container with more allocated than requested"
    patch("services/balanced", {"spec": {"type": "NodePort"}})
    patch("services/ported", {"spec": {"type": "ClusterIP", "ports": [{**port, "nodePort": None} for port in PORTS]}})
    yield "changed service types"
    patch("persistentvolumeclaims/fast/status", {"status": {"allocatedResources": {"storage": "3Gi"}}})
    yield "claim with more allocated than requested"
    patch("resourcequotas/lasting", {"spec": {"hard": {"requests.cpu": None, "memory": "5Gi"}}})
    yield "changed quota limits"
    for name in ("large", "starting", "apart", "short"):
        delete(f"pods/{name}")
    yield "all pods deleted"


def usage_after_each_step(server: RealApiServer) -> dict[str, Used]:
    return {name: _settled_usage(server) for name in steps(server)}


def _settled_usage(server: RealApiServer) -> Used:
    """Return the status of every quota, once none has changed for QUIET_SECONDS."""
    statuses: JSON = {}
    since = time.monotonic()
    began = since
    while time.monotonic() - since < QUIET_SECONDS:
        if time.monotonic() - began > TIMEOUT_SECONDS:
            raise AssertionError(f"quotas keep changing: {statuses}")
        items = server.request("GET", f"{SHOP}/resourcequotas")["items"]
        now = {quota["metadata"]["name"]: quota.get("status", {}) for quota in items}
        if now != statuses:
            statuses, since = now, time.monotonic()
        time.sleep(0.1)
    return {name: {part: _values(amounts) for part, amounts in status.items()} for name, status in statuses.items()}


def _values(amounts: JSON) -> dict[str, int]:
    """Return amounts in units of 10**-9.

    Their notation depends on the last writer: admission adds to the stored value, and a controller does not replace an
    equal value.
    """
    return {name: parse_quantity(amount).nano() for name, amount in amounts.items()}


def _refused(server: RealApiServer, path: str) -> bool:
    try:
        server.request("GET", path)
    except OSError:
        return True
    return False


def _wait_until(condition: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < TIMEOUT_SECONDS
        time.sleep(0.1)


def run_kubernetes(folder: Path) -> dict[str, Used]:
    with real_apiserver(folder) as server:
        create_objects(server)
        server.start_component(
            "kube-controller-manager", "--controllers=resourcequota-controller", "--leader-elect=false"
        )
        return usage_after_each_step(server)


def run_kubeloop(folder: Path) -> dict[str, Used]:
    with real_apiserver(folder) as server:
        create_objects(server)
        arguments = ("run", f"--kubeconfig={server.kubeconfig}", "--controllers=resourcequota", "--trace-journal=")
        with Kubeloop(folder).running(*arguments):
            return usage_after_each_step(server)


def test_quota_usage_matches_kube_controller_manager(tmp_path):
    needs_binaries("kube-controller-manager")
    with ThreadPoolExecutor(2) as executor:
        kubernetes = executor.submit(run_kubernetes, tmp_path / "kubernetes")
        kubeloop = executor.submit(run_kubeloop, tmp_path / "kubeloop")
        real, ours = kubernetes.result(), kubeloop.result()
    texts = [json.dumps(usage, indent=1, sort_keys=True).splitlines() for usage in (real, ours)]
    assert not (differences := list(difflib.unified_diff(*texts, "Kubernetes", "kubeloop", n=60))), differences
    first = real["quotas over existing objects"]
    assert first["everything"]["used"]["pods"] == 5 * 10**9  # not zero on both sides
    assert real["all pods deleted"]["everything"]["used"]["pods"] == 0
