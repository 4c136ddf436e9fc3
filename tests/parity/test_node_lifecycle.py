"""Node lifecycle controller beside kube-controller-manager: loss and recovery of nodes, disrupted zones, evictions.

Each runs on its own kube-apiserver. The test writes what kubelets would: Nodes, their status, and heartbeats.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support.comparison.controller_runs import check_same_results
from support.comparison.real_apiserver import RealApiServer, real_apiserver
from support.processes.cli_processes import Kubeloop

JSON = dict[str, Any]
FLAGS = (
    "--node-monitor-period=500ms",
    "--node-monitor-grace-period=15s",  # heartbeats below may be late by as much
    "--node-startup-grace-period=3s",
    "--node-eviction-rate=0.001",  # one node per zone
    "--controllers=node-lifecycle-controller,taint-eviction-controller",
)
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
STRATEGIC = "application/strategic-merge-patch+json"
ZONES = {
    "a": ("a0", "a1", "a2"),  # a0 is lost
    "b": ("b0", "b1", "b2", "b3"),  # b0 to b2 report, one after the other, that they are not ready
    "c": ("c0", "c1", "silent"),  # c1 has pressure and is cordoned; silent never reports
}
ALIVE = ("a1", "a2", *ZONES["b"], "c0", "c1")
KUBELET_CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")


def rfc3339() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def report(server: RealApiServer, name: str, **statuses: str) -> None:
    """Report the conditions of a node as its kubelet: healthy but for these."""
    conditions = [
        {
            "type": type_,
            "status": statuses.get(type_, str(type_ == "Ready")),
            "reason": "Reported",
            "lastHeartbeatTime": rfc3339(),
        }
        for type_ in KUBELET_CONDITIONS
    ]
    server.request("PATCH", f"{NODES}/{name}/status", {"status": {"conditions": conditions}}, content_type=STRATEGIC)


def create(server: RealApiServer) -> None:
    for zone, names in ZONES.items():
        for name in names:
            labels = {"topology.kubernetes.io/zone": zone, "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"}
            node = {"metadata": {"name": name, "labels": labels}, "spec": {"unschedulable": name == "c1"}}
            server.request("POST", NODES, node)
            if name == "silent":
                continue
            report(server, name, **({"DiskPressure": "True"} if name == "c1" else {}))
    for name, seconds in {"evicted": 1, "tolerant": 3600}.items():
        toleration = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        spec = {"nodeName": "a0", "tolerations": [toleration], "containers": [{"name": "main", "image": "app:1"}]}
        server.request("POST", PODS, {"metadata": {"name": name}, "spec": spec})
        condition = {"type": "Ready", "status": "True"}
        server.request(
            "PATCH", f"{PODS}/{name}/status", {"status": {"conditions": [condition]}}, content_type=STRATEGIC
        )


def renewal() -> JSON:
    return {"leaseDurationSeconds": 40, "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}


@contextmanager
def heartbeats(server: RealApiServer, *nodes: str) -> Iterator[None]:
    """Renew the Leases of these nodes."""
    wait(lambda: "kube-node-lease" in names_of(server, "/api/v1/namespaces"), server)
    for name in nodes:
        server.request("POST", LEASES, {"metadata": {"name": name}, "spec": renewal()})
    stopped = threading.Event()

    def renew() -> None:
        while not stopped.wait(1.0):
            for name in nodes:
                server.request("PATCH", f"{LEASES}/{name}", {"spec": renewal()}, content_type=STRATEGIC)

    with ThreadPoolExecutor(1) as executor:
        beats = executor.submit(renew)
        try:
            yield
        finally:
            stopped.set()
        beats.result()


def wait(condition: Callable[[], bool], server: RealApiServer) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, json.dumps(state(server), indent=1)
        time.sleep(0.2)


def names_of(server: RealApiServer, path: str) -> set[str]:
    return {it["metadata"]["name"] for it in server.request("GET", path)["items"]}


def taints(server: RealApiServer, name: str) -> list[str]:
    """Return the taints as kubectl prints them."""
    spec = server.request("GET", f"{NODES}/{name}")["spec"]
    return sorted(f"{taint['key'].rpartition('/')[2]}:{taint['effect']}" for taint in spec.get("taints", ()))


def lost(server: RealApiServer) -> bool:
    pod = server.request("GET", f"{PODS}/evicted")
    return (
        "deletionTimestamp" in pod["metadata"]
        and "unreachable:NoExecute" in taints(server, "silent")
        and has_event(server, "tolerant", "NodeNotReady")
        and taints(server, "b2") == ["not-ready:NoSchedule"]
    )


def has_event(server: RealApiServer, name: str, reason: str) -> bool:
    return any(event[:2] == [name, reason] for event in state(server)["events"])


def state(server: RealApiServer) -> JSON:
    nodes, pods, events = (server.request("GET", path) for path in (NODES, PODS, "/api/v1/namespaces/default/events"))
    return {
        "nodes": {
            node["metadata"]["name"]: {
                "labels": node["metadata"]["labels"],
                "taints": taints(server, node["metadata"]["name"]),
                "conditions": [
                    [condition.get(key) for key in ("type", "status", "reason", "message")]
                    for condition in node["status"]["conditions"]
                ],
            }
            for node in nodes["items"]
        },
        "pods": {
            pod["metadata"]["name"]: [
                "deletionTimestamp" in pod["metadata"],
                *(
                    [condition.get(key) for key in ("type", "status", "reason")]
                    for condition in pod["status"]["conditions"]
                ),
            ]
            for pod in pods["items"]
        },
        "events": sorted(
            [
                event["involvedObject"]["name"],
                event["reason"],
                event["message"],
                event["type"],
                event["source"]["component"],
            ]
            for event in events["items"]
        ),
    }


def run(server: RealApiServer) -> JSON:
    """Return the states after the loss of nodes, after the recovery of one, and when no node is ready."""
    create(server)
    with heartbeats(server, *ALIVE):
        report(server, "b0", Ready="False")
        wait(lambda: taints(server, "b0") == ["not-ready:NoExecute", "not-ready:NoSchedule"], server)
        for name in ("b1", "b2"):
            report(server, name, Ready="False")
        wait(lambda: lost(server), server)
        states = {"loss": state(server)}
        with heartbeats(server, "a0"):
            report(server, "a0")
            wait(lambda: taints(server, "a0") == [], server)
            states["recovery"] = state(server)
            for name in ("a0", *ALIVE):
                report(server, name, Ready="False")
            wait(lambda: not any("NoExecute" in taint for name in ALIVE for taint in taints(server, name)), server)
            states["full disruption"] = state(server)
    return states


def run_kubernetes(folder: Path) -> JSON:
    with real_apiserver(folder) as server:
        server.start_component("kube-controller-manager", "--leader-elect=false", *FLAGS)
        return run(server)


def run_kubeloop(folder: Path) -> JSON:
    with (
        real_apiserver(folder) as server,
        Kubeloop(folder).running("run", f"--kubeconfig={server.kubeconfig}", "--trace-journal=", *FLAGS),
    ):
        return run(server)


def test_states_and_events_of_nodes_match_kube_controller_manager(tmp_path):
    check_same_results(run_kubernetes, run_kubeloop, tmp_path)
