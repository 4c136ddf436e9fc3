"""Endpoints and EndpointSlices beside kube-controller-manager: the same objects and events after each step.

The two controllers run alone on their own kube-apiserver, without scheduler and kubelets.
"""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver
from support.processes.cli_processes import Kubeloop

JSON = dict[str, Any]
NS = "/api/v1/namespaces/x"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/x/endpointslices"
ZONE = "topology.kubernetes.io/zone"
TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"
PORTS = [
    {"name": name, "port": port, "targetPort": target, "protocol": protocol}
    for name, port, target, protocol in (
        ("http", 80, "http", "TCP"), ("admin", 81, 9000, "TCP"), ("dns", 53, "dns", "UDP"),
        ("absent", 1, "none", "TCP"), ("metrics", 82, 9100, "TCP"),
    )
]  # fmt: skip
SERVICES: dict[str, JSON] = {
    "plain": {"ports": [{"port": 80}]},
    "ports": {"ports": [*PORTS[:-1], {**PORTS[-1], "appProtocol": "kubernetes.io/h2c"}]},
    "headless": {"clusterIP": "None"},
    "early": {"ports": [{"port": 80}], "publishNotReadyAddresses": True},
    "close": {"ports": [{"port": 80}], "trafficDistribution": "PreferClose"},
    "same-node": {"ports": [{"port": 80}], "trafficDistribution": "PreferSameNode"},
    "topology": {"ports": [{"port": 80}]},
    "empty": {"ports": [{"port": 80}], "selector": {"app": "none"}},
    "manual": {"ports": [{"port": 80}], "selector": None},
    "alias": {"type": "ExternalName", "externalName": "example.com"},
}
POD_COUNT = 6


def create_node(server: RealApiServer, number: int) -> None:
    name = f"node-{number}"
    labels = {ZONE: f"zone-{number % 2}"}
    server.request("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
    status = {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}
    patch(server, f"/api/v1/nodes/{name}/status", {"status": status})


def patch(server: RealApiServer, path: str, body: JSON) -> None:
    server.request("PATCH", path, body, content_type="application/merge-patch+json")


def create_pod(server: RealApiServer, number: int) -> None:
    ports = [
        {"name": "http", "containerPort": 8080 + number % 2},
        {"name": "dns", "containerPort": 53, "protocol": "UDP"},
    ]
    spec = {
        "nodeName": f"node-{number % 2}",
        "hostname": f"h{number}",
        "subdomain": "headless",
        "containers": [{"name": "main", "image": "app:1", "ports": ports}],
    }
    metadata = {"name": f"p{number}", "labels": {"app": "web"}}
    server.request("POST", f"{NS}/pods", {"metadata": metadata, "spec": spec})
    set_ready(server, number, number != 0)


def set_ready(server: RealApiServer, number: int, ready: bool) -> None:
    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": f"2026-01-01T00:00:{number:02}Z"}]
    address = f"10.1.0.{number + 1}"
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions}
    patch(server, f"{NS}/pods/p{number}/status", {"status": status})


def steps(server: RealApiServer) -> Iterator[str]:
    """Run the scenario; yield the name of each step."""
    server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})
    for number in range(2):
        create_node(server, number)
    for name, spec in SERVICES.items():
        annotations = {"service.kubernetes.io/topology-mode": "Auto"} if name == "topology" else {}
        metadata = {"name": name, "labels": {"team": "x"}, "annotations": annotations}
        server.request("POST", f"{NS}/services", {"metadata": metadata, "spec": {"selector": {"app": "web"}, **spec}})
    yield "Services without pods"
    for number in range(POD_COUNT):
        create_pod(server, number)
    yield "pods"
    set_ready(server, 0, True)
    set_ready(server, 1, False)
    yield "changed readiness"
    server.request("DELETE", f"{NS}/pods/p2", {"gracePeriodSeconds": 30})
    patch(server, f"{NS}/pods/p3", {"metadata": {"labels": {"app": "other"}}})
    conditions = [{"type": "Ready", "status": "False", "reason": "PodCompleted"}]
    patch(server, f"{NS}/pods/p4/status", {"status": {"phase": "Succeeded", "conditions": conditions}})
    yield "terminating, relabelled and finished pods"
    patch(server, f"{NS}/services/plain", {"metadata": {"labels": {"team": "y"}}})
    patch(server, f"{NS}/services/close", {"spec": {"trafficDistribution": None}})
    patch(
        server, f"{NS}/services/topology", {"metadata": {"annotations": {"service.kubernetes.io/topology-mode": None}}}
    )
    yield "changed Services"
    for number in range(POD_COUNT):
        server.request("DELETE", f"{NS}/pods/p{number}", {"gracePeriodSeconds": 0})
    yield "no pods"


