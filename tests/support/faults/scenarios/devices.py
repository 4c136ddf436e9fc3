"""Scenarios of devices: claims from templates and shared ones, lost nodes, tainted devices."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kubeloop.devcluster.simulation.device_files import DevicePool
from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.objects.resources import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from kubeloop.testing.faults.fault_plan import FaultPlan, binds_once
from support.faults.cluster import Cluster
from support.faults.objects import (
    JSON,
    controller_of,
    is_active,
    is_finished,
    is_terminating,
    manifest,
    name_of,
    pod_template,
    uid_of,
)
from support.faults.scenario import UNTIL_SETTLED, Scenario, Step, create
from support.faults.scenarios.workloads import DEPLOYMENT, deployment

_DRIVER = "gpu.example.com"
_CONTROLLERS = (*DEPLOYMENT, "resource-claim-controller", "podgc", "garbagecollector")
_TEMPLATED = {"name": "gpu", "resourceClaimTemplateName": "gpus"}
_SHARED = {"name": "gpu", "resourceClaimName": "shared"}


def _pools(count: int) -> tuple[DevicePool, ...]:
    """Return a pool of GPUs for each node."""
    return (msgspec.convert({"driver": _DRIVER, "devices": [{"name": "gpu", "count": count}]}, DevicePool),)


def _requests(count: int = 1) -> JSON:
    return {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": count}}]}}


def _pod(name: str, claim: JSON, **labels: str) -> JSON:
    template = pod_template(name, resourceClaims=[claim])
    return manifest(PODS, name, labels={**template["metadata"]["labels"], **labels}, spec=template["spec"])


def _web(image: str) -> JSON:
    return deployment(image, replicas=3, pod={"resourceClaims": [_TEMPLATED]})


_DEVICES = (
    manifest(DEVICE_CLASSES, "gpu", spec={"selectors": [{"cel": {"expression": f"device.driver == '{_DRIVER}'"}}]}),
    manifest(RESOURCE_CLAIM_TEMPLATES, "gpus", spec={"spec": _requests()}),
    manifest(RESOURCE_CLAIMS, "shared", spec=_requests()),
)
_READERS = (_pod("reader-0", _SHARED), _pod("reader-1", _SHARED))


def _results(claim: JSON) -> list[JSON]:
    allocation = claim.get("status", {}).get("allocation") or {}
    results: list[JSON] = allocation.get("devices", {}).get("results", [])
    return results


def _devices_of(claim: JSON) -> set[tuple[str, str, str]]:
    return {(result["driver"], result["pool"], result["device"]) for result in _results(claim)}


def _consumers(claim: JSON) -> dict[str, str]:
    """Return the names of the consumers of a claim by UID."""
    return {entry["uid"]: entry["name"] for entry in claim.get("status", {}).get("reservedFor") or ()}


def _claim_names(pod: JSON) -> list[str]:
    """Return the names of the claims of a pod; "" for one that is not recorded."""
    recorded = {
        entry["name"]: entry.get("resourceClaimName", "")
        for entry in pod.get("status", {}).get("resourceClaimStatuses") or ()
    }
    return [
        entry.get("resourceClaimName") or recorded.get(entry["name"], "")
        for entry in pod["spec"].get("resourceClaims", ())
    ]


class _Allocations:
    """Devices and claims at every write.

    No device is allocated to two claims. The devices of a claim never change while it is reserved, and it stays
    reserved for a bound pod until the pod is finished or does not exist. A pod is bound when its claims are allocated
    and reserved for it.
    """

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        self._allocates_once = binds_once(plan)  # the scheduler knows the allocated devices from its cache
        # with old lists of all resources, the scheduler may release the claims of a bound pod
        self._checks_release = all(fault.resource for fault in plan.of_kind("old-lists"))
        self._removes_claims = bool(plan.of_kind("delete-object", "replace-object"))
        cluster.store.subscribe(RESOURCE_CLAIMS, self._on_claim)
        cluster.store.subscribe(PODS, self._on_pod)

    def _on_claim(self, change: Change) -> None:
        claim = change.now.object
        if change.type == "DELETED":
            return
        name, devices = name_of(claim), _devices_of(claim)
        for other in self._cluster.all(RESOURCE_CLAIMS):
            if self._allocates_once and uid_of(other) != uid_of(claim) and devices & _devices_of(other):
                shared = sorted(devices & _devices_of(other))
                self._cluster.violate(f"devices {shared} are allocated to the claims {name} and {name_of(other)}")
        before = change.before.object if change.before is not None else {}
        if _consumers(before) and _consumers(claim) and devices != _devices_of(before):
            self._cluster.violate(f"the devices of claim {name} change while it is reserved")
        if _consumers(claim) and not devices:
            self._cluster.violate(f"claim {name} is reserved without an allocation")
        released = _consumers(before).keys() - _consumers(claim).keys() if self._checks_release else ()
        for uid in released:
            for pod in self._cluster.all(PODS):
                if uid_of(pod) == uid and pod["spec"].get("nodeName") and not is_finished(pod):
                    self._cluster.violate(f"claim {name} is released while Pod {name_of(pod)} uses it")

    def _on_pod(self, change: Change) -> None:
        pod, before = change.now.object, change.before
        if before is None or before.object["spec"].get("nodeName") or not pod["spec"].get("nodeName"):
            return
        for name in _claim_names(pod):
            claim = self._cluster.get(RESOURCE_CLAIMS, name)
            if claim is None and self._removes_claims:
                continue
            if claim is None or not _devices_of(claim) or uid_of(pod) not in _consumers(claim):
                self._cluster.violate(f"Pod {name_of(pod)} is bound, but claim {name or 'of its template'} is not")


def _claims(cluster: Cluster) -> list[str]:
    """Every claim is allocated and reserved for pods that exist, or neither; claims from templates have their pod."""
    pods = {uid_of(pod): pod for pod in cluster.all(PODS)}
    problems = []
    for claim in cluster.all(RESOURCE_CLAIMS):
        name, consumers, owner = name_of(claim), _consumers(claim), controller_of(claim)
        gone = [consumer for uid, consumer in consumers.items() if uid not in pods or is_finished(pods[uid])]
        if gone:
            problems.append(f"claim {name} is reserved for {gone}, which are gone")
        if _devices_of(claim) and not consumers:
            problems.append(f"claim {name} is allocated, but not reserved")
        if is_terminating(claim):
            problems.append(f"claim {name} is terminating")
        if owner and owner["uid"] not in pods:
            problems.append(f"claim {name} has lost its pod {owner['name']}")
    for pod in filter(is_active, pods.values()):
        for name in _claim_names(pod):
            claim = cluster.get(RESOURCE_CLAIMS, name)
            if claim is None:
                problems.append(f"Pod {name_of(pod)} lacks its claim {name}")
            elif pod["spec"].get("nodeName") and uid_of(pod) not in _consumers(claim):
                problems.append(f"claim {name} of Pod {name_of(pod)} is not reserved for it")
    return problems


def _untainted(cluster: Cluster) -> list[str]:
    """No pod uses a device with a taint, and rules have evicted what they select."""
    rules = cluster.all(DEVICE_TAINT_RULES)
    pools = {rule["spec"]["deviceSelector"]["pool"] for rule in rules}
    tainted = {
        (slice_["spec"]["driver"], slice_["spec"]["pool"]["name"], device["name"])
        for slice_ in cluster.all(RESOURCE_SLICES)
        for device in slice_["spec"].get("devices", ())
        if device.get("taints") or slice_["spec"]["pool"]["name"] in pools
    }
    problems = [
        f"DeviceTaintRule {name_of(rule)} has the conditions {rule.get('status', {}).get('conditions', [])}"
        for rule in rules
        if [condition["status"] for condition in rule.get("status", {}).get("conditions", ())] != ["False"]
    ]
    return (
        problems
        + _claims(cluster)
        + [
            f"claim {name_of(claim)} has tainted devices"
            for claim in cluster.all(RESOURCE_CLAIMS)
            if _devices_of(claim) & tainted
        ]
    )


def _end_use_of_shared_claim(cluster: Cluster) -> None:
    cluster.delete(RESOURCE_CLAIMS, "shared")
    for reader in _READERS:
        cluster.delete(PODS, name_of(reader))


def _taint_devices(node: str, *taints: JSON) -> Callable[[Cluster], object]:
    def act(cluster: Cluster) -> None:
        for slice_ in cluster.all(RESOURCE_SLICES):
            if slice_["spec"].get("nodeName") == node:
                devices = [{**device, "taints": [*taints]} for device in slice_["spec"]["devices"]]
                cluster.patch(RESOURCE_SLICES, name_of(slice_), {"spec": {"devices": devices}})

    return act


_BROKEN = {"key": f"{_DRIVER}/broken", "effect": "NoExecute"}
_RULE = manifest(DEVICE_TAINT_RULES, "broken", spec={"deviceSelector": {"pool": "node-1"}, "taint": _BROKEN})

SCENARIOS = (
    Scenario(
        "resource claims",
        _CONTROLLERS,
        (
            Step(
                "create pods with claims",
                create(
                    *_DEVICES,
                    _web("app:1"),
                    *_READERS,
                    manifest(RESOURCE_CLAIMS, "greedy", spec=_requests(9)),
                    _pod("greedy", {"name": "gpu", "resourceClaimName": "greedy"}, unschedulable="true"),
                ),
            ),
            Step("roll out", create(_web("app:2")), UNTIL_SETTLED),
            Step("delete a node", lambda cluster: cluster.delete(NODES, "node-0"), UNTIL_SETTLED),
            Step("create pods of the shared claim again", create(*_READERS), UNTIL_SETTLED),
            Step("delete the shared claim and its pods", _end_use_of_shared_claim, UNTIL_SETTLED),
            Step("delete the pod that waits", lambda cluster: cluster.delete(PODS, "greedy"), 1.0),
        ),
        nodes={"count": 3, "devices": _pools(2)},
        exact=(),
        desired=_claims,
        invariants=(_Allocations,),
    ),
    Scenario(
        "device taints",
        (*_CONTROLLERS, "device-taint-eviction"),
        (
            Step("create pods with claims", create(*_DEVICES, _web("app:1"), *_READERS)),
            Step("taint the devices of a node", _taint_devices("node-0", _BROKEN), UNTIL_SETTLED),
            Step("create pods of the shared claim again", create(*_READERS), UNTIL_SETTLED),
            Step("remove the taint", _taint_devices("node-0"), 5.0),
            Step("taint the devices of the other node by a rule", create(_RULE), UNTIL_SETTLED),
        ),
        nodes={"count": 2, "devices": _pools(4)},
        exact=(),
        desired=_untainted,
        invariants=(_Allocations,),
        gates={"DRADeviceTaintRules": True},
    ),
)
