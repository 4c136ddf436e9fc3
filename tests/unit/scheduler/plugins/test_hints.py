"""Queueing hints: the events after which a pod that a plugin rejected is tried again."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.kube.objects.resources import BY_GROUP_KIND
from kubeloop.scheduler.api.events import NODE, POD, ActionType, Hint
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.profile_plugins import create_plugin
from kubeloop.scheduler.legacy_policy.plugins import ALL_PLUGINS
from kubeloop.scheduler.queue.queueing_hints import registrations
from support.scheduling.plugin_cluster import PluginCluster, make_member, make_node, make_pod, make_pod_group

GATES = {"GenericWorkload": True, "GangScheduling": True, "DRAExtendedResource": True, "NodeDeclaredFeatures": True}
CLASS, CLAIM, VOLUME = "storage.k8s.io/StorageClass", "PersistentVolumeClaim", "PersistentVolume"
CSI_NODE, DRIVER = "storage.k8s.io/CSINode", "storage.k8s.io/CSIDriver"
CAPACITY, ATTACHMENT = "storage.k8s.io/CSIStorageCapacity", "storage.k8s.io/VolumeAttachment"
DEVICE_CLASS, POD_GROUP = "resource.k8s.io/DeviceClass", "scheduling.k8s.io/PodGroup"


def obj(resource: str, name: str = "x", *, namespace: str = "default", annotations: Any = None, **members: Any) -> Any:
    """Return an object of the resource of an event."""
    group, _, kind = resource.rpartition("/")
    metadata = {"name": name, "namespace": namespace, "uid": name, "annotations": annotations or {}}
    return convert(BY_GROUP_KIND[group, kind].type, {"metadata": metadata, **members})


def hint(plugin: str, resource: str, pod: Pod, old: Any, new: Any) -> bool:
    """Return True if a plugin queues a rejected pod after the event; both forms of its hint must agree."""
    action = ActionType.ADD if old is None else ActionType.DELETE if new is None else ~ActionType.ADD
    created = create_plugin(plugin, None, PluginCluster(feature_gates=GATES), ALL_PLUGINS)
    registered = [
        entry
        for entry in registrations([created])
        if entry.event.resource == resource and entry.event.action & action and entry.hint is not None
    ]
    (entry,) = registered
    assert entry.hint is not None
    result = entry.hint(pod, old, new)
    if entry.pod_info_hint is not None:
        assert entry.pod_info_hint(PodInfo(pod), old, new) is result
    return result is Hint.QUEUE


PORT = [{"hostPort": 80, "protocol": "TCP"}]
CLAIMED = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
DISK = [{"name": "v", "gcePersistentDisk": {"pdName": "disk"}}]
INLINE = [{"name": "v", "csi": {"driver": "csi.example"}}]
IN_TREE = [{"name": "v", "awsElasticBlockStore": {"volumeID": "aws://zone/vol-1"}}]
TAINT = {"key": "gpu", "effect": "NoSchedule"}
TOLERATION = [{"key": "gpu", "operator": "Exists"}]
UNSCHEDULABLE = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
WEB = {"app": "web"}
TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": WEB}}
AFFINITY = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}
ANTI_AFFINITY = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}
TWO_TERMS = {
    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM, {**TERM, "topologyKey": "rack"}]},
    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{**TERM, "topologyKey": "host"}, TERM]},
}
SPREAD = [
    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": WEB}}
]
HONORS = [{**SPREAD[0], "nodeTaintsPolicy": "Honor"}]
SOFT = [{**SPREAD[0], "whenUnsatisfiable": "ScheduleAnyway"}]
GPU = "example.com/gpu"


def requests(**amounts: str) -> list[dict[str, Any]]:
    return [{"name": "c", "resources": {"requests": amounts}}]


def zone(name: str = "a", **labels: str) -> Node:
    return make_node("n", labels={"zone": name, **labels})


def size(cpu: str = "4", **more: str) -> Node:
    return make_node("n", allocatable={"cpu": cpu, **more})


def csi_node(**limits: int) -> Any:
    drivers = [{"name": name, "nodeID": "n", "allocatable": {"count": count}} for name, count in limits.items()]
    return obj(CSI_NODE, spec={"drivers": drivers})


def capacity(amount: str | None = None, maximum: str | None = None) -> Any:
    sizes = {"capacity": amount, "maximumVolumeSize": maximum}
    return obj(CAPACITY, storageClassName="fast", **{name: value for name, value in sizes.items() if value is not None})


def volume_in(labels: dict[str, str]) -> Any:
    volume = obj(VOLUME)
    volume.metadata.labels.update(labels)
    return volume


ZONE_LABEL = "topology.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("plugin", "resource", "pod", "old", "new", "queued"),
    [
        # NodePorts: a pod that used a requested port has been deleted.
        ("NodePorts", POD, make_pod("p", ports=PORT), make_pod("q", "n", ports=PORT), None, True),
        ("NodePorts", POD, make_pod("p", ports=PORT), make_pod("q", ports=PORT), None, False),
        ("NodePorts", POD, make_pod("p", ports=PORT), make_pod("q", "n"), None, False),
        # NodeUnschedulable: the node has become schedulable, or the pod tolerates the taint.
        ("NodeUnschedulable", NODE, make_pod("p"), None, make_node("n"), True),
        ("NodeUnschedulable", NODE, make_pod("p"), None, make_node("n", unschedulable=True), False),
        ("NodeUnschedulable", NODE, make_pod("p"), make_node("n", unschedulable=True), make_node("n"), True),
        ("NodeUnschedulable", NODE, make_pod("p"), make_node("n"), make_node("n"), False),
        ("NodeUnschedulable", POD, make_pod("p"), make_pod("p"), make_pod("p", tolerations=UNSCHEDULABLE), True),
        ("NodeUnschedulable", POD, make_pod("p"), make_pod("q"), make_pod("q", tolerations=UNSCHEDULABLE), False),
        ("NodeUnschedulable", POD, make_pod("p"), make_pod("p"), make_pod("p", tolerations=TOLERATION), False),
        # TaintToleration: all taints have become tolerated.
        ("TaintToleration", NODE, make_pod("p"), None, make_node("n"), True),
        ("TaintToleration", NODE, make_pod("p"), None, make_node("n", taints=[TAINT]), False),
        ("TaintToleration", NODE, make_pod("p"), make_node("n", taints=[TAINT]), make_node("n"), True),
        ("TaintToleration", NODE, make_pod("p"), make_node("n"), make_node("n"), False),
        (
            "TaintToleration",
            NODE,
            make_pod("p", tolerations=TOLERATION),
            make_node("n"),
            make_node("n", taints=[TAINT]),
            False,
        ),
        ("TaintToleration", POD, make_pod("p"), make_pod("p"), make_pod("p"), True),
        ("TaintToleration", POD, make_pod("p"), make_pod("q"), make_pod("q"), False),
        # NodeAffinity: the node matches, and did not match before.
        ("NodeAffinity", NODE, make_pod("p", nodeSelector={"zone": "a"}), None, zone("a"), True),
        ("NodeAffinity", NODE, make_pod("p", nodeSelector={"zone": "a"}), None, zone("b"), False),
        ("NodeAffinity", NODE, make_pod("p", nodeSelector={"zone": "a"}), zone("b"), zone("a"), True),
        ("NodeAffinity", NODE, make_pod("p", nodeSelector={"zone": "a"}), zone("a"), zone("a", rack="1"), False),
        ("NodeAffinity", NODE, make_pod("p", nodeSelector={"zone": "a"}), zone("a"), zone("b"), False),
        # NodeResourcesFit, pods: room has been released.
        ("NodeResourcesFit", POD, make_pod("p", cpu="1"), make_pod("q", "n"), None, True),
        ("NodeResourcesFit", POD, make_pod("p", cpu="1"), make_pod("q", status={"nominatedNodeName": "n"}), None, True),
        ("NodeResourcesFit", POD, make_pod("p", cpu="1"), make_pod("q"), None, False),
        ("NodeResourcesFit", POD, make_pod("p", cpu="2"), make_pod("p", cpu="2"), make_pod("p", cpu="1"), True),
        (
            "NodeResourcesFit",
            POD,
            make_pod("p", cpu="2"),
            make_pod("q", "n", cpu="2"),
            make_pod("q", "n", cpu="1"),
            True,
        ),
        ("NodeResourcesFit", POD, make_pod("p", cpu="2"), make_pod("q", cpu="2"), make_pod("q", cpu="1"), False),
        ("NodeResourcesFit", POD, make_pod("p", cpu="2"), make_pod("q", "n", cpu="1m"), make_pod("q", "n"), True),
        ("NodeResourcesFit", POD, make_pod("p", cpu="2"), make_pod("q", "n"), make_pod("q", "n", cpu="1m"), False),
        (
            "NodeResourcesFit",
            POD,
            make_pod("p", cpu="2"),
            make_pod("q", "n", cpu="1"),
            make_pod("q", "n", cpu="1"),
            False,
        ),
        (
            "NodeResourcesFit",
            POD,
            make_pod("p", cpu="2"),
            make_pod("q", "n", memory="2Gi"),
            make_pod("q", "n", memory="1Gi"),
            False,
        ),
        # NodeResourcesFit, nodes: the pod fits an empty node, and a requested resource has grown.
        ("NodeResourcesFit", NODE, make_pod("p", cpu="4"), None, size("4"), True),
        ("NodeResourcesFit", NODE, make_pod("p", cpu="4"), None, size("3"), False),
        ("NodeResourcesFit", NODE, make_pod("p", cpu="4"), None, size("4", pods="0"), False),
        ("NodeResourcesFit", NODE, make_pod("p", cpu="2"), size("3"), size("4"), True),
        ("NodeResourcesFit", NODE, make_pod("p", cpu="2"), size("4"), size("4"), False),
        ("NodeResourcesFit", NODE, make_pod("p", cpu="2"), size("4"), size("3"), False),
        ("NodeResourcesFit", NODE, make_pod("p", cpu="2"), size("4"), size("4", memory="16Gi"), False),
        ("NodeResourcesFit", NODE, make_pod("p", cpu="2"), size("4", pods="1"), size("4", pods="2"), True),
        # NodeResourcesFit, device classes: a requested extended resource is provided now.
        (
            "NodeResourcesFit",
            DEVICE_CLASS,
            make_pod("p", containers=requests(**{GPU: "1"})),
            None,
            obj(DEVICE_CLASS, spec={"extendedResourceName": GPU}),
            True,
        ),
        (
            "NodeResourcesFit",
            DEVICE_CLASS,
            make_pod("p", containers=requests(**{"deviceclass.resource.kubernetes.io/x": "1"})),
            None,
            obj(DEVICE_CLASS),
            True,
        ),
        ("NodeResourcesFit", DEVICE_CLASS, make_pod("p", cpu="1"), None, obj(DEVICE_CLASS), False),
        (
            "NodeResourcesFit",
            DEVICE_CLASS,
            make_pod("p", containers=requests(**{GPU: "1"})),
            obj(DEVICE_CLASS),
            obj(DEVICE_CLASS, spec={"extendedResourceName": GPU}),
            True,
        ),
        (
            "NodeResourcesFit",
            DEVICE_CLASS,
            make_pod("p", containers=requests(**{GPU: "1"})),
            obj(DEVICE_CLASS, spec={"extendedResourceName": GPU}),
            obj(DEVICE_CLASS, spec={"extendedResourceName": GPU}),
            False,
        ),
        (
            "NodeResourcesFit",
            DEVICE_CLASS,
            make_pod("p", cpu="1"),
            obj(DEVICE_CLASS),
            obj(DEVICE_CLASS, spec={"extendedResourceName": GPU}),
            False,
        ),
        # InterPodAffinity, pods: affinity is gained, anti-affinity of this pod or of the other one is lost.
        ("InterPodAffinity", POD, make_pod("p", affinity=AFFINITY), None, make_pod("q", "n", labels=WEB), True),
        ("InterPodAffinity", POD, make_pod("p", affinity=AFFINITY), None, make_pod("q", labels=WEB), False),
        ("InterPodAffinity", POD, make_pod("p", affinity=AFFINITY), None, make_pod("q", "n"), False),
        ("InterPodAffinity", POD, make_pod("p", affinity=ANTI_AFFINITY), make_pod("q", "n", labels=WEB), None, True),
        ("InterPodAffinity", POD, make_pod("p", affinity=ANTI_AFFINITY), make_pod("q", "n"), None, False),
        ("InterPodAffinity", POD, make_pod("p", affinity=ANTI_AFFINITY), make_pod("q", labels=WEB), None, False),
        (
            "InterPodAffinity",
            POD,
            make_pod("p", labels=WEB),
            make_pod("q", "n", affinity=ANTI_AFFINITY),
            None,
            True,
        ),
        ("InterPodAffinity", POD, make_pod("p"), make_pod("q", "n", affinity=ANTI_AFFINITY), None, False),
        ("InterPodAffinity", POD, make_pod("p"), make_pod("p"), make_pod("p", labels=WEB), True),
        (
            "InterPodAffinity",
            POD,
            make_pod("p", affinity=AFFINITY),
            make_pod("q", "n"),
            make_pod("q", "n", labels=WEB),
            True,
        ),
        (
            "InterPodAffinity",
            POD,
            make_pod("p", affinity=AFFINITY),
            make_pod("q", "n", labels=WEB),
            make_pod("q", "n", labels={**WEB, "tier": "1"}),
            False,
        ),
        (
            "InterPodAffinity",
            POD,
            make_pod("p", affinity=ANTI_AFFINITY),
            make_pod("q", "n", labels=WEB),
            make_pod("q", "n"),
            True,
        ),
        (
            "InterPodAffinity",
            POD,
            make_pod("p", affinity=ANTI_AFFINITY),
            make_pod("q", "n"),
            make_pod("q", "n", labels=WEB),
            False,
        ),
        (
            "InterPodAffinity",
            POD,
            make_pod("p", affinity=ANTI_AFFINITY),
            make_pod("q", labels=WEB),
            make_pod("q"),
            False,
        ),
        # InterPodAffinity, nodes: a topology value of a term appears, or one of anti-affinity disappears.
        ("InterPodAffinity", NODE, make_pod("p", affinity=AFFINITY), None, zone("a"), True),
        ("InterPodAffinity", NODE, make_pod("p", affinity=AFFINITY), None, make_node("n"), False),
        ("InterPodAffinity", NODE, make_pod("p", affinity=AFFINITY), zone("a"), zone("b"), True),
        ("InterPodAffinity", NODE, make_pod("p", affinity=AFFINITY), zone("a"), zone("a", rack="1"), False),
        ("InterPodAffinity", NODE, make_pod("p", affinity=AFFINITY), zone("a"), make_node("n"), False),
        ("InterPodAffinity", NODE, make_pod("p", affinity=ANTI_AFFINITY), None, make_node("n"), True),
        ("InterPodAffinity", NODE, make_pod("p", affinity=ANTI_AFFINITY), zone("a"), make_node("n"), True),
        ("InterPodAffinity", NODE, make_pod("p", affinity=ANTI_AFFINITY), zone("a"), zone("a"), False),
        ("InterPodAffinity", NODE, make_pod("p", affinity=ANTI_AFFINITY), make_node("n"), zone("a"), False),
        ("InterPodAffinity", NODE, make_pod("p", affinity=TWO_TERMS), zone("a"), zone("a", rack="1"), True),
        ("InterPodAffinity", NODE, make_pod("p", affinity=TWO_TERMS), zone("a"), make_node("n"), True),
        # PodTopologySpread, pods: the number of a counted pod's domain changes.
        (
            "PodTopologySpread",
            POD,
            make_pod("p", topologySpreadConstraints=SPREAD),
            None,
            make_pod("q", "n", labels=WEB),
            True,
        ),
        (
            "PodTopologySpread",
            POD,
            make_pod("p", topologySpreadConstraints=SPREAD),
            make_pod("q", "n", labels=WEB),
            None,
            True,
        ),
        ("PodTopologySpread", POD, make_pod("p", topologySpreadConstraints=SPREAD), None, make_pod("q", "n"), False),
        (
            "PodTopologySpread",
            POD,
            make_pod("p", topologySpreadConstraints=SPREAD),
            None,
            make_pod("q", labels=WEB),
            False,
        ),
        (
            "PodTopologySpread",
            POD,
            make_pod("p", topologySpreadConstraints=SOFT),
            None,
            make_pod("q", "n", labels=WEB),
            False,
        ),
        (
            "PodTopologySpread",
            POD,
            make_pod("p", topologySpreadConstraints=SPREAD),
            None,
            make_pod("q", "n", labels=WEB, namespace="other"),
            False,
        ),
        (
            "PodTopologySpread",
            POD,
            make_pod("p", topologySpreadConstraints=SPREAD),
            make_pod("q", "n"),
            make_pod("q", "n", labels=WEB),
            True,
        ),
        (
            "PodTopologySpread",
            POD,
            make_pod("p", topologySpreadConstraints=SPREAD),
            make_pod("q", "n", labels=WEB),
            make_pod("q", "n", labels={**WEB, "tier": "1"}),
            False,
        ),
        (
            "PodTopologySpread",
            POD,
            make_pod("p", topologySpreadConstraints=SPREAD),
            make_pod("p"),
            make_pod("p", labels=WEB),
            True,
        ),
        (
            "PodTopologySpread",
            POD,
            make_pod("p", topologySpreadConstraints=HONORS),
            make_pod("p"),
            make_pod("p", tolerations=TOLERATION),
            True,
        ),
        (
            "PodTopologySpread",
            POD,
            make_pod("p", topologySpreadConstraints=SPREAD),
            make_pod("p"),
            make_pod("p", tolerations=TOLERATION),
            False,
        ),
        (
            "PodTopologySpread",
            POD,
            make_pod("p", topologySpreadConstraints=HONORS),
            make_pod("q", "n"),
            make_pod("q", "n", tolerations=TOLERATION),
            False,
        ),
        # PodTopologySpread, nodes: a domain may change.
        ("PodTopologySpread", NODE, make_pod("p", topologySpreadConstraints=SPREAD), None, zone("a"), True),
        ("PodTopologySpread", NODE, make_pod("p", topologySpreadConstraints=SPREAD), None, make_node("n"), False),
        ("PodTopologySpread", NODE, make_pod("p", topologySpreadConstraints=SPREAD), zone("a"), None, True),
        ("PodTopologySpread", NODE, make_pod("p", topologySpreadConstraints=SPREAD), make_node("n"), None, False),
        ("PodTopologySpread", NODE, make_pod("p", topologySpreadConstraints=SPREAD), zone("a"), make_node("n"), True),
        ("PodTopologySpread", NODE, make_pod("p", topologySpreadConstraints=SPREAD), zone("a"), zone("b"), True),
        (
            "PodTopologySpread",
            NODE,
            make_pod("p", topologySpreadConstraints=SPREAD),
            zone("a"),
            zone("a", rack="1"),
            False,
        ),
        (
            "PodTopologySpread",
            NODE,
            make_pod("p", topologySpreadConstraints=SPREAD),
            zone("a"),
            make_node("n", labels={"zone": "a"}, taints=[TAINT]),
            True,
        ),
        (
            "PodTopologySpread",
            NODE,
            make_pod("p", topologySpreadConstraints=SPREAD),
            make_node("n"),
            make_node("n", taints=[TAINT]),
            False,
        ),
        # GangScheduling: another member, or the group of the pod.
        ("GangScheduling", POD, make_member("p"), None, make_member("q"), True),
        ("GangScheduling", POD, make_member("p"), None, make_member("q", group="h"), False),
        ("GangScheduling", POD, make_pod("p"), None, make_pod("q"), False),
        ("GangScheduling", POD_GROUP, make_member("p"), None, make_pod_group("g"), True),
        ("GangScheduling", POD_GROUP, make_member("p"), None, make_pod_group("h"), False),
        # NodeDeclaredFeatures
        ("NodeDeclaredFeatures", NODE, make_pod("p"), None, make_node("n"), True),
        ("NodeDeclaredFeatures", NODE, make_pod("p"), make_node("n"), make_node("n"), False),
        ("NodeDeclaredFeatures", POD, make_pod("p"), make_pod("q"), make_pod("q"), False),
        ("NodeDeclaredFeatures", POD, make_pod("p"), make_pod("p"), make_pod("p"), False),
        # SchedulingGates: this pod's own update.
        ("SchedulingGates", POD, make_pod("p"), make_pod("p"), make_pod("p"), True),
        ("SchedulingGates", POD, make_pod("p"), make_pod("q"), make_pod("q"), False),
        # VolumeRestrictions: a pod that shared a restricted disk or a claim has been deleted.
        ("VolumeRestrictions", POD, make_pod("p", volumes=DISK), make_pod("q", "n", volumes=DISK), None, True),
        ("VolumeRestrictions", POD, make_pod("p", volumes=CLAIMED), make_pod("q", "n", volumes=CLAIMED), None, True),
        ("VolumeRestrictions", POD, make_pod("p", volumes=CLAIMED), make_pod("q", "n", volumes=DISK), None, False),
        (
            "VolumeRestrictions",
            POD,
            make_pod("p", volumes=CLAIMED),
            make_pod("q", "n", volumes=CLAIMED, namespace="other"),
            None,
            False,
        ),
        ("VolumeRestrictions", CLAIM, make_pod("p", volumes=CLAIMED), None, obj(CLAIM, "data"), True),
        ("VolumeRestrictions", CLAIM, make_pod("p", volumes=CLAIMED), None, obj(CLAIM, "more"), False),
        # VolumeZone
        (
            "VolumeZone",
            CLASS,
            make_pod("p"),
            None,
            obj(CLASS, provisioner="x", volumeBindingMode="WaitForFirstConsumer"),
            True,
        ),
        ("VolumeZone", CLASS, make_pod("p"), None, obj(CLASS, provisioner="x", volumeBindingMode="Immediate"), False),
        ("VolumeZone", CLAIM, make_pod("p", volumes=CLAIMED), None, obj(CLAIM, "data"), True),
        ("VolumeZone", CLAIM, make_pod("p", volumes=CLAIMED), None, obj(CLAIM, "data", namespace="other"), False),
        ("VolumeZone", VOLUME, make_pod("p"), None, volume_in({}), True),
        ("VolumeZone", VOLUME, make_pod("p"), volume_in({}), volume_in({ZONE_LABEL: "a"}), True),
        ("VolumeZone", VOLUME, make_pod("p"), volume_in({ZONE_LABEL: "a"}), volume_in({ZONE_LABEL: "a"}), False),
        # VolumeBinding
        ("VolumeBinding", CLASS, make_pod("p"), None, obj(CLASS, provisioner="x"), True),
        ("VolumeBinding", CLASS, make_pod("p"), obj(CLASS, provisioner="x"), obj(CLASS, provisioner="x"), False),
        (
            "VolumeBinding",
            CLASS,
            make_pod("p"),
            obj(CLASS, provisioner="x"),
            obj(
                CLASS,
                provisioner="x",
                allowedTopologies=[{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
            ),
            True,
        ),
        ("VolumeBinding", CLAIM, make_pod("p", volumes=CLAIMED), None, obj(CLAIM, "data"), True),
        ("VolumeBinding", CLAIM, make_pod("p", volumes=CLAIMED), obj(CLAIM, "more"), obj(CLAIM, "more"), False),
        ("VolumeBinding", CSI_NODE, make_pod("p"), None, csi_node(), True),
        ("VolumeBinding", CSI_NODE, make_pod("p"), csi_node(), csi_node(driver=1), False),
        (
            "VolumeBinding",
            CSI_NODE,
            make_pod("p"),
            csi_node(),
            obj(CSI_NODE, annotations={"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/cinder"}),
            True,
        ),
        (
            "VolumeBinding",
            DRIVER,
            make_pod("p", volumes=INLINE),
            obj(DRIVER, "csi.example", spec={"storageCapacity": True}),
            obj(DRIVER, "csi.example", spec={"storageCapacity": False}),
            True,
        ),
        (
            "VolumeBinding",
            DRIVER,
            make_pod("p", volumes=INLINE),
            obj(DRIVER, "other", spec={"storageCapacity": True}),
            obj(DRIVER, "other", spec={"storageCapacity": False}),
            False,
        ),
        (
            "VolumeBinding",
            DRIVER,
            make_pod("p", volumes=INLINE),
            obj(DRIVER, "csi.example", spec={"storageCapacity": True}),
            obj(DRIVER, "csi.example", spec={"storageCapacity": True}),
            False,
        ),
        (
            "VolumeBinding",
            DRIVER,
            make_pod("p", volumes=INLINE),
            obj(DRIVER, "csi.example", spec={"storageCapacity": False}),
            obj(DRIVER, "csi.example", spec={"storageCapacity": False}),
            False,
        ),
        ("VolumeBinding", CAPACITY, make_pod("p"), None, capacity("1Gi"), True),
        ("VolumeBinding", CAPACITY, make_pod("p"), capacity("1Gi"), capacity("2Gi"), True),
        ("VolumeBinding", CAPACITY, make_pod("p"), capacity("2Gi"), capacity("2Gi"), False),
        ("VolumeBinding", CAPACITY, make_pod("p"), capacity("2Gi"), capacity("1Gi"), False),
        ("VolumeBinding", CAPACITY, make_pod("p"), capacity("1Gi"), capacity("1Gi", "2Gi"), True),
        ("VolumeBinding", CAPACITY, make_pod("p"), capacity("2Gi", "1Gi"), capacity("3Gi", "1Gi"), False),
        ("VolumeBinding", CAPACITY, make_pod("p"), capacity(), capacity("0"), True),
        # NodeVolumeLimits
        ("NodeVolumeLimits", CSI_NODE, make_pod("p"), csi_node(d=1), csi_node(d=2), True),
        ("NodeVolumeLimits", CSI_NODE, make_pod("p"), csi_node(d=2), csi_node(d=2), False),
        ("NodeVolumeLimits", CSI_NODE, make_pod("p"), csi_node(d=2), csi_node(d=1), False),
        ("NodeVolumeLimits", CSI_NODE, make_pod("p"), csi_node(d=2), csi_node(d=2, e=1), True),
        ("NodeVolumeLimits", CSI_NODE, make_pod("p"), csi_node(d=2), csi_node(d=2, e=0), False),
        ("NodeVolumeLimits", POD, make_pod("p", volumes=CLAIMED), make_pod("q", "n", volumes=CLAIMED), None, True),
        ("NodeVolumeLimits", POD, make_pod("p", volumes=CLAIMED), make_pod("q", volumes=CLAIMED), None, False),
        ("NodeVolumeLimits", POD, make_pod("p", volumes=CLAIMED), make_pod("q", "n"), None, False),
        ("NodeVolumeLimits", CLAIM, make_pod("p", volumes=CLAIMED), None, obj(CLAIM, "data"), True),
        ("NodeVolumeLimits", CLAIM, make_pod("p", volumes=CLAIMED), None, obj(CLAIM, "more"), False),
        (
            "NodeVolumeLimits",
            ATTACHMENT,
            make_pod("p", volumes=CLAIMED),
            obj(ATTACHMENT, spec={"attacher": "other", "nodeName": "n", "source": {}}),
            None,
            True,
        ),
        (
            "NodeVolumeLimits",
            ATTACHMENT,
            make_pod("p", volumes=IN_TREE),
            obj(ATTACHMENT, spec={"attacher": "ebs.csi.aws.com", "nodeName": "n", "source": {}}),
            None,
            True,
        ),
        (
            "NodeVolumeLimits",
            ATTACHMENT,
            make_pod("p", volumes=IN_TREE),
            obj(ATTACHMENT, spec={"attacher": "other", "nodeName": "n", "source": {}}),
            None,
            False,
        ),
        (
            "NodeVolumeLimits",
            ATTACHMENT,
            make_pod("p", volumes=INLINE),
            obj(ATTACHMENT, spec={"attacher": "csi.example", "nodeName": "n", "source": {}}),
            None,
            False,
        ),
    ],
)
def test_event_queues_a_rejected_pod(plugin: str, resource: str, pod: Pod, old: Any, new: Any, queued: bool) -> None:
    assert hint(plugin, resource, pod, old, new) is queued
