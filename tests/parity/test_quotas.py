"""The same steps under kube-controller-manager's resource quota controller and under kubeloop's: the same is used.

Both run on a real kube-apiserver of their own, and nobody else acts.
"""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kubeloop.kube.quantities import parse_quantity
from support.cli_processes import Kubeloop
from support.real_apiserver import RealApiServer, needs_binaries, real_apiserver

JSON = dict[str, Any]
Used = dict[str, JSON]
REST_SECONDS, TOO_LONG_SECONDS = 1.5, 60.0
SHOP = "/api/v1/namespaces/shop"
EVERYTHING = """
pods count/pods cpu memory requests.cpu requests.memory requests.ephemeral-storage limits.cpu limits.memory
limits.ephemeral-storage requests.example.com/gpu hugepages-2Mi requests.hugepages-2Mi services services.nodeports
services.loadbalancers count/services persistentvolumeclaims requests.storage count/persistentvolumeclaims
fast.storageclass.storage.k8s.io/requests.storage fast.storageclass.storage.k8s.io/persistentvolumeclaims secrets
configmaps count/secrets count/configmaps resourcequotas replicationcontrollers count/deployments.apps
count/widgets.example.com count/nothing.example.com"""
QUOTAS: dict[str, JSON] = {
    "everything": {"hard": dict.fromkeys(EVERYTHING.split(), "1000Gi")},
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
WIDGETS = "/apis/example.com/v1/namespaces/shop/widgets"


def pod(requests: JSON | None = None, limits: JSON | None = None, **spec: Any) -> JSON:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return {"nodeName": "away", **spec, "containers": [{"name": "main", "image": "app:1", "resources": resources}]}


def claim(storage: str, storage_class: str) -> JSON:
    asked = {"requests": {"storage": storage}}
    return {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, "resources": asked}


def there_before(server: RealApiServer) -> None:
    """What is there before anybody counts."""
    server.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    extended = {"example.com/gpu": "2", "hugepages-2Mi": "4Mi"}
    asked = {"cpu": "250m", "memory": "1Gi", "ephemeral-storage": "1500M", **extended}
    allowed = {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "2Gi", **extended}
    starting = [{"name": "first", "image": "app:1", "resources": {"requests": {"cpu": "2"}}}]
    terms = [{"topologyKey": "zone", "namespaces": ["other"], "labelSelector": {}}]
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    for name, spec in {
        "large": pod(asked, allowed),
        "starting": pod({"cpu": "1"}, initContainers=starting),
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
    for kind in ("secrets", "configmaps"):
        for name in ("a", "b"):
            server.request("POST", f"{SHOP}/{kind}", {"metadata": {"name": name}})
    _until(lambda: not _refused(server, WIDGETS))
    for name in ("a", "b"):
        body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}}
        server.request("POST", WIDGETS, body)


def steps(server: RealApiServer) -> Iterator[str]:
    def patch(path: str, body: JSON) -> None:
        server.request("PATCH", f"{SHOP}/{path}", body, kind="application/merge-patch+json")

    def delete(path: str) -> None:
        server.request("DELETE", path if path.startswith("/") else f"{SHOP}/{path}", {"gracePeriodSeconds": 0})

    for name, spec in QUOTAS.items():
        server.request("POST", f"{SHOP}/resourcequotas", {"metadata": {"name": name}, "spec": spec})
    yield "quotas over what was there"
    for path in ("pods/plain", "secrets/a", "persistentvolumeclaims/slow", f"{WIDGETS}/a"):
        delete(path)
    yield "objects deleted"
    patch("pods/short/status", {"status": {"phase": "Succeeded"}})
    yield "a pod that has ended"
    statuses = [{"name": "main", "image": "", "imageID": "", "ready": True, "restartCount": 0}]
    statuses[0]["resources"] = {"requests": {"cpu": "3", "memory": "1Gi"}}
    statuses[0]["allocatedResources"] = {"cpu": "3", "memory": "1Gi"}
    patch("pods/large/status", {"status": {"containerStatuses": statuses}})
    yield "a container that has more than it asks for"
    patch("services/balanced", {"spec": {"type": "NodePort"}})
    patch("services/ported", {"spec": {"type": "ClusterIP", "ports": [{**each, "nodePort": None} for each in PORTS]}})
    yield "services of another type"
    patch("persistentvolumeclaims/fast/status", {"status": {"allocatedResources": {"storage": "3Gi"}}})
    yield "a claim that has been allocated more"
    patch("resourcequotas/lasting", {"spec": {"hard": {"requests.cpu": None, "memory": "5Gi"}}})
    yield "other limits"
    for name in ("large", "starting", "apart", "short"):
        delete(f"pods/{name}")
    yield "no pod left"


def played(server: RealApiServer) -> dict[str, Used]:
    return {name: _at_rest(server) for name in steps(server)}


def _at_rest(server: RealApiServer) -> Used:
    """The status of every quota, once none has changed for a while."""
    seen: JSON = {}
    since = time.monotonic()
    began = since
    while time.monotonic() - since < REST_SECONDS:
        if time.monotonic() - began > TOO_LONG_SECONDS:
            raise AssertionError(f"quotas never rest: {seen}")
        items = server.request("GET", f"{SHOP}/resourcequotas")["items"]
        now = {each["metadata"]["name"]: each.get("status", {}) for each in items}
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.1)
    return {name: {part: _values(amounts) for part, amounts in status.items()} for name, status in seen.items()}


def _values(amounts: JSON) -> dict[str, int]:
    """In 10**-9 units. How they are written depends on who wrote last: admission adds to what stands there, and a
    controller that comes to the same value leaves it."""
    return {name: parse_quantity(amount).nano() for name, amount in amounts.items()}


def _refused(server: RealApiServer, path: str) -> bool:
    try:
        server.request("GET", path)
    except OSError:
        return True
    return False


def _until(condition: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < TOO_LONG_SECONDS
        time.sleep(0.1)


def under_kubernetes(folder: Path) -> dict[str, Used]:
    with real_apiserver(folder) as server:
        there_before(server)
        server.start_component(
            "kube-controller-manager", "--controllers=resourcequota-controller", "--leader-elect=false"
        )
        return played(server)


def under_kubeloop(folder: Path) -> dict[str, Used]:
    with real_apiserver(folder) as server:
        there_before(server)
        ours = ("run", f"--kubeconfig={server.kubeconfig}", "--controllers=resourcequota", "--trace-journal=")
        with Kubeloop(folder).running(*ours):
            return played(server)


def test_kubeloop_counts_what_kube_controller_manager_counts(tmp_path):
    needs_binaries("kube-controller-manager")
    with ThreadPoolExecutor(2) as both:
        kubernetes = both.submit(under_kubernetes, tmp_path / "kubernetes")
        kubeloop = both.submit(under_kubeloop, tmp_path / "kubeloop")
        theirs, ours = kubernetes.result(), kubeloop.result()
    told = [json.dumps(each, indent=1, sort_keys=True).splitlines() for each in (theirs, ours)]
    assert not (differences := list(difflib.unified_diff(*told, "Kubernetes", "kubeloop", n=60))), differences
    first = theirs["quotas over what was there"]
    assert first["everything"]["used"]["pods"] == 5 * 10**9  # both have counted at all
    assert theirs["no pod left"]["everything"]["used"]["pods"] == 0
