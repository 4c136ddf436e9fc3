"""VolumeBinding: assumed volumes, and the writes and waits of PreBind."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.storage_types import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.metrics_interface import SchedulerMetrics
from kubeloop.scheduler.plugins.volumes.volume_binding import VolumeBinding
from support.objects.plugin_volumes import make_claim, make_volume
from support.scheduling.plugin_cluster import rejections

FULL = (plugin_args.UtilizationShapePoint(score=0), plugin_args.UtilizationShapePoint(utilization=100, score=10))


class StageMetrics(SchedulerMetrics):
    """Metrics that record the failed stages of volume binding."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def volume_stage_failed(self, stage: str) -> None:
        self.stages.append(stage)


def put_claim(cluster: Any, *, provisioner: str) -> None:
    waiting = {"metadata": {"name": "fast"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    cluster.put("storage_classes", convert(StorageClass, waiting))
    cluster.put("persistent_volume_claims", claim())


CLAIM_SPEC = {
    "storageClassName": "fast",
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
}


def claim(**changes: Any) -> PersistentVolumeClaim:
    metadata = {"name": "data", "namespace": "default", "uid": "c1", "resourceVersion": "5"} | changes
    bound = {"volumeName": "pv"} if "annotations" in changes else {}
    return convert(PersistentVolumeClaim, {"metadata": metadata, "spec": CLAIM_SPEC | bound})


def available(**claim_ref: Any) -> PersistentVolume:
    spec = {"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast"}
    if claim_ref:
        spec["claimRef"] = claim_ref
    return convert(
        PersistentVolume,
        {
            "metadata": {"name": "pv", "uid": "v1", "resourceVersion": "9"},
            "spec": spec,
            "status": {"phase": "Available"},
        },
    )


def reserved(cluster: Any, pod: Any, timeout_seconds: int = 1) -> tuple[VolumeBinding, CycleState, PodInfo]:
    plugin = VolumeBinding(plugin_args.VolumeBindingArgs(bind_timeout_seconds=timeout_seconds), cluster)
    new = PodInfo(pod("new", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]))
    state = CycleState()
    assert plugin.pre_filter(state, new, cluster.snapshot) == (None, None)
    assert plugin.filter(state, new, cluster.snapshot.node_infos[0]) is None
    assert plugin.reserve(state, new, "a") is None
    assert plugin.pre_bind_pre_flight(state, new, "a") is None
    return plugin, state, new


async def test_pre_bind_binds_claim_to_chosen_volume(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    put_claim(cluster, provisioner="kubernetes.io/no-provisioner")
    cluster.put("persistent_volumes", available())
    plugin, state, new = reserved(cluster, pod)
    cluster.put("persistent_volumes", available(name="data", namespace="default", uid="c1"))
    cluster.put("persistent_volume_claims", claim(annotations={"pv.kubernetes.io/bind-completed": "yes"}))
    assert await plugin.pre_bind(state, new, "a") is None
    verb, plural, _, name, _, body = cluster.client.requests[0]
    assert (verb, plural, name) == ("patch", "persistentvolumes", "pv")
    assert body["metadata"]["resourceVersion"] == "9"
    assert body["spec"]["claimRef"]["uid"] == "c1"


async def test_pre_bind_annotates_claim_with_selected_node(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    put_claim(cluster, provisioner="csi.example")
    plugin, state, new = reserved(cluster, pod)
    done = {"pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "a"}
    cluster.put("persistent_volume_claims", claim(annotations=done, resourceVersion="6"))
    assert await plugin.pre_bind(state, new, "a") is None
    verb, plural, namespace, name, _, body = cluster.client.requests[0]
    assert (verb, plural, namespace, name) == ("patch", "persistentvolumeclaims", "default", "data")
    assert body["metadata"]["annotations"] == {"volume.kubernetes.io/selected-node": "a"}


@pytest.mark.parametrize("selected", [{"volume.kubernetes.io/selected-node": "b"}, {}], ids=["other node", "removed"])
async def test_pre_bind_fails_if_the_provisioner_refuses_the_node(
    selected: dict[str, str], plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster([node("a")])
    put_claim(cluster, provisioner="csi.example")
    plugin, state, new = reserved(cluster, pod)
    annotations = {"pv.kubernetes.io/bind-completed": "yes", **selected}
    cluster.put("persistent_volume_claims", claim(annotations=annotations, resourceVersion="6"))
    status = await plugin.pre_bind(state, new, "a")
    assert status is not None
    assert status.reasons == ('binding volumes: provisioning failed for PVC "data"',)


async def test_pre_bind_times_out(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    put_claim(cluster, provisioner="csi.example")
    plugin, state, new = reserved(cluster, pod, timeout_seconds=0)
    cluster.metrics = StageMetrics()
    status = await plugin.pre_bind(state, new, "a")
    assert status is not None
    assert status.reasons == ("binding volumes: context deadline exceeded",)
    assert cluster.metrics.stages == ["bind"]
    plugin.unreserve(state, new, "a")


def test_assumed_volume_is_not_available_to_other_pods(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    put_claim(cluster, provisioner="kubernetes.io/no-provisioner")
    cluster.put("persistent_volumes", available())
    plugin, state, new = reserved(cluster, pod)
    cluster.put("persistent_volume_claims", claim(name="more", uid="c2"))
    second = PodInfo(pod("second", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "more"}}]))
    next_state = CycleState()
    plugin.pre_filter(next_state, second, cluster.snapshot)
    status = plugin.filter(next_state, second, cluster.snapshot.node_infos[0])
    assert status is not None
    assert status.reasons == ("node(s) didn't find available persistent volumes to bind",)
    plugin.unreserve(state, new, "a")
    plugin.pre_filter(next_state, second, cluster.snapshot)
    assert plugin.filter(next_state, second, cluster.snapshot.node_infos[0]) is None


@pytest.mark.parametrize(
    ("enabled", "shape", "scores"), [(False, (), None), (True, (), [90, 50]), (True, FULL, [10, 50])]
)
def test_storage_capacity_scores_need_their_feature_gate(
    enabled: bool, shape: Any, scores: list[int] | None, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    zones = {"a": {"zone": "one"}, "b": {"zone": "two"}}
    nodes = [node(name, labels=labels) for name, labels in zones.items()]
    cluster = plugin_cluster(nodes, feature_gates={"StorageCapacityScoring": enabled})
    put_claim(cluster, provisioner="driver")
    cluster.put("csi_drivers", convert(CSIDriver, {"metadata": {"name": "driver"}, "spec": {"storageCapacity": True}}))
    for name, size in (("a", "10Gi"), ("b", "2Gi")):
        topology = {"matchLabels": zones[name]}
        capacity = {"nodeTopology": topology, "storageClassName": "fast", "capacity": size}
        cluster.put("csi_storage_capacities", convert(CSIStorageCapacity, {"metadata": {"name": name}} | capacity))
    plugin = VolumeBinding(plugin_args.VolumeBindingArgs(shape=shape), cluster)
    incoming = PodInfo(pod("new", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]))
    state, snapshot = CycleState(), cluster.snapshot
    assert plugin.pre_filter(state, incoming, snapshot) == (None, None)
    status = plugin.pre_score(state, incoming, snapshot, snapshot.all_rows)
    if scores is None:
        assert status is not None
        assert status.code is Code.SKIP
    else:
        assert status is None
        assert plugin.score_rows(state, incoming, snapshot, snapshot.all_rows).tolist() == scores


def test_storage_capacity_scores_are_skipped_without_unbound_claims(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")], feature_gates={"StorageCapacityScoring": True})
    plugin = VolumeBinding(plugin_args.VolumeBindingArgs(), cluster)
    status = plugin.pre_score(CycleState(), PodInfo(pod("new")), cluster.snapshot, cluster.snapshot.all_rows)
    assert status is not None
    assert status.code is Code.SKIP


def test_fields_in_the_node_affinity_of_a_volume_are_ignored(plugin_cluster: Any, node: Any, pod: Any) -> None:
    """Kubernetes compares it with the node's labels alone."""
    cluster = plugin_cluster([node("a"), node("b")])
    field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    cluster.put("storage_classes", convert(StorageClass, {"metadata": {"name": "wait"}, "provisioner": "x"}))
    cluster.put(
        "persistent_volumes", make_volume("pv", nodeAffinity=affinity, csi={"driver": "x", "volumeHandle": "h"})
    )
    cluster.put("persistent_volume_claims", make_claim("data", "pv"))
    plugin = VolumeBinding(plugin_args.VolumeBindingArgs(), cluster)
    new = pod("new", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    assert rejections(plugin, cluster, new) == {}
