"""What plugins write to the API: bindings, evictions, volumes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kubeloop.kube.errors import Conflict, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import Status, convert
from kubeloop.kube.objects.storage_types import PersistentVolume, PersistentVolumeClaim, StorageClass
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.default_binder import DefaultBinder
from kubeloop.scheduler.plugins.default_preemption import DefaultPreemption
from kubeloop.scheduler.plugins.preemption_executor import PreemptionExecutor
from kubeloop.scheduler.plugins.volume_binding import VolumeBinding


async def test_binding_is_posted_in_its_own_lane(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    binder = DefaultBinder(plugin_args.NoArgs(), cluster)
    assert await binder.bind(CycleState(), PodInfo(pod("new", uid="u1")), "a") is None
    verb, plural, namespace, name, subresource, body = cluster.client.requests[0]
    assert (verb, plural, namespace, name, subresource) == ("create", "pods", "default", "new", "binding")
    assert body["target"] == {"kind": "Node", "name": "a"}
    assert body["metadata"] == {"name": "new", "namespace": "default", "uid": "u1"}
    assert cluster.client.options[0]["lane"] == "binding"


@pytest.mark.parametrize(
    "error", [Conflict(Status(code=409, message="already bound")), ServerUnreachable("gone", maybe_applied=True)]
)
async def test_a_failed_binding_is_an_error_of_the_binder(error: Exception, plugin_cluster: Any, pod: Any) -> None:
    cluster = plugin_cluster()
    cluster.client.failures = [error]
    status = await DefaultBinder(plugin_args.NoArgs(), cluster).bind(CycleState(), PodInfo(pod("new")), "a")
    assert status is not None
    assert (status.code, status.plugin, status.error) == (Code.ERROR, "DefaultBinder", error)


class Told:
    """Metrics that remember how preemptions went, and which stage of a pod's volumes failed."""

    def __init__(self) -> None:
        self.evictions: list[str] = []
        self.stages: list[str] = []

    def victims_evicted(self, result: str, seconds: float) -> None:
        self.evictions.append(result)

    def volume_stage_failed(self, stage: str) -> None:
        self.stages.append(stage)


def preempting(plugin_cluster: Any, node: Any, pod: Any) -> tuple[Any, DefaultPreemption, PodInfo]:
    cluster = plugin_cluster(
        [node("a")], [pod("low-1", "a", cpu="2", priority=1), pod("low-2", "a", cpu="2", priority=2)]
    )
    new = PodInfo(pod("high", cpu="4", priority=100))
    plugin: DefaultPreemption = cluster.framework.plugins["DefaultPreemption"]
    state = CycleState()
    cluster.framework.run_pre_filter(state, new, cluster.snapshot)
    status = cluster.run_filters_with_nominated_pods(state, new, cluster.snapshot.node_infos[0])
    statuses = type("Statuses", (), {"get": lambda _, name: status, "nodes_with_code": lambda _, code: ["a"]})()
    result, rejected = plugin.post_filter(state, new, cluster.snapshot, statuses)
    assert rejected is None
    assert result is not None
    assert result.nominated_node_name == "a"
    return cluster, plugin, new


