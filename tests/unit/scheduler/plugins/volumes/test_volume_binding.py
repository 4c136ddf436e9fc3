"""VolumeBinding: assumed volumes, and the writes and waits of PreBind."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np
import pytest

from kubeloop.kube.errors import Conflict
from kubeloop.kube.objects.api_types import ApiStatus, convert
from kubeloop.kube.objects.storage_types import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.metrics import SchedulerMetrics
from kubeloop.scheduler.plugins.volumes.volume_binding import VolumeBinding
from kubeloop.scheduler.plugins.volumes.volume_claims import SELECTED_NODE, ClaimError
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
        assert [plugin.score(state, incoming, info) for info in snapshot.node_infos] == scores
        assert plugin.score(state, incoming, NodeInfo("deleted")) == 0


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


def waiting(cluster: Any, pod: Any) -> tuple[VolumeBinding, PodInfo, CycleState]:
    plugin = VolumeBinding(plugin_args.VolumeBindingArgs(), cluster)
    return (
        plugin,
        PodInfo(pod("new", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])),
        CycleState(),
    )


def test_pre_filter_rejects_pods_whose_claims_are_not_usable(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    plugin, new, state = waiting(cluster, pod)

    def result(pod_info: PodInfo = new) -> tuple[Code, tuple[str, ...]] | None:
        narrowed, status = plugin.pre_filter(state, pod_info, cluster.snapshot)
        assert narrowed is None
        return None if status is None else (status.code, status.reasons)

    unresolvable = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert result() == (unresolvable, ('persistentvolumeclaim "data" not found',))
    cluster.put("persistent_volume_claims", claim())
    immediate = "pod has unbound immediate PersistentVolumeClaims"
    assert result() == (unresolvable, (immediate,)), "its class does not exist"
    cluster.put("storage_classes", convert(StorageClass, {"metadata": {"name": "fast"}, "provisioner": "x"}))
    assert result() == (Code.ERROR, ('VolumeBindingMode not set for StorageClass "fast"',))
    put_claim(cluster, provisioner="x")
    assert result() is None
    for without_claims in ({}, {"volumes": [{"name": "v", "emptyDir": {}}]}):
        skipped = result(PodInfo(pod("new", **without_claims)))
        assert skipped is not None
        assert skipped[0] is Code.SKIP


def test_filter_reports_errors_of_claims(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    put_claim(cluster, provisioner="x")
    plugin, new, state = waiting(cluster, pod)
    assert plugin.pre_filter(state, new, cluster.snapshot) == (None, None)
    cluster.metrics = StageMetrics()
    cluster.listers.storage_classes.remove("fast")
    for status in (plugin.filter(state, new, cluster.snapshot.node_infos[0]), plugin.reserve(state, new, "a")):
        assert status is not None
        assert (status.code, status.reasons) == (Code.ERROR, ('failed to find storage class "fast"',))
    assert cluster.metrics.stages == ["predicate", "assume"]
    with pytest.raises(ClaimError, match="failed to find storage class"):
        plugin.filter_rows(state, new, cluster.snapshot, cluster.snapshot.all_rows)


def test_reserve_reports_a_conflict(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    put_claim(cluster, provisioner="kubernetes.io/no-provisioner")
    plugin, new, state = waiting(cluster, pod)
    assert plugin.pre_filter(state, new, cluster.snapshot) == (None, None)
    status = plugin.reserve(state, new, "a")
    assert status is not None
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    skipped = plugin.pre_bind_pre_flight(state, new, "a")
    assert skipped is not None
    assert skipped.code is Code.SKIP
    assert plugin.reserve(state, new, "unknown") is None


async def test_failed_write_ends_the_binding(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    put_claim(cluster, provisioner="csi.example")
    plugin, state, new = reserved(cluster, pod)
    cluster.metrics = StageMetrics()
    cluster.client.failures.append(Conflict(ApiStatus(message="the claim has changed")))
    status = await plugin.pre_bind(state, new, "a")
    assert status is not None
    assert (status.code, status.reasons) == (Code.ERROR, ("the claim has changed",))
    assert cluster.metrics.stages == ["bind"]
    assert await plugin.pre_bind(CycleState(), new, "a") is None, "nothing was assumed"


BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
ON_A = {"volume.kubernetes.io/selected-node": "a"}


@pytest.mark.parametrize(
    ("volume", "data", "bound"),
    [
        pytest.param(available(name="data", namespace="default", uid="c1"), claim(annotations=BOUND), True, id="bound"),
        pytest.param(available(), claim(annotations=BOUND), False, id="volume without claimRef"),
        pytest.param(
            available(name="data", namespace="default"), claim(annotations=BOUND), False, id="claimRef without uid"
        ),
        pytest.param(available(name="data", namespace="default", uid="c1"), claim(), False, id="unbound claim"),
        pytest.param(None, claim(annotations=BOUND), 'could not find v1.PersistentVolume "pv"', id="volume is gone"),
        pytest.param(available(), None, 'error getting PVC "default/data": could not find it', id="claim is gone"),
        pytest.param(available(), claim(uid="new"), 'error getting PVC "default/data"', id="claim was created again"),
    ],
)
def test_static_binding_is_complete(
    volume: Any, data: Any, bound: bool | str, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster([node("a")])
    put_claim(cluster, provisioner="kubernetes.io/no-provisioner")
    cluster.put("persistent_volumes", available())
    plugin, state, _ = reserved(cluster, pod)
    cluster.listers.persistent_volumes.remove("pv")
    cluster.listers.persistent_volume_claims.remove("default/data")
    cluster.put("persistent_volumes", *[volume] * (volume is not None))
    cluster.put("persistent_volume_claims", *[data] * (data is not None))
    assumed = state.read("VolumeBinding/choice")
    if isinstance(bound, bool):
        assert plugin._all_bound(assumed, "a") is bound
    else:
        with pytest.raises(ClaimError, match=bound):
            plugin._all_bound(assumed, "a")


@pytest.mark.parametrize(
    ("changes", "bound"),
    [
        pytest.param({"annotations": {**BOUND, **ON_A}}, True, id="bound"),
        pytest.param({"resourceVersion": "5"}, False, id="write not yet seen"),
        pytest.param({"annotations": ON_A, "resourceVersion": "7"}, False, id="provisioner is at work"),
        pytest.param({"resourceVersion": "6"}, "provisioning failed", id="annotation removed"),
        pytest.param(
            {"annotations": {**BOUND, "volume.kubernetes.io/selected-node": "b"}},
            "provisioning failed",
            id="other node",
        ),
    ],
)
def test_provisioning_is_complete(changes: Any, bound: bool | str, plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    put_claim(cluster, provisioner="csi.example")
    plugin, state, _ = reserved(cluster, pod)
    data = claim(**changes)
    if "bind-completed" not in str(changes):
        data = msgspec.structs.replace(data, spec=msgspec.structs.replace(data.spec, volume_name=""))
    cluster.put("persistent_volume_claims", data)
    assumed = state.read("VolumeBinding/choice")
    if isinstance(bound, bool):
        assert plugin._all_bound(assumed, "a") is bound
    else:
        with pytest.raises(ClaimError, match=bound):
            plugin._all_bound(assumed, "a")
    if bound is True:
        elsewhere = make_volume("pv", affinity=[("zone", "In", ["b"])])
        cluster.put("persistent_volumes", elsewhere)
        with pytest.raises(ClaimError, match='pv "pv" node affinity doesn\'t match node "a"'):
            plugin._all_bound(assumed, "a")


@pytest.mark.parametrize(
    ("provisioner", "selected", "passed"),
    [
        pytest.param("csi.example.com", "", [True, True], id="provisioned on any node"),
        pytest.param("kubernetes.io/no-provisioner", "", [False, False], id="no volume on any node"),
        pytest.param("csi.example.com", "b", [False, True], id="provisioned on the selected node"),
    ],
)
def test_nodes_for_a_delayed_claim(
    provisioner: str, selected: str, passed: list[bool], plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster([node("a"), node("b")])
    put_claim(cluster, provisioner=provisioner)
    if selected:
        annotated = msgspec.structs.replace(
            claim(), metadata=msgspec.structs.replace(claim().metadata, annotations={SELECTED_NODE: selected})
        )
        cluster.put("persistent_volume_claims", annotated)
    plugin, new, state = waiting(cluster, pod)
    snapshot = cluster.snapshot
    assert plugin.pre_filter(state, new, snapshot) == (None, None)
    result = plugin.filter_rows(state, new, snapshot, snapshot.all_rows)
    by_name = {info.name: bool(result.passed[row]) for row, info in enumerate(snapshot.node_infos)}
    assert [by_name["a"], by_name["b"]] == passed
    statuses = [plugin.filter(state, new, info) for info in snapshot.node_infos]
    assert [status is None for status in statuses] == result.passed.tolist()
    for row, status in enumerate(statuses):
        assert status is None or result.explain(row) == status
    none = np.zeros(0, np.intp)
    assert plugin.filter_rows(state, new, snapshot, none).passed.tolist() == []


def test_score_is_zero_without_delayed_claims(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")], feature_gates={"StorageCapacityScoring": True})
    plugin = VolumeBinding(plugin_args.VolumeBindingArgs(shape=FULL), cluster)
    assert plugin.score(CycleState(), PodInfo(pod("p")), cluster.snapshot.node_infos[0]) == 0


@pytest.mark.parametrize(
    ("bound_after", "checks"),
    [
        pytest.param(0.0, [0.0], id="at once"),
        pytest.param(0.05, [0.0, 0.02, 0.06], id="soon"),
        pytest.param(3.0, [0.0, 0.02, 0.06, 0.14, 0.3, 0.62, 1.26, 2.26, 3.26], id="at most a second between checks"),
    ],
)
@pytest.mark.virtual_time
async def test_pauses_between_checks_double_up_to_a_second(
    bound_after: float, checks: list[float], plugin_cluster: Any, node: Any, pod: Any, monkeypatch: Any
) -> None:
    cluster = plugin_cluster([node("a")])
    put_claim(cluster, provisioner="csi.example")
    plugin, state, new = reserved(cluster, pod, timeout_seconds=10)
    loop, times = asyncio.get_running_loop(), []
    start = loop.time()

    def is_bound(*_: Any) -> bool:
        times.append(loop.time() - start)
        return times[-1] >= bound_after

    monkeypatch.setattr(plugin, "_all_bound", is_bound)
    assert await plugin.pre_bind(state, new, "a") is None
    assert times == pytest.approx(checks)


def test_nodes_of_bound_volumes_are_selected_at_once(plugin_cluster: Any, node: Any, pod: Any) -> None:
    """The array form needs no check per node for a volume with labels of nodes."""
    cluster = plugin_cluster([node("a", labels={"zone": "x"}), node("b", labels={"zone": "y"})])
    claim_ref = {"namespace": "default", "name": "data", "uid": "data"}
    cluster.put("persistent_volume_claims", make_claim("data", "pv"))
    cluster.put("persistent_volumes", make_volume("pv", affinity=[("zone", "In", ["x"])], claimRef=claim_ref))
    plugin = VolumeBinding(plugin_args.VolumeBindingArgs(), cluster)
    new = PodInfo(pod("new", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]))
    state, snapshot = CycleState(), cluster.snapshot
    assert plugin.pre_filter(state, new, snapshot)[1] is None
    plugin.filter = None  # type: ignore[assignment, method-assign]
    assert plugin.filter_rows(state, new, snapshot, snapshot.all_rows).passed.tolist() == [True, False]