def state(server: RealApiServer) -> JSON:
    """Return the slices by Service, and which events there are.

    Messages depend on the number of pods at the time of a sync.
    """
    slices = [stable(it) for it in server.request("GET", SLICES)["items"]]
    events = {
        (it["involvedObject"]["name"], it["type"], it["reason"], it["source"]["component"])
        for it in server.request("GET", f"{NS}/events")["items"]
        if "component" in it["source"]  # not the API server's repair of Service addresses
    }
    endpoints = [stable_endpoints(it) for it in server.request("GET", f"{NS}/endpoints")["items"]]
    return {"slices": sorted(slices, key=json.dumps), "endpoints": endpoints, "events": sorted(events)}


def stable_endpoints(endpoints: JSON) -> JSON:
    """Return Endpoints without UIDs and times. The order of subsets depends on UIDs."""
    metadata, subsets = endpoints["metadata"], endpoints.get("subsets") or []
    for subset in subsets:
        for address in (*subset.get("addresses", ()), *subset.get("notReadyAddresses", ())):
            address["targetRef"].pop("uid")
    annotations = sorted((metadata.get("annotations") or {}).keys() - {TRIGGER_TIME})
    fields = {"name": metadata["name"], "labels": metadata["labels"], "annotations": annotations}
    return {**fields, "subsets": sorted(subsets, key=json.dumps)}


def stable(endpoint_slice: JSON) -> JSON:
    metadata = endpoint_slice["metadata"]
    endpoints = sorted(endpoint_slice["endpoints"] or (), key=lambda it: it["addresses"])
    for endpoint in endpoints:
        endpoint["targetRef"].pop("uid")
    owners = [{name: value for name, value in it.items() if name != "uid"} for it in metadata["ownerReferences"]]
    annotations = sorted((metadata.get("annotations") or {}).keys() - {TRIGGER_TIME})
    return {
        "metadata": {
            "generateName": metadata["generateName"],
            "labels": metadata["labels"],
            "annotations": annotations,
            "ownerReferences": owners,
        },
        "addressType": endpoint_slice["addressType"],
        "ports": endpoint_slice["ports"],
        "endpoints": endpoints,
    }


def settled(server: RealApiServer) -> JSON:
    """Return the state once it has not changed for three seconds: syncs after errors and own writes wait for one."""
    last, since = state(server), time.monotonic()
    while time.monotonic() - since < 3.0:
        time.sleep(0.2)
        current = state(server)
        if current != last:
            last, since = current, time.monotonic()
    return last


def run(server: RealApiServer) -> JSON:
    return {step: settled(server) for step in steps(server)}


def run_kubernetes(folder: Path) -> JSON:
    with real_apiserver(folder) as server:
        options = ("--controllers=endpointslice-controller,endpoints-controller", "--leader-elect=false")
        server.start_component("kube-controller-manager", *options)
        return run(server)


def run_kubeloop(folder: Path) -> JSON:
    arguments = ("--controllers=endpointslice,endpoint", "--trace-journal=")
    with (
        real_apiserver(folder) as server,
        Kubeloop(folder).running("run", f"--kubeconfig={server.kubeconfig}", *arguments),
    ):
        return run(server)


def test_endpoints_and_events_match_kube_controller_manager(tmp_path):
    needs_binaries("kube-controller-manager")
    with ThreadPoolExecutor(2) as executor:
        kubernetes = executor.submit(run_kubernetes, tmp_path / "kubernetes")
        kubeloop = executor.submit(run_kubeloop, tmp_path / "kubeloop")
        real, ours = kubernetes.result(), kubeloop.result()
    assert len(real["pods"]["slices"]) >= len(SERVICES) - 2
    lines = [json.dumps(it, indent=1, sort_keys=True).splitlines() for it in (real, ours)]
    report = "\n".join(difflib.unified_diff(*lines, "Kubernetes", "kubeloop", n=4))
    assert not report, report[:20_000]