async def test_victims_are_marked_then_deleted_and_told(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster, plugin, new = preempting(plugin_cluster, node, pod)
    gated = plugin.pre_enqueue(new.pod)
    assert gated is not None
    assert gated.reasons == ("waiting for the preemption for this pod to be finished",)
    cluster.metrics = Told()
    await cluster.spawned[0]
    assert [(request[0], request[3]) for request in cluster.client.requests] == [
        ("patch", "low-2"),
        ("delete", "low-2"),
        ("patch", "low-1"),
        ("delete", "low-1"),
    ]
    (condition,) = cluster.client.requests[0][5]["status"]["conditions"]
    assert condition["type"] == "DisruptionTarget"
    assert condition["reason"] == "PreemptionByScheduler"
    assert condition["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
    assert cluster.recorder.events[0] == ("low-2", "Normal", "Preempted", "Preempted by pod high on node a")
    assert plugin.pre_enqueue(new.pod) is None
    assert cluster.activated == []
    assert cluster.metrics.evictions == ["success"]


async def test_a_victim_that_is_gone_already_is_no_failure(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster, plugin, new = preempting(plugin_cluster, node, pod)
    cluster.client.failures = [NotFound(Status(code=404)), NotFound(Status(code=404))]
    await cluster.spawned[0]
    assert cluster.activated == []
    assert cluster.recorder.events == [], "nobody was preempted"
    assert plugin.pre_enqueue(new.pod) is None


async def test_a_victim_on_its_way_out_is_not_asked_to_leave_again(plugin_cluster: Any, node: Any, pod: Any) -> None:
    leaving = pod("low-1", "a", cpu="4", priority=1)
    metadata = msgspec.structs.replace(leaving.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    cluster = plugin_cluster([node("a")], [msgspec.structs.replace(leaving, metadata=metadata)])
    victim = next(iter(cluster.snapshot.node_infos[0].pods.values()))
    evictions = PreemptionExecutor(cluster, "DefaultPreemption")
    evictions.start(PodInfo(pod("high", cpu="4", priority=100)), "a", [victim])
    await cluster.spawned[0]
    assert cluster.client.requests == []
    assert cluster.recorder.events == []


@pytest.mark.parametrize("answered", range(4))
async def test_a_pod_whose_preemption_failed_is_tried_again(
    answered: int, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster, plugin, new = preempting(plugin_cluster, node, pod)
    cluster.metrics = told = Told()
    cluster.client.failures = [None] * answered + [ServerUnreachable("gone", maybe_applied=False)]
    await cluster.spawned[0]
    assert len(cluster.client.requests) == answered + 1
    assert cluster.activated == ["default/high"]
    assert plugin.pre_enqueue(new.pod) is None
    assert told.evictions == ["error"]


async def test_when_one_victim_cannot_be_asked_to_go_nobody_goes_on_asking(
    plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster([node("a")], [pod(f"low-{number}", "a", cpu="1", priority=1) for number in range(4)])
    evictions = PreemptionExecutor(cluster, "DefaultPreemption")
    evictions.start(
        PodInfo(pod("high", cpu="4", priority=100)), "a", list(cluster.snapshot.node_infos[0].pods.values())
    )
    cluster.client.failures = [ServerUnreachable("gone", maybe_applied=False)]
    cluster.client.delete = lambda *_, **__: asyncio.sleep(60)
    await cluster.spawned[0]
    assert cluster.activated == ["default/high"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


def volumes(cluster: Any, *, provisioner: str) -> None:
    waiting = {"metadata": {"name": "fast"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    cluster.put("storage_classes", convert(StorageClass, waiting))
    cluster.put("persistent_volume_claims", claim())


WANTED = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def claim(**changes: Any) -> PersistentVolumeClaim:
    metadata = {"name": "data", "namespace": "default", "uid": "c1", "resourceVersion": "5"} | changes
    bound = {"volumeName": "pv"} if "annotations" in changes else {}
    return convert(PersistentVolumeClaim, {"metadata": metadata, "spec": WANTED | bound})


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


async def test_a_claim_is_bound_to_the_chosen_volume_before_the_pod(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    volumes(cluster, provisioner="kubernetes.io/no-provisioner")
    cluster.put("persistent_volumes", available())
    plugin, state, new = reserved(cluster, pod)
    cluster.put("persistent_volumes", available(name="data", namespace="default", uid="c1"))
    cluster.put("persistent_volume_claims", claim(annotations={"pv.kubernetes.io/bind-completed": "yes"}))
    assert await plugin.pre_bind(state, new, "a") is None
    verb, plural, _, name, _, body = cluster.client.requests[0]
    assert (verb, plural, name) == ("patch", "persistentvolumes", "pv")
    assert body["metadata"]["resourceVersion"] == "9"
    assert body["spec"]["claimRef"]["uid"] == "c1"


async def test_a_provisioner_is_told_the_node(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    volumes(cluster, provisioner="csi.example")
    plugin, state, new = reserved(cluster, pod)
    done = {"pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "a"}
    cluster.put("persistent_volume_claims", claim(annotations=done, resourceVersion="6"))
    assert await plugin.pre_bind(state, new, "a") is None
    verb, plural, namespace, name, _, body = cluster.client.requests[0]
    assert (verb, plural, namespace, name) == ("patch", "persistentvolumeclaims", "default", "data")
    assert body["metadata"]["annotations"] == {"volume.kubernetes.io/selected-node": "a"}


async def test_waiting_for_volumes_ends_with_the_timeout(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    volumes(cluster, provisioner="csi.example")
    plugin, state, new = reserved(cluster, pod, timeout_seconds=0)
    cluster.metrics = Told()
    status = await plugin.pre_bind(state, new, "a")
    assert status is not None
    assert status.reasons == ("binding volumes: context deadline exceeded",)
    assert cluster.metrics.stages == ["bind"]
    plugin.unreserve(state, new, "a")


def test_a_volume_assumed_for_one_pod_is_taken_for_the_next(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    volumes(cluster, provisioner="kubernetes.io/no-provisioner")
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
