"""Allocation of devices beside kube-scheduler: the same devices on the same node, the same reasons.

kube-scheduler schedules the pods of random groups on a real API server. Then the plugin DynamicResources repeats each
attempt on the same state: on the node that kube-scheduler chose, it must allocate the same devices; for a pod that is
pending, it must reject each node for the same reason. Skipped if the binaries are not installed.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.status import PluginFailure
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.dynamic_resources.device_allocation import PodDevices
from kubeloop.scheduler.plugins.dynamic_resources.dynamic_resources import STATE, DynamicResources
from support.comparison.device_groups import NAMESPACE, PODS_PER_GROUP, DeviceGroup, device_group
from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver
from support.objects.devices import FilledDevices
from support.scheduling.plugin_cluster import PluginCluster

JSON = dict[str, Any]
GROUPS = 130
RESOURCES = "/apis/resource.k8s.io/v1"
CLAIMS, PODS = f"{RESOURCES}/namespaces/{NAMESPACE}/resourceclaims", f"/api/v1/namespaces/{NAMESPACE}/pods"
PATHS = {"DeviceClass": f"{RESOURCES}/deviceclasses", "ResourceSlice": f"{RESOURCES}/resourceslices"}
LIMIT_SECONDS = 240.0


def pod_body(name: str, claims: list[str], index: int) -> JSON:
    """Return a pod; of its group, the pods with a lower index are scheduled first."""
    group = name.rsplit("-", 1)[0]
    entries = [{"name": f"c{number}", "resourceClaimName": entry} for number, entry in enumerate(claims)]
    spec = {
        "containers": [
            {"name": "c", "image": "i", "resources": {"claims": [{"name": entry["name"]} for entry in entries]}}
        ],
        "resourceClaims": entries,
        "nodeSelector": {"group": group},
        "priorityClassName": f"order-{index}",
        "tolerations": [{"operator": "Exists"}],  # new nodes have a taint until they are ready
    }
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def create_all(server: RealApiServer, groups: list[DeviceGroup]) -> None:
    labels = {"resource.kubernetes.io/admin-access": "true"}
    server.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
    for index in range(PODS_PER_GROUP):
        body = {"metadata": {"name": f"order-{index}"}, "value": 1000 - index}
        server.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)

    def create(group: DeviceGroup) -> None:
        for node in group.nodes:
            status = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "100"}}
            server.request("POST", "/api/v1/nodes", {**node, "status": status | {"capacity": status["allocatable"]}})
        for obj in (*group.devices, *group.claims.values()):
            metadata = {key: value for key, value in obj["metadata"].items() if key in ("name", "namespace")}
            body = {key: value for key, value in obj.items() if key != "status"} | {"metadata": metadata}
            server.request("POST", PATHS.get(obj["kind"], CLAIMS), body)
        for index, (name, claims) in enumerate(group.pods.items()):
            server.request("POST", PODS, pod_body(name, claims, index))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, groups))


def by_name(server: RealApiServer, path: str) -> dict[str, JSON]:
    return {item["metadata"]["name"]: item for item in server.request("GET", path)["items"]}


def outcome(pod: JSON) -> str:
    """Return the node of a pod, or the message of PodScheduled; "" while neither is known."""
    conditions = pod["status"].get("conditions", ())
    message = next(
        (condition.get("message", "") for condition in conditions if condition["type"] == "PodScheduled"), ""
    )
    return str(pod["spec"].get("nodeName") or message)


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, JSON]]:
    """Return all objects by path and name, after kube-scheduler has tried to schedule all pods."""
    needs_binaries("kube-scheduler")
    folder: Path = tmp_path_factory.mktemp("devices")
    with real_apiserver(folder) as server:
        create_all(server, [device_group(number) for number in range(GROUPS)])
        server.start_component("kube-scheduler", "--leader-elect=false", "--kube-api-qps=5000", "--kube-api-burst=5000")
        end = time.monotonic() + LIMIT_SECONDS
        while not all(map(outcome, (pods := by_name(server, PODS)).values())):
            assert time.monotonic() < end, [name for name, pod in pods.items() if not outcome(pod)]
            time.sleep(0.5)
        paths = (*PATHS.values(), CLAIMS, "/api/v1/nodes")
        return {PODS: pods} | {path: by_name(server, path) for path in paths}


def comparable(allocation: JSON) -> JSON:
    """Return an allocation without its time and the random IDs of shares, with empty fields left out."""
    devices = allocation.get("devices", {})
    results = [
        {**result, "shareID": "share"} if "shareID" in result else result for result in devices.get("results", ())
    ]
    selector = allocation.get("nodeSelector")
    return {"results": results, "config": devices.get("config", []), "nodeSelector": selector}


def decoded(server_object: JSON, kind: str) -> JSON:
    return {**server_object, "apiVersion": "resource.k8s.io/v1", "kind": kind}


class Replay:
    """Repeats the attempts of one group."""

    def __init__(self, group: DeviceGroup, objects: dict[str, dict[str, JSON]]) -> None:
        self.group, self.objects = group, objects
        nodes = [convert(Node, objects["/api/v1/nodes"][node["metadata"]["name"]]) for node in group.nodes]
        self.cluster = PluginCluster(nodes)
        devices = [decoded(objects[PATHS[obj["kind"]]][obj["metadata"]["name"]], obj["kind"]) for obj in group.devices]
        claims = [self._claim(name, allocated=False) for name in group.claims]
        self.cluster.devices = FilledDevices(*devices, *claims)
        self.plugin = DynamicResources(plugin_args.DynamicResourcesArgs(), self.cluster)

    def _claim(self, name: str, *, allocated: bool) -> JSON:
        claim = decoded(self.objects[CLAIMS][name], "ResourceClaim")
        return (
            claim if allocated else {**claim, "status": {}, "metadata": {**claim["metadata"], "resourceVersion": "1"}}
        )

    def attempt(self, name: str, expected: str) -> tuple[Any, Any]:
        """Return (kubeloop's result, kube-scheduler's) for a pod: allocations, or reasons with their counts."""
        cluster, snapshot, state = self.cluster, self.cluster.snapshot, CycleState()
        info = PodInfo(convert(Pod, self.objects[PODS][name]))
        _, status = self.plugin.pre_filter(state, info, snapshot)
        assert status is None, status
        try:
            result = self.plugin.filter_rows(state, info, snapshot, snapshot.all_rows)
        except PluginFailure as error:  # on the first of several nodes
            own = re.sub(rf"{self.group.name}-\d", "NODE", str(error))
            theirs = re.sub(rf"{self.group.name}-\d", "NODE", expected)
            return own, own if own in theirs else theirs
        if expected in snapshot.row_of:
            row = snapshot.row_of[expected]
            if not result.passed[row]:
                return result.explain(row).message, "scheduled"
            assert self.plugin.reserve(state, info, expected) is None
            devices: PodDevices = state.read(STATE)
            own = [
                msgspec.json.decode(msgspec.json.encode(devices.reserved[number]))
                for number in range(len(devices.claims))
            ]
            theirs = [self._claim(claim, allocated=True) for claim in self.group.pods[name]]
            cluster.devices.claims.pending.clear()
            cluster.devices.apply(*theirs)
            return [*map(comparable, own)], [comparable(claim["status"]["allocation"]) for claim in theirs]
        if result.passed.any():
            return "feasible", expected
        reasons: dict[str, int] = {}
        for row in range(len(snapshot)):
            reason = result.explain(row).message
            reasons[reason] = reasons.get(reason, 0) + 1
        return reasons, reasons if all(f" {n} {reason}" in expected for reason, n in reasons.items()) else expected


def test_allocations_are_those_of_kube_scheduler(scheduled):
    differences = {}
    bound = claims = 0
    for number in range(GROUPS):
        group = device_group(number)
        replay = Replay(group, scheduled)
        for name, names in group.pods.items():
            expected = outcome(scheduled[PODS][name])
            own, theirs = replay.attempt(name, expected)
            if own != theirs:
                differences[name] = (own, theirs)
                break  # the states differ from here on
            bound += expected in scheduled["/api/v1/nodes"]
            claims += len(names)
    assert differences == {}
    assert claims >= 500
    assert bound >= claims // 4
