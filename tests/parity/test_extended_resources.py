"""Extended resources that devices provide, beside kube-scheduler: the same nodes, claims, scores and reasons.

kube-scheduler schedules the pods of random groups on a real API server, with a profile that scores an extended resource
only. Then kubeloop's profile repeats each attempt on the same state. Skipped if the binaries are not installed.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus
from kubeloop.scheduler.plugins.device_allocation import PodDevices
from kubeloop.scheduler.plugins.dynamic_resources import STATE
from support.devices import FilledDevices
from support.extended_resource_groups import CLASSES, GPU, NAMESPACE, PODS_PER_GROUP, ExtendedGroup, extended_group
from support.plugin_cluster import PluginCluster
from support.real_apiserver import RealApiServer, needs_binaries, real_apiserver

JSON = dict[str, Any]
GROUPS = 120
RESOURCES = "/apis/resource.k8s.io/v1"
CLAIMS, PODS = f"{RESOURCES}/namespaces/{NAMESPACE}/resourceclaims", f"/api/v1/namespaces/{NAMESPACE}/pods"
CLASS_PATH, SLICES, NODES = f"{RESOURCES}/deviceclasses", f"{RESOURCES}/resourceslices", "/api/v1/nodes"
LIMIT_SECONDS = 240.0
STRATEGY = {"type": "MostAllocated", "resources": [{"name": GPU, "weight": 1}]}
PROFILE: JSON = {
    "plugins": {
        "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]},
        "multiPoint": {
            "disabled": [{"name": "NodeResourcesBalancedAllocation"}, {"name": "ImageLocality"}],
        },
    },
    "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": STRATEGY}}],
}


def create_all(server: RealApiServer, groups: list[ExtendedGroup]) -> None:
    server.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for index in range(PODS_PER_GROUP):
        body = {"metadata": {"name": f"order-{index}"}, "value": 1000 - index, "preemptionPolicy": "Never"}
        server.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    for obj in CLASSES:
        server.request("POST", CLASS_PATH, obj | {"metadata": {"name": obj["metadata"]["name"]}})

    def create(group: ExtendedGroup) -> None:
        for node in group.nodes:
            allocatable = node["status"]["allocatable"]
            server.request("POST", NODES, {**node, "status": {"allocatable": allocatable, "capacity": allocatable}})
        for obj in group.devices:
            server.request("POST", SLICES, obj | {"metadata": {"name": obj["metadata"]["name"]}})
        for obj in group.claims.values():
            server.request("POST", CLAIMS, {key: value for key, value in obj.items() if key != "status"})
        for pod in group.pods.values():
            server.request("POST", PODS, pod)

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
    folder: Path = tmp_path_factory.mktemp("extended")
    with real_apiserver(folder) as server:
        create_all(server, [extended_group(number) for number in range(GROUPS)])
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(server.kubeconfig), "qps": 5000, "burst": 5000},
            "profiles": [{"schedulerName": "default-scheduler", **PROFILE}],
        }
        file = folder / "scheduler.json"
        file.write_text(json.dumps(configuration))
        server.start_component("kube-scheduler", f"--config={file}")
        end = time.monotonic() + LIMIT_SECONDS
        while not all(map(outcome, (pods := by_name(server, PODS)).values())):
            assert time.monotonic() < end, [name for name, pod in pods.items() if not outcome(pod)]
            time.sleep(0.5)
        return {PODS: pods} | {path: by_name(server, path) for path in (CLASS_PATH, SLICES, CLAIMS, NODES)}


def plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def comparable(claim: JSON) -> JSON:
    """Return what the scheduler decides about a claim, without times, random IDs and empty fields."""
    allocation = claim["status"]["allocation"]
    devices = allocation.get("devices", {})
    results = [
        {**result, "shareID": "share"} if "shareID" in result else result for result in devices.get("results", ())
    ]
    return {
        "requests": [
            {"name": entry["name"], **{"count": 1, "allocationMode": "ExactCount"}, **entry["exactly"]}
            for entry in claim["spec"]["devices"].get("requests", ())
        ],
        "results": results,
        "config": devices.get("config", []),
        "nodeSelector": allocation.get("nodeSelector"),
    }


class Replay:
    """Repeats the attempts of one group."""

    def __init__(self, group: ExtendedGroup, objects: dict[str, dict[str, JSON]]) -> None:
        self.group, self.objects = group, objects
        nodes = [convert(Node, objects[NODES][node["metadata"]["name"]]) for node in group.nodes]
        self.cluster = PluginCluster(nodes)
        slices = [self._typed("ResourceSlice", objects[SLICES][obj["metadata"]["name"]]) for obj in group.devices]
        classes = [self._typed("DeviceClass", entry) for entry in objects[CLASS_PATH].values()]
        claims = [self._claim(name, allocated=False) for name in group.claims]
        self.cluster.devices = FilledDevices(*classes, *slices, *claims)
        self.framework = self.cluster.make_framework(**PROFILE)

    @staticmethod
    def _typed(kind: str, obj: JSON) -> JSON:
        return {**obj, "apiVersion": "resource.k8s.io/v1", "kind": kind}

    def _claim(self, name: str, *, allocated: bool) -> JSON:
        claim = self._typed("ResourceClaim", self.objects[CLAIMS][name])
        if allocated:
            return claim
        return {**claim, "status": {}, "metadata": {**claim["metadata"], "resourceVersion": "1"}}

    def attempt(self, name: str, expected: str) -> tuple[Any, Any]:
        """Return (kubeloop's result, kube-scheduler's) for a pod."""
        cluster, snapshot, framework = self.cluster, self.cluster.refresh(), self.framework
        stored = self.objects[PODS][name]
        pending = {**stored, "status": {}, "spec": {**stored["spec"], "nodeName": ""}}
        state, info = CycleState(), PodInfo(convert(Pod, pending))
        diagnosis = Diagnosis(NodeToStatus(snapshot))
        _, rejection, _ = framework.filters.run_pre_filter(state, info, snapshot)
        assert rejection is None
        rows = framework.filters.run_filters(state, info, snapshot, snapshot.all_rows, diagnosis)
        if expected not in snapshot.row_of:
            reasons = diagnosis.node_to_status.count_reasons(len(snapshot))
            if len(rows):
                return [snapshot.node_infos[row].name for row in rows], expected
            return reasons, reasons if all(f" {n} {reason}" in expected for reason, n in reasons.items()) else expected
        row = snapshot.row_of[expected]
        if row not in rows:
            status = diagnosis.node_to_status.get(expected)
            return status.message if status is not None else "", "scheduled"
        if len(rows) > 1:
            framework.scores.run_pre_score(state, info, snapshot, rows)
            totals = dict(zip(rows.tolist(), framework.scores.run_scores(state, info, snapshot, rows), strict=True))
            if totals[row] != max(totals.values()):
                return {snapshot.node_infos[at].name: int(total) for at, total in totals.items()}, expected
        assert framework.reserve.run_reserve(state, info, expected) is None
        devices: PodDevices | None = state.read(STATE)
        result = self._compared(devices, stored)
        cluster.cache.add_pod(convert(Pod, stored))
        return result

    def _compared(self, devices: PodDevices | None, stored: JSON) -> tuple[Any, Any]:
        """Return both schedulers' claims of a bound pod, and apply those of kube-scheduler."""
        own_claims = (
            [(claim, devices.reserved[number]) for number, claim in enumerate(devices.claims)] if devices else []
        )
        names = [entry["resourceClaimName"] for entry in stored["spec"].get("resourceClaims", ())]
        status = stored["status"].get("extendedResourceClaimStatus")
        own_status = None
        if devices is not None and devices.special is not None:
            own_claims.append((devices.special.claim, devices.special.allocation))
            own_status = plain(devices.special.mappings)
        if status is not None:
            names.append(status["resourceClaimName"])
        theirs = [self._claim(name, allocated=True) for name in names]
        own = [{**plain(claim), "status": {"allocation": plain(allocation)}} for claim, allocation in own_claims]
        self.cluster.devices.claims.pending.clear()
        for claim, _ in own_claims:
            self.cluster.devices.usage.set_allocation(claim.metadata.uid, None)
        self.cluster.devices.apply(*theirs)
        return (
            ([*map(comparable, own)], own_status),
            ([*map(comparable, theirs)], None if status is None else status["requestMappings"]),
        )


def test_extended_resources_are_those_of_kube_scheduler(scheduled):
    differences = {}
    bound = special = 0
    for number in range(GROUPS):
        group = extended_group(number)
        replay = Replay(group, scheduled)
        for name in group.pods:
            expected = outcome(scheduled[PODS][name])
            own, theirs = replay.attempt(name, expected)
            if own != theirs:
                differences[name] = (own, theirs)
                break  # the states differ from here on
            bound += expected in scheduled[NODES]
            special += "extendedResourceClaimStatus" in scheduled[PODS][name]["status"]
    assert differences == {}
    assert special >= 100
    assert bound < GROUPS * PODS_PER_GROUP - 100  # as many stay pending
