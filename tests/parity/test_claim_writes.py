"""Order of the scheduler's writes to claims and pods beside kube-scheduler's.

They are finalizer, allocation, reservation and binding, and what undoes them if a device cannot be attached.

Each scheduler runs alone on its own kube-apiserver. The test is user, DRA driver and resource claim controller.
"""

from __future__ import annotations

import difflib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support.comparison.compared_clusters import ComparedCluster
from support.comparison.fake_kubelet import make_node
from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver
from support.objects.resource_claims import FINALIZER, claim_spec
from support.processes.cli_processes import Kubeloop

JSON = dict[str, Any]
RESOURCES = "/apis/resource.k8s.io/v1"
CLAIMS, PODS = f"{RESOURCES}/namespaces/x/resourceclaims", "/api/v1/namespaces/x/pods"
NODES = ("a",)  # the choice among several nodes is random


class ClaimedCluster(ComparedCluster):
    def create_devices(self, driver: str, count: int, **fields: Any) -> None:
        """Create a device class, and a pool of devices on each node. fields: of each device."""
        expression = f"device.driver == '{driver}'"
        body = {"metadata": {"name": driver}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
        self.server.request("POST", f"{RESOURCES}/deviceclasses", body)
        for node in NODES:
            spec = {
                "driver": driver,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "nodeName": node,
                "devices": [{"name": f"d{number}", **fields} for number in range(count)],
            }
            self.server.request(
                "POST", f"{RESOURCES}/resourceslices", {"metadata": {"name": f"{node}-{driver}"}, "spec": spec}
            )

    def create_claim(self, name: str, driver: str = "gpu.example.com", **fields: Any) -> None:
        finalizers = fields.pop("finalizers", [])
        metadata = {"name": name, **({"finalizers": finalizers} if finalizers else {})}
        self.server.request("POST", CLAIMS, {"metadata": metadata, "spec": claim_spec(driver, **fields)})

    def create_pod(self, name: str, *claims: str, **spec: Any) -> None:
        entries = [{"name": f"c{number}", "resourceClaimName": claim} for number, claim in enumerate(claims)]
        containers = [{"name": "main", "image": "app:1"}]
        body = {"containers": containers, "resourceClaims": entries, "terminationGracePeriodSeconds": 0, **spec}
        self.server.request("POST", PODS, {"metadata": {"name": name}, "spec": body})

    def wait_bound(self, name: str) -> None:
        def is_bound() -> bool:
            return bool(self.server.request("GET", f"{PODS}/{name}")["spec"].get("nodeName"))

        self.wait(is_bound, f"Pod {name} is bound")

    def wait_unscheduled(self, name: str) -> None:
        def is_unscheduled() -> bool:
            conditions = self.server.request("GET", f"{PODS}/{name}")["status"].get("conditions", ())
            return any(it["type"] == "PodScheduled" and it["status"] == "False" for it in conditions)

        self.wait(is_unscheduled, f"Pod {name} is not scheduled")

    def claim(self, name: str) -> JSON:
        claim: JSON = self.server.request("GET", f"{CLAIMS}/{name}")
        return claim

    def set_device_condition(self, claim: str, type_: str) -> None:
        """Report a condition of the device of a claim, as its driver does."""
        (result,) = self.claim(claim)["status"]["allocation"]["devices"]["results"]
        condition = {"type": type_, "status": "True", "reason": "R", "message": ""}
        condition["lastTransitionTime"] = "2026-03-01T00:00:00Z"
        device = {name: result[name] for name in ("driver", "pool", "device")}
        self.patch(f"{CLAIMS}/{claim}/status", status={"devices": [{**device, "conditions": [condition]}]})

    def writes(self) -> tuple[list[str], list[str]]:
        """Return the changes of claims and pods in their order, each as the state that it leads to.

        Conditions of pods without a node are in the second list: kubeloop writes them while it removes reservations.
        """
        changes = [(int(obj["metadata"]["resourceVersion"]), type_, obj) for path in (CLAIMS, PODS)
                   for type_, obj in self.versions(path)]  # fmt: skip
        lines: list[str] = []
        conditions: list[str] = []
        state: dict[str, str] = {}
        for _, type_, obj in sorted(changes, key=lambda change: change[0]):
            kind, name = obj["kind"], obj["metadata"]["name"]
            text = f"{kind} {name} " + ("deleted" if type_ == "DELETED" else describe(obj))
            if state.get(f"{kind}/{name}") != text:
                state[f"{kind}/{name}"] = text
                (conditions if "scheduled=['False " in text else lines).append(text)
        return lines, conditions


def describe(obj: JSON) -> str:
    status = obj.get("status", {})
    if obj["kind"] == "Pod":
        scheduled = [it for it in status.get("conditions", ()) if it["type"] == "PodScheduled"]
        reasons = [f"{it['status']} {it.get('reason', '')} {it.get('message', '')}".strip() for it in scheduled]
        return f"bound={bool(obj['spec'].get('nodeName'))} scheduled={reasons}"
    allocation = status.get("allocation") or {}
    results = [
        (result["request"], result["driver"], *(name for name in ("bindingConditions",) if name in result))
        for result in allocation.get("devices", {}).get("results", ())
    ]
    reserved = [entry["name"] for entry in status.get("reservedFor", ())]
    fields = sorted(name for name in allocation if name != "devices")
    finalizers = obj["metadata"].get("finalizers", [])
    return f"finalizers={finalizers} devices={results} with {fields} reserved={reserved}"


def run(server: RealApiServer) -> JSON:
    for node in NODES:
        make_node(server, node)
    cluster = ClaimedCluster(server, (CLAIMS, PODS))
    cluster.create_devices("gpu.example.com", 8)
    cluster.create_devices(
        "fpga.example.com", 2, bindingConditions=["attached"], bindingFailureConditions=["failed"], bindsToNode=True
    )
    for name in ("one", "first", "second"):
        cluster.create_claim(name)
    cluster.create_claim("protected", finalizers=["example.com/other", FINALIZER])
    cluster.create_claim("many", count=9)
    for name in ("attached", "failing"):
        cluster.create_claim(name, "fpga.example.com")
    for pod, claims in (("one", ["one"]), ("two", ["first", "second"]), ("protected", ["protected"])):
        cluster.create_pod(pod, *claims)
        cluster.wait_bound(pod)
    cluster.create_pod("sharing", "one")  # an allocated claim
    cluster.wait_bound("sharing")
    cluster.create_pod("many", "many")
    cluster.wait_unscheduled("many")
    server.request("DELETE", f"{PODS}/many")
    cluster.create_pod("waiting", "late")  # a claim that does not exist yet
    cluster.settle()
    cluster.create_claim("late")
    cluster.wait_bound("waiting")
    cluster.create_pod("attached", "attached")
    cluster.wait(lambda: "allocation" in cluster.claim("attached").get("status", {}), "allocated claim")
    cluster.set_device_condition("attached", "attached")
    cluster.wait_bound("attached")
    cluster.create_pod("failing", "failing")
    cluster.wait(lambda: "allocation" in cluster.claim("failing").get("status", {}), "allocated claim")
    cluster.set_device_condition("failing", "failed")
    cluster.wait_unscheduled("failing")
    server.request("DELETE", f"{PODS}/failing")
    cluster.settle()
    writes, conditions = cluster.writes()
    return {"writes": writes, "conditions": conditions, "events": cluster.events()}


def run_kubernetes(folder: Path) -> JSON:
    with real_apiserver(folder) as server:
        server.start_component("kube-scheduler", "--leader-elect=false")
        return run(server)


def run_kubeloop(folder: Path) -> JSON:
    flags = ("--controllers=scheduler", "--trace-journal=")
    with real_apiserver(folder) as server, Kubeloop(folder).running("run", f"--kubeconfig={server.kubeconfig}", *flags):
        return run(server)


def test_writes_match_kube_scheduler(tmp_path):
    needs_binaries("kube-scheduler")
    with ThreadPoolExecutor(2) as executor:
        kubernetes = executor.submit(run_kubernetes, tmp_path / "kubernetes")
        kubeloop = executor.submit(run_kubeloop, tmp_path / "kubeloop")
        real, ours = kubernetes.result(), kubeloop.result()
    lines = [json.dumps(it, indent=1, sort_keys=True).splitlines() for it in (real, ours)]
    report = "\n".join(difflib.unified_diff(*lines, "Kubernetes", "kubeloop", n=3))
    assert not report, report[:20_000]
    assert len(real["writes"]) > 20
