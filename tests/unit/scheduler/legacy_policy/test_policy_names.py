"""Each legacy predicate and priority changes the choice of the node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from kubeloop.kube.objects import resources
from kubeloop.scheduler.legacy_policy.policy import PREDICATES, PRIORITIES, decode_policy

pytestmark = pytest.mark.virtual_time

Spec = dict[str, Any]
HOSTNAME = "kubernetes.io/hostname"


def profiles(predicates: list[str], priorities: list[dict[str, Any]]) -> dict[str, Any]:
    document = {"kind": "Policy", "predicates": [{"name": name} for name in predicates], "priorities": priorities}
    return {"profiles": decode_policy(document).profiles}


# --- Predicates: "n" is the only node, and the predicate rejects it -------------------------------------------------


def insufficient_cpu(cluster: Any) -> Spec:
    cluster.node("n", cpu="1")
    return {"cpu": "2"}


def port_taken(cluster: Any) -> Spec:
    cluster.node("n")
    containers = [{"name": "c", "ports": [{"hostPort": 80, "containerPort": 80, "protocol": "TCP"}]}]
    cluster.pod("holder", nodeName="n", containers=containers)
    return {"containers": containers}


def node_selector_mismatch(cluster: Any) -> Spec:
    cluster.node("n")
    return {"nodeSelector": {"disk": "ssd"}}


def tainted(cluster: Any) -> Spec:
    cluster.node("n", taints=[{"key": "k", "effect": "NoSchedule"}])
    return {}


def cordoned(cluster: Any) -> Spec:
    cluster.node("n", unschedulable=True)
    return {}


def pressure(kind: str) -> Callable[[Any], Spec]:
    def under_pressure(cluster: Any) -> Spec:
        cluster.node("n", status={"conditions": [{"type": kind, "status": "True"}]})
        return {"cpu": ""}

    return under_pressure


def disk_in_use(cluster: Any) -> Spec:
    cluster.node("n")
    volumes = [{"name": "v", "gcePersistentDisk": {"pdName": "d"}}]
    cluster.pod("holder", nodeName="n", volumes=volumes)
    return {"volumes": volumes}


def bound_volume(cluster: Any, **volume: Any) -> Spec:
    labels = volume.pop("labels", {})
    cluster.node("n", labels={"topology.kubernetes.io/zone": "here"})
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **volume}
    cluster.put(resources.PERSISTENT_VOLUMES, {"metadata": {"name": "pv", "labels": labels}, "spec": spec})
    metadata = {"name": "c", "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    claim = {"metadata": metadata, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}
    cluster.put(resources.PERSISTENT_VOLUME_CLAIMS, claim)
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}


def volume_zone_conflict(cluster: Any) -> Spec:
    return bound_volume(cluster, labels={"topology.kubernetes.io/zone": "there"})


def volume_node_conflict(cluster: Any) -> Spec:
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["other"]}]}
    return bound_volume(cluster, nodeAffinity={"required": {"nodeSelectorTerms": [term]}})


def volume_limit_reached(driver: str, source: str, key: str) -> Callable[[Any], Spec]:
    def limit_one(cluster: Any) -> Spec:
        cluster.node("n")
        drivers = [{"name": driver, "nodeID": "n", "allocatable": {"count": 1}}]
        cluster.put(resources.CSI_NODES, {"metadata": {"name": "n"}, "spec": {"drivers": drivers}})
        cluster.pod("holder", nodeName="n", volumes=[{"name": "v", source: {key: "one"}}])
        return {"volumes": [{"name": "v", source: {key: "two"}}]}

    return limit_one


def pod_affinity(to: str, *, anti: bool = False) -> Spec:
    term = {"labelSelector": {"matchLabels": {"app": to}}, "topologyKey": HOSTNAME}
    kind = "podAntiAffinity" if anti else "podAffinity"
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def anti_affinity_conflict(cluster: Any) -> Spec:
    cluster.node("n")
    cluster.pod("db", nodeName="n", metadata={"labels": {"app": "db"}})
    return pod_affinity("db", anti=True)


def spread_conflict(cluster: Any) -> Spec:
    cluster.node("n")
    web = {"metadata": {"labels": {"app": "web"}}}
    cluster.pod("one", nodeName="n", **web)
    return {**web, **spread("DoNotSchedule", min_domains=2)}


def spread(action: str, min_domains: int | None = None) -> Spec:
    constraint: dict[str, Any] = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": action}
    constraint["labelSelector"] = {"matchLabels": {"app": "web"}}
    if min_domains:
        constraint["minDomains"] = min_domains
    return {"topologySpreadConstraints": [constraint]}


REJECTING: dict[str, Callable[[Any], Spec]] = {
    "GeneralPredicates": insufficient_cpu,
    "PodFitsResources": insufficient_cpu,
    "PodFitsHostPorts": port_taken,
    "PodFitsPorts": port_taken,
    "MatchNodeSelector": node_selector_mismatch,
    "PodToleratesNodeTaints": tainted,
    "CheckNodeUnschedulable": cordoned,
    "CheckNodeCondition": cordoned,
    "CheckNodeMemoryPressure": pressure("MemoryPressure"),
    "CheckNodeDiskPressure": pressure("DiskPressure"),
    "CheckNodePIDPressure": pressure("PIDPressure"),
    "NoDiskConflict": disk_in_use,
    "NoVolumeZoneConflict": volume_zone_conflict,
    "NoVolumeNodeConflict": volume_node_conflict,
    "CheckVolumeBinding": volume_node_conflict,
    "MaxCSIVolumeCountPred": volume_limit_reached("ebs.csi.aws.com", "awsElasticBlockStore", "volumeID"),
    "MaxEBSVolumeCount": volume_limit_reached("ebs.csi.aws.com", "awsElasticBlockStore", "volumeID"),
    "MaxGCEPDVolumeCount": volume_limit_reached("pd.csi.storage.gke.io", "gcePersistentDisk", "pdName"),
    "MaxAzureDiskVolumeCount": volume_limit_reached("disk.csi.azure.com", "azureDisk", "diskURI"),
    "MaxCinderVolumeCount": volume_limit_reached("cinder.csi.openstack.org", "cinder", "volumeID"),
    "MatchInterPodAffinity": anti_affinity_conflict,
    "EvenPodsSpread": spread_conflict,
}
BY_SPEC_NODE_NAME = {"PodFitsHost", "HostName"}  # pods with spec.nodeName are never scheduled
MANDATORY = {"PodToleratesNodeTaints", "CheckNodeUnschedulable", "CheckNodeCondition"}
EQUAL = [{"name": "EqualPriority", "weight": 1}]


def test_all_predicates_have_a_case():
    assert REJECTING.keys() | BY_SPEC_NODE_NAME == PREDICATES.keys()


@pytest.mark.parametrize("name", REJECTING)
async def test_predicate_rejects_the_node(cluster, scheduling, name):
    spec = REJECTING[name](cluster)
    async with scheduling(**profiles([name], EQUAL)):
        cluster.pod("p", **spec)
        await asyncio.sleep(0.5)
    assert cluster.node_of("default/p") == ""
    assert [reason for key, reason, _ in cluster.events if key == "default/p"][:1] == ["FailedScheduling"]


@pytest.mark.parametrize("name", [name for name in REJECTING if name not in MANDATORY])
async def test_without_the_predicate_the_pod_is_bound(cluster, scheduling, name):
    spec = REJECTING[name](cluster)
    async with scheduling(**profiles([], EQUAL)):
        cluster.pod("p", **spec)
        await asyncio.sleep(0.5)
    assert cluster.node_of("default/p") == "n"


# --- Priorities: "good" is the first of five nodes; with equal scores the random choice is another one ---------------

BAD = ("bad1", "bad2", "bad3", "bad4")


def nodes(cluster: Any, good: Spec | None = None, bad: Spec | None = None) -> None:
    cluster.node("good", **(good or {}))
    for name in BAD:
        cluster.node(name, **(bad or {}))


def on_bad(cluster: Any, **spec: Any) -> None:
    for name in BAD:
        cluster.pod(f"on-{name}", nodeName=name, **spec)


def used(cluster: Any) -> Spec:
    nodes(cluster)
    on_bad(cluster, cpu="3")
    return {}


def partly_used(cluster: Any) -> Spec:
    nodes(cluster)
    cluster.pod("there", nodeName="good", cpu="2")
    return {}


def unbalanced(cluster: Any) -> Spec:
    nodes(cluster)
    container = {"name": "c", "resources": {"requests": {"memory": "6Gi"}}}
    cluster.pod("there", nodeName="good", containers=[container])
    return {"cpu": "2"}


def service_pods(cluster: Any) -> Spec:
    nodes(cluster)
    web = {"metadata": {"labels": {"app": "web"}}}
    on_bad(cluster, **web)
    cluster.put(resources.SERVICES, {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}}})
    return web


def preferred_pod_affinity(cluster: Any) -> Spec:
    nodes(cluster)
    cluster.pod("db", nodeName="good", metadata={"labels": {"app": "db"}})
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": HOSTNAME}
    preferred = [{"weight": 1, "podAffinityTerm": term}]
    return {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def preferred_node_affinity(cluster: Any) -> Spec:
    nodes(cluster, good={"labels": {"disk": "ssd"}})
    expression = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    preferred = [{"weight": 1, "preference": expression}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def prefer_no_schedule_taint(cluster: Any) -> Spec:
    nodes(cluster, bad={"taints": [{"key": "k", "effect": "PreferNoSchedule"}]})
    return {}


def image_present(cluster: Any) -> Spec:
    nodes(cluster, good={"status": {"images": [{"names": ["i:latest"], "sizeBytes": 900 << 20}]}})
    return {}


def prefer_avoid_pods(cluster: Any) -> Spec:
    avoid_pods = {"preferAvoidPods": [{"podSignature": {"podController": {"kind": "ReplicaSet", "uid": "rs"}}}]}
    nodes(cluster, bad={"annotations": {"scheduler.alpha.kubernetes.io/preferAvoidPods": json.dumps(avoid_pods)}})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    return {"metadata": {"ownerReferences": [owner]}}


def preferred_spread(cluster: Any) -> Spec:
    nodes(cluster)
    web = {"metadata": {"labels": {"app": "web"}}}
    on_bad(cluster, **web)
    return {**web, **spread("ScheduleAnyway")}


PREFERRING: dict[str, Callable[[Any], Spec]] = {
    "LeastRequestedPriority": used,
    "MostRequestedPriority": partly_used,
    "RequestedToCapacityRatioPriority": partly_used,
    "BalancedResourceAllocation": unbalanced,
    "SelectorSpreadPriority": service_pods,
    "ServiceSpreadingPriority": service_pods,
    "InterPodAffinityPriority": preferred_pod_affinity,
    "NodeAffinityPriority": preferred_node_affinity,
    "TaintTolerationPriority": prefer_no_schedule_taint,
    "ImageLocalityPriority": image_present,
    "NodePreferAvoidPodsPriority": prefer_avoid_pods,
    "EvenPodsSpreadPriority": preferred_spread,
}
RATIO_SHAPE = {"requestedToCapacityRatioArguments": {"shape": [{"utilization": 0}, {"utilization": 100, "score": 10}]}}


def priority(name: str, weight: int = 1) -> dict[str, Any]:
    argument = {"argument": RATIO_SHAPE} if name == "RequestedToCapacityRatioPriority" else {}
    return {"name": name, "weight": weight, **argument}


def test_all_priorities_have_a_case():
    assert PREFERRING.keys() | {"EqualPriority"} == PRIORITIES.keys()


@pytest.mark.parametrize("name", PREFERRING)
async def test_priority_prefers_the_better_node(cluster, scheduling, name):
    spec = PREFERRING[name](cluster)
    async with scheduling(**profiles([], [priority(name)])):
        cluster.pod("p", **spec)
        await asyncio.sleep(0.5)
    assert cluster.node_of("default/p") == "good"


@pytest.mark.parametrize("name", PREFERRING)
async def test_equal_priority_chooses_at_random(cluster, scheduling, name):
    spec = PREFERRING[name](cluster)
    async with scheduling(**profiles([], EQUAL)):
        cluster.pod("p", **spec)
        await asyncio.sleep(0.5)
    assert cluster.node_of("default/p") in BAD


@pytest.mark.parametrize(
    ("weights", "wins"),
    [
        pytest.param({"LeastRequestedPriority": 1, "MostRequestedPriority": 3}, "used", id="most wins"),
        pytest.param({"LeastRequestedPriority": 3, "MostRequestedPriority": 1}, "free", id="least wins"),
        pytest.param({"LeastRequestedPriority": 1, "RequestedToCapacityRatioPriority": 3}, "used", id="ratio wins"),
    ],
)
async def test_resource_priorities_are_weighted(cluster, scheduling, weights, wins):
    cluster.node("free")
    cluster.node("used")
    cluster.pod("there", nodeName="used", cpu="2")
    async with scheduling(**profiles([], [priority(name, weight) for name, weight in weights.items()])):
        for number in range(2):
            cluster.pod(f"p{number}", cpu="")
        await asyncio.sleep(0.5)
    assert [cluster.node_of(f"default/p{number}") for number in range(2)] == [wins] * 2
