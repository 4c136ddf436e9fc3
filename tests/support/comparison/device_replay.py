"""Attempts of kube-scheduler repeated by kubeloop: groups of nodes, devices, claims and pods on a real API server.

kube-scheduler schedules the pods of all groups; then a profile of kubeloop repeats each attempt of a group on the same
state, in the order of the pods' priorities.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.pod_requests import request_rules
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus
from kubeloop.scheduler.plugins.dynamic_resources.device_allocation import PodDevices
from kubeloop.scheduler.plugins.dynamic_resources.dynamic_resources import STATE
from support.comparison.real_apiserver import RealApiServer, real_apiserver
from support.objects.devices import FilledDevices
from support.scheduling.plugin_cluster import PluginCluster

JSON = dict[str, Any]
Objects = dict[str, dict[str, JSON]]
"""Objects of the API server, by path and name."""

NAMESPACE = "devices"
RESOURCES = "/apis/resource.k8s.io/v1"
CLAIMS, PODS = f"{RESOURCES}/namespaces/{NAMESPACE}/resourceclaims", f"/api/v1/namespaces/{NAMESPACE}/pods"
CLASSES, SLICES, NODES = f"{RESOURCES}/deviceclasses", f"{RESOURCES}/resourceslices", "/api/v1/nodes"
_LIMIT_SECONDS = 240.0


@dataclass
class ReplayGroup:
    """pods: in the order in which they are scheduled. plugins: nodes have some extended resources.

    retried: pods with claims that a later pod uses, too; if they are pending, its binding causes another attempt.
    """

    name: str
    nodes: list[JSON] = field(default_factory=list)
    slices: list[JSON] = field(default_factory=list)
    claims: dict[str, JSON] = field(default_factory=dict)
    pods: dict[str, JSON] = field(default_factory=dict)
    plugins: bool = False
    retried: set[str] = field(default_factory=set)

    def add_pod(self, spec: JSON) -> None:
        """Add a pod that is scheduled after the others, on nodes of the group only."""
        index = len(self.pods)
        only = {
            "nodeSelector": {"group": self.name},
            "priorityClassName": f"order-{index}",
            "tolerations": [{"operator": "Exists"}],  # new nodes have a taint until they are ready
        }
        name = f"{self.name}-{index}"
        self.pods[name] = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": only | spec}


def scheduled_by_kube_scheduler(
    folder: Path, groups: Sequence[ReplayGroup], classes: Iterable[JSON], profile: JSON, gates: Mapping[str, bool]
) -> Objects:
    """Return all objects after kube-scheduler has tried to schedule all pods."""
    flags = {"feature-gates": FeatureGates(gates).text()} if gates else {}
    with real_apiserver(folder, flags) as server:
        _create_all(server, groups, classes)
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(server.kubeconfig), "qps": 5000, "burst": 5000},
            "profiles": [{"schedulerName": "default-scheduler", **profile}],
        }
        file = folder / "scheduler.json"
        file.write_text(json.dumps(configuration))
        options = [f"--feature-gates={flags['feature-gates']}"] if flags else []
        server.start_component("kube-scheduler", f"--config={file}", *options)
        end = time.monotonic() + _LIMIT_SECONDS
        while not all(map(outcome, (pods := _by_name(server, PODS)).values())):
            assert time.monotonic() < end, [name for name, pod in pods.items() if not outcome(pod)]
            time.sleep(0.5)
        return {PODS: pods} | {path: _by_name(server, path) for path in (CLASSES, SLICES, CLAIMS, NODES)}


def _create_all(server: RealApiServer, groups: Sequence[ReplayGroup], classes: Iterable[JSON]) -> None:
    server.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for index in range(max(len(group.pods) for group in groups)):
        body = {"metadata": {"name": f"order-{index}"}, "value": 1000 - index, "preemptionPolicy": "Never"}
        server.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    for obj in classes:
        server.request("POST", CLASSES, obj | {"metadata": {"name": obj["metadata"]["name"]}})

    def create(group: ReplayGroup) -> None:
        for node in group.nodes:
            allocatable = node["status"]["allocatable"]
            server.request("POST", NODES, {**node, "status": {"allocatable": allocatable, "capacity": allocatable}})
        for obj in group.slices:
            server.request("POST", SLICES, obj | {"metadata": {"name": obj["metadata"]["name"]}})
        for obj in group.claims.values():
            server.request("POST", CLAIMS, {key: value for key, value in obj.items() if key != "status"})
        for pod in group.pods.values():
            server.request("POST", PODS, pod)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, groups))


def _by_name(server: RealApiServer, path: str) -> dict[str, JSON]:
    return {item["metadata"]["name"]: item for item in server.request("GET", path)["items"]}


def outcome(pod: JSON) -> str:
    """Return the node of a pod, or the message of PodScheduled; "" while neither is known."""
    conditions = pod["status"].get("conditions", ())
    message = next(
        (condition.get("message", "") for condition in conditions if condition["type"] == "PodScheduled"), ""
    )
    return str(pod["spec"].get("nodeName") or message)


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

    def __init__(self, group: ReplayGroup, objects: Objects, profile: JSON, gates: Mapping[str, bool]) -> None:
        self.group, self.objects = group, objects
        self.rules = request_rules(FeatureGates(gates))
        nodes = [convert(Node, objects[NODES][node["metadata"]["name"]]) for node in group.nodes]
        self.cluster = PluginCluster(nodes, feature_gates=gates)
        slices = [self._typed("ResourceSlice", objects[SLICES][obj["metadata"]["name"]]) for obj in group.slices]
        classes = [self._typed("DeviceClass", entry) for entry in objects[CLASSES].values()]
        claims = [self._claim(name, allocated=False) for name in group.claims]
        self.cluster.devices = FilledDevices(*classes, *slices, *claims, gates=gates)
        self.framework = self.cluster.make_framework(**profile)

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
        state, info = CycleState(), PodInfo(convert(Pod, pending), self.rules)
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
        reserved = {} if devices is None else devices.reserved
        own_claims = (
            [] if devices is None else [(devices.claims[number], result) for number, result in reserved.items()]
        )
        names = [claim.metadata.name for claim, _ in own_claims]
        status = stored["status"].get("extendedResourceClaimStatus")
        own_status, own_node_allocatable = None, []
        if devices is not None:
            own_node_allocatable = plain(devices.node_allocatable.get(stored["spec"]["nodeName"], ()))
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
            ([*map(comparable, own)], own_status, own_node_allocatable),
            (
                [*map(comparable, theirs)],
                None if status is None else status["requestMappings"],
                stored["status"].get("nodeAllocatableResourceClaimStatuses", []),
            ),
        )


def differences(
    groups: Iterable[ReplayGroup], objects: Objects, profile: JSON, gates: Mapping[str, bool]
) -> dict[str, tuple[Any, Any]]:
    """Return (kubeloop's result, kube-scheduler's) of the pods where they differ, at most one pod of each group."""
    found = {}
    for group in groups:
        replay = Replay(group, objects, profile, gates)
        for name in group.pods:
            own, theirs = replay.attempt(name, outcome(objects[PODS][name]))
            if name in group.retried and isinstance(own, Counter):
                continue  # the reasons are those of a later state
            if own != theirs:
                found[name] = (own, theirs)
                break  # the states differ from here on
    return found
