"""Every predicate and priority of old, by name, decides where a pod goes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kubeloop.kube.objects import resources
from kubeloop.kube.objects.api_types import Node, Service, convert
from kubeloop.kube.objects.resources import NODES
from kubeloop.kube.objects.storage_types import CSINode, PersistentVolume, PersistentVolumeClaim
from kubeloop.scheduler.config.load import load_configuration
from kubeloop.scheduler.config.policy import PREDICATES, PRIORITIES

pytestmark = pytest.mark.virtual_time

Spec = dict[str, Any]
HOSTNAME = "kubernetes.io/hostname"


def profiles(predicates: list[str], priorities: list[dict[str, Any]]) -> dict[str, Any]:
    document = {"kind": "Policy", "predicates": [{"name": name} for name in predicates], "priorities": priorities}
    return {"profiles": load_configuration(json.dumps(document)).profiles}


def changed(cluster: Any, node: Node, **status: Any) -> None:
    read = convert(Node, {"status": status}).status
    kept = {name: getattr(read, name) for name in ("conditions", "images")}
    node = msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, **kept))
    cluster.informer(NODES).put(cluster.versioned(node))


# --- Predicates: "n" is the only node, and not for the pod -----------------------------------------------------------


def too_small(cluster: Any) -> Spec:
    cluster.node("n", cpu="1")
    return {"cpu": "2"}


def port_taken(cluster: Any) -> Spec:
    cluster.node("n")
    containers = [{"name": "c", "ports": [{"hostPort": 80, "containerPort": 80, "protocol": "TCP"}]}]
    cluster.pod("holder", nodeName="n", containers=containers)
    return {"containers": containers}


def other_labels(cluster: Any) -> Spec:
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
        changed(cluster, cluster.node("n"), conditions=[{"type": kind, "status": "True"}])
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
    cluster.informer(resources.PERSISTENT_VOLUMES).put(
        convert(PersistentVolume, {"metadata": {"name": "pv", "labels": labels}, "spec": spec})
    )
    metadata = {"name": "c", "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    claim = {"metadata": metadata, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}
    cluster.informer(resources.PERSISTENT_VOLUME_CLAIMS).put(convert(PersistentVolumeClaim, claim))
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}


def volume_in_another_zone(cluster: Any) -> Spec:
    return bound_volume(cluster, labels={"topology.kubernetes.io/zone": "there"})


def volume_of_another_node(cluster: Any) -> Spec:
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["other"]}]}
    return bound_volume(cluster, nodeAffinity={"required": {"nodeSelectorTerms": [term]}})


def disks_full(driver: str, source: str, key: str) -> Callable[[Any], Spec]:
    def one_disk_is_all(cluster: Any) -> Spec:
        cluster.node("n")
        drivers = [{"name": driver, "nodeID": "n", "allocatable": {"count": 1}}]
        cluster.informer(resources.CSI_NODES).put(
            convert(CSINode, {"metadata": {"name": "n"}, "spec": {"drivers": drivers}})
        )
        cluster.pod("holder", nodeName="n", volumes=[{"name": "v", source: {key: "one"}}])
        return {"volumes": [{"name": "v", source: {key: "two"}}]}

    return one_disk_is_all


def affine(to: str, *, anti: bool = False) -> Spec:
    term = {"labelSelector": {"matchLabels": {"app": to}}, "topologyKey": HOSTNAME}
    kind = "podAntiAffinity" if anti else "podAffinity"
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def unwanted_neighbour(cluster: Any) -> Spec:
    cluster.node("n")
    cluster.pod("db", nodeName="n", metadata={"labels": {"app": "db"}})
    return affine("db", anti=True)


def crowded(cluster: Any) -> Spec:
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
    "GeneralPredicates": too_small,
    "PodFitsResources": too_small,
    "PodFitsHostPorts": port_taken,
    "PodFitsPorts": port_taken,
    "MatchNodeSelector": other_labels,
    "PodToleratesNodeTaints": tainted,
    "CheckNodeUnschedulable": cordoned,
    "CheckNodeCondition": cordoned,
    "CheckNodeMemoryPressure": pressure("MemoryPressure"),
    "CheckNodeDiskPressure": pressure("DiskPressure"),
    "CheckNodePIDPressure": pressure("PIDPressure"),
    "NoDiskConflict": disk_in_use,
    "NoVolumeZoneConflict": volume_in_another_zone,
    "NoVolumeNodeConflict": volume_of_another_node,
    "CheckVolumeBinding": volume_of_another_node,
    "MaxCSIVolumeCountPred": disks_full("ebs.csi.aws.com", "awsElasticBlockStore", "volumeID"),
    "MaxEBSVolumeCount": disks_full("ebs.csi.aws.com", "awsElasticBlockStore", "volumeID"),
    "MaxGCEPDVolumeCount": disks_full("pd.csi.storage.gke.io", "gcePersistentDisk", "pdName"),
    "MaxAzureDiskVolumeCount": disks_full("disk.csi.azure.com", "azureDisk", "diskURI"),
    "MaxCinderVolumeCount": disks_full("cinder.csi.openstack.org", "cinder", "volumeID"),
    "MatchInterPodAffinity": unwanted_neighbour,
    "EvenPodsSpread": crowded,
}
BY_SPEC_NODE_NAME = {"PodFitsHost", "HostName"}  # a pod that names its node never comes to a scheduler
MANDATORY = {"PodToleratesNodeTaints", "CheckNodeUnschedulable", "CheckNodeCondition"}
EQUAL = [{"name": "EqualPriority", "weight": 1}]


def test_every_predicate_has_its_case():
    assert REJECTING.keys() | BY_SPEC_NODE_NAME == PREDICATES.keys()


@pytest.mark.parametrize("name", REJECTING)
async def test_the_predicate_keeps_the_pod_off_the_node(cluster, scheduling, name):
    spec = REJECTING[name](cluster)
    async with scheduling(**profiles([name], EQUAL)):
        cluster.pod("p", **spec)
        await asyncio.sleep(0.5)
    assert cluster.node_of("default/p") == ""
    assert [reason for key, reason, _ in cluster.events if key == "default/p"][:1] == ["FailedScheduling"]


@pytest.mark.parametrize("name", [name for name in REJECTING if name not in MANDATORY])
async def test_without_the_predicate_the_pod_goes_there(cluster, scheduling, name):
    spec = REJECTING[name](cluster)
    async with scheduling(**profiles([], EQUAL)):
        cluster.pod("p", **spec)
        await asyncio.sleep(0.5)
    assert cluster.node_of("default/p") == "n"


# --- Priorities: "good" is the first of five nodes; by chance alone the pod would go to another one ------------------

BAD = ("bad1", "bad2", "bad3", "bad4")


def nodes(cluster: Any, good: Spec | None = None, bad: Spec | None = None) -> Node:
    node: Node = cluster.node("good", **(good or {}))
    for name in BAD:
        cluster.node(name, **(bad or {}))
    return node


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


def short_of_memory(cluster: Any) -> Spec:
    nodes(cluster)
    container = {"name": "c", "resources": {"requests": {"memory": "6Gi"}}}
    cluster.pod("there", nodeName="good", containers=[container])
    return {"cpu": "2"}


def served(cluster: Any) -> Spec:
    nodes(cluster)
    web = {"metadata": {"labels": {"app": "web"}}}
    on_bad(cluster, **web)
    service = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}
    cluster.informer(resources.SERVICES).put(convert(Service, service))
    return web


def likes_company(cluster: Any) -> Spec:
    nodes(cluster)
    cluster.pod("db", nodeName="good", metadata={"labels": {"app": "db"}})
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": HOSTNAME}
    preferred = [{"weight": 1, "podAffinityTerm": term}]
    return {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def likes_a_label(cluster: Any) -> Spec:
    nodes(cluster, good={"labels": {"disk": "ssd"}})
    expression = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    preferred = [{"weight": 1, "preference": expression}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def mildly_tainted(cluster: Any) -> Spec:
    nodes(cluster, bad={"taints": [{"key": "k", "effect": "PreferNoSchedule"}]})
    return {}


def has_the_image(cluster: Any) -> Spec:
    changed(cluster, nodes(cluster), images=[{"names": ["i:latest"], "sizeBytes": 900 << 20}])
    return {}


def wants_to_be_spared(cluster: Any) -> Spec:
    nodes(cluster)
    wish = {"preferAvoidPods": [{"podSignature": {"podController": {"kind": "ReplicaSet", "uid": "rs"}}}]}
    for name in BAD:
        node = cluster.informer(NODES).store.get(name)
        annotations = {"scheduler.alpha.kubernetes.io/preferAvoidPods": json.dumps(wish)}
        metadata = msgspec.structs.replace(node.metadata, annotations=annotations)
        cluster.informer(NODES).put(cluster.versioned(msgspec.structs.replace(node, metadata=metadata)))
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    return {"metadata": {"ownerReferences": [owner]}}


def likes_space(cluster: Any) -> Spec:
    nodes(cluster)
    web = {"metadata": {"labels": {"app": "web"}}}
    on_bad(cluster, **web)
    return {**web, **spread("ScheduleAnyway")}


PREFERRING: dict[str, Callable[[Any], Spec]] = {
    "LeastRequestedPriority": used,
    "MostRequestedPriority": partly_used,
    "RequestedToCapacityRatioPriority": partly_used,
    "BalancedResourceAllocation": short_of_memory,
    "SelectorSpreadPriority": served,
    "ServiceSpreadingPriority": served,
    "InterPodAffinityPriority": likes_company,
    "NodeAffinityPriority": likes_a_label,
    "TaintTolerationPriority": mildly_tainted,
    "ImageLocalityPriority": has_the_image,
    "NodePreferAvoidPodsPriority": wants_to_be_spared,
    "EvenPodsSpreadPriority": likes_space,
}
RISING = {"requestedToCapacityRatioArguments": {"shape": [{"utilization": 0}, {"utilization": 100, "score": 10}]}}


def priority(name: str, weight: int = 1) -> dict[str, Any]:
    argument = {"argument": RISING} if name == "RequestedToCapacityRatioPriority" else {}
    return {"name": name, "weight": weight, **argument}


def test_every_priority_has_its_case():
    assert PREFERRING.keys() | {"EqualPriority"} == PRIORITIES.keys()


@pytest.mark.parametrize("name", PREFERRING)
async def test_the_priority_draws_the_pod_to_the_better_node(cluster, scheduling, name):
    spec = PREFERRING[name](cluster)
    async with scheduling(**profiles([], [priority(name)])):
        cluster.pod("p", **spec)
        await asyncio.sleep(0.5)
    assert cluster.node_of("default/p") == "good"


@pytest.mark.parametrize("name", PREFERRING)
async def test_with_equal_priorities_chance_decides(cluster, scheduling, name):
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
async def test_two_ways_to_rate_how_full_a_node_is_count_by_their_weights(cluster, scheduling, weights, wins):
    cluster.node("free")
    cluster.node("used")
    cluster.pod("there", nodeName="used", cpu="2")
    async with scheduling(**profiles([], [priority(name, weight) for name, weight in weights.items()])):
        for number in range(2):
            cluster.pod(f"p{number}", cpu="")
        await asyncio.sleep(0.5)
    assert [cluster.node_of(f"default/p{number}") for number in range(2)] == [wins] * 2
