"""In-place resizes in virtual time: allocated, deferred, granted in order, applied."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kubeloop.devcluster.kubelet.pods.kubelet_events import KubeletEvents
from kubeloop.devcluster.kubelet.pods.pod_resizes import PodResizes
from kubeloop.devcluster.kubelet.pods.simulated_node import SimulatedNode
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.kube.objects.resources import NODES, PODS
from support.simulation.simulated_cluster import SimulatedCluster, container
from support.simulation.simulated_pods import new_simulation

pytestmark = pytest.mark.virtual_time
JSON = dict[str, Any]


def requesting(cpu: str, memory: str = "1Gi", **fields: Any) -> list[JSON]:
    return [container("web", resources={"requests": {"cpu": cpu, "memory": memory}}, **fields)]


def resize(cluster: SimulatedCluster, name: str, cpu: str, memory: str = "1Gi") -> None:
    pod = cluster.pod(name)
    assert pod is not None
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    containers = [{**entry, "resources": resources} for entry in pod["spec"]["containers"]]
    metadata = {**pod["metadata"], "generation": pod["metadata"]["generation"] + 1}
    cluster.change(name, spec={**pod["spec"], "containers": containers}, metadata=metadata)


def allocated(cluster: SimulatedCluster, name: str) -> str:
    cpu: str = cluster.status(name)["containerStatuses"][0]["allocatedResources"]["cpu"]
    return cpu


def actual(cluster: SimulatedCluster, name: str) -> str:
    cpu: str = cluster.status(name)["containerStatuses"][0]["resources"]["requests"]["cpu"]
    return cpu


def condition(cluster: SimulatedCluster, type_: str, name: str = "web") -> JSON | None:
    return next((entry for entry in cluster.status(name)["conditions"] if entry["type"] == type_), None)


async def defer_resize(cluster: SimulatedCluster) -> None:
    """Start the pods "web" with 1 CPU and "big" with 6 of 8, and resize the first to 3."""
    cluster.bind(containers=requesting("1"))
    cluster.bind("big", containers=requesting("6"))
    await asyncio.sleep(2)
    resize(cluster, "web", "3")
    await asyncio.sleep(1)


async def test_resize_is_allocated_and_then_applied():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(containers=requesting("1"))
        await asyncio.sleep(2)
        resize(cluster, "web", "3")
        await asyncio.sleep(0.1)
        progress = condition(cluster, "PodResizeInProgress")
        assert progress is not None
        assert (progress["status"], progress["observedGeneration"]) == ("True", 2)
        assert (allocated(cluster, "web"), actual(cluster, "web")) == ("3", "1")
        await asyncio.sleep(1.1)
        assert condition(cluster, "PodResizeInProgress") is None
        assert (allocated(cluster, "web"), actual(cluster, "web")) == ("3", "3")
        assert cluster.status()["containerStatuses"][0]["restartCount"] == 0
        resources = '{"name":"web","resources":{"requests":{"cpu":"3","memory":"1Gi"}}}'
        assert ("ResizeCompleted", f'Pod resize completed: {{"containers":[{resources}],"generation":2}}') in (
            cluster.events()
        )


async def test_resize_without_room_is_deferred_until_a_pod_is_deleted():
    async with SimulatedCluster().running() as cluster:
        await defer_resize(cluster)
        pending = condition(cluster, "PodResizePending")
        assert pending is not None
        message = "Node didn't have enough resource: cpu, requested: 3000, used: 6000, capacity: 8000"
        assert (pending["reason"], pending["message"]) == ("Deferred", message)
        assert (allocated(cluster, "web"), actual(cluster, "web")) == ("1", "1")
        await asyncio.sleep(400)  # reports do not repeat the event
        assert [reason for reason, _ in cluster.events()].count("ResizeDeferred") == 1
        cluster.delete("big", grace=0)
        await asyncio.sleep(2)
        assert condition(cluster, "PodResizePending") is None
        assert (allocated(cluster, "web"), actual(cluster, "web")) == ("3", "3")


async def test_deferred_resize_does_not_count_for_other_pods():
    async with SimulatedCluster().running() as cluster:
        await defer_resize(cluster)
        cluster.bind("small", containers=requesting("1"))
        cluster.bind("more", containers=requesting("1"))
        await asyncio.sleep(2)
        assert cluster.phase("small") == "Running"
        assert cluster.status("more")["reason"] == "OutOfcpu"


async def test_reverted_resize_is_not_pending():
    async with SimulatedCluster().running() as cluster:
        await defer_resize(cluster)
        assert condition(cluster, "PodResizePending")
        resize(cluster, "web", "1")
        await asyncio.sleep(1)
        assert condition(cluster, "PodResizePending") is None


@pytest.mark.parametrize("makes_room", ["smaller pod", "larger node"])
async def test_deferred_resize_is_granted_when_room_appears(makes_room: str):
    async with SimulatedCluster().running() as cluster:
        await defer_resize(cluster)
        if makes_room == "smaller pod":
            resize(cluster, "big", "5")
        else:
            node = cluster.node()
            status = {**node["status"], "allocatable": {**node["status"]["allocatable"], "cpu": "9"}}
            cluster.store.update(NODES, {**node, "status": status})
        await asyncio.sleep(2)
        assert allocated(cluster, "web") == "3"


async def test_deferred_resizes_are_granted_by_priority_then_by_age():
    async with SimulatedCluster().running() as cluster:
        cluster.bind("big", containers=requesting("5"))
        for name, priority in (("old", 0), ("new", 0), ("important", 100)):
            cluster.bind(name, containers=requesting("1"), priority=priority)
        await asyncio.sleep(2)
        for name in ("old", "new", "important"):
            resize(cluster, name, "3")
            await asyncio.sleep(1)
        assert [allocated(cluster, name) for name in ("old", "new", "important")] == ["1", "1", "1"]
        resize(cluster, "big", "3")  # room for one
        await asyncio.sleep(2)
        assert [allocated(cluster, name) for name in ("old", "new", "important")] == ["1", "1", "3"]
        resize(cluster, "big", "1")
        await asyncio.sleep(2)
        assert [allocated(cluster, name) for name in ("old", "new", "important")] == ["3", "1", "3"]


async def test_container_is_restarted_if_its_policy_demands():
    policy = [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]
    policy.append({"resourceName": "memory", "restartPolicy": "RestartContainer"})
    async with SimulatedCluster().running() as cluster:
        cluster.bind(containers=requesting("1", resizePolicy=policy))
        await asyncio.sleep(2)
        resize(cluster, "web", "2")
        await asyncio.sleep(2)
        assert cluster.status()["containerStatuses"][0]["restartCount"] == 0
        resize(cluster, "web", "2", "2Gi")
        await asyncio.sleep(2)
        (status,) = cluster.status()["containerStatuses"]
        assert (status["restartCount"], "terminated" in status["lastState"]) == (1, True)
        assert status["resources"]["requests"]["memory"] == "2Gi"
        assert ("Killing", "Container web resize requires restart") in cluster.events()


async def test_resize_on_windows_is_infeasible():
    async with SimulatedCluster(labels={"kubernetes.io/os": "windows"}).running() as cluster:
        cluster.bind(containers=requesting("1"))
        await asyncio.sleep(2)
        resize(cluster, "web", "3")
        await asyncio.sleep(2)
        pending = condition(cluster, "PodResizePending")
        assert pending is not None
        assert pending["reason"] == "Infeasible"
        assert "ResizeInfeasible" in [reason for reason, _ in cluster.events()]
        assert allocated(cluster, "web") == "1"


def burstable_and_guaranteed(node: SimulatedNode) -> list[SimulatedPod]:
    """Return the pods "burstable" and "guaranteed", with 1 CPU each, that want 3."""
    pods = []
    for name, parts in (("burstable", ("requests",)), ("guaranteed", ("requests", "limits"))):
        before, after = ({part: {"cpu": cpu, "memory": "1Gi"} for part in parts} for cpu in ("1", "3"))
        metadata = {"name": name, "namespace": "default", "uid": name, "generation": 2}
        spec = {"nodeName": "node-0", "containers": [{"name": "web", "resources": before}]}
        pod = SimulatedPod({"metadata": metadata, "spec": spec}, node, settings=NodeSettings(), rng=random.Random(1))
        pod.count_resources()
        wanted = {**spec, "containers": [{"name": "web", "resources": after}]}
        pod.object = {**pod.object, "spec": wanted}
        pods.append(pod)
    return pods


def test_guaranteed_pods_are_resized_before_burstable_ones():
    status = {"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "9"}}
    obj: JSON = {"metadata": {"name": "node-0", "uid": "n"}, "spec": {"podCIDR": "10.128.3.0/24"}, "status": status}
    node = SimulatedNode(obj, 0)
    resizes = PodResizes(
        KubeletEvents(new_simulation(events=False)),
        lambda pod: None,
        lambda pod, run, why: None,
        lambda pod: None,
        delay_seconds=1.0,
    )
    burstable, guaranteed = burstable_and_guaranteed(node)
    for pod in (burstable, guaranteed):
        resizes.consider(pod, 0.0)
        assert pod.deferred is not None
    node.refresh({**obj, "status": {"allocatable": {**status["allocatable"], "cpu": "4"}}})
    resizes.retry(node, 5.0)
    assert (guaranteed.deferred, guaranteed.resize_at) == (None, 6.0)
    assert burstable.deferred is not None
    resizes.forget_node(node)
    node.refresh({**obj, "status": {"allocatable": {**status["allocatable"], "cpu": "9"}}})
    resizes.retry(node, 6.0)
    assert burstable.deferred is not None


async def test_restarted_kubelet_knows_what_it_has_allocated():
    cluster = SimulatedCluster()
    async with cluster.running():
        await defer_resize(cluster)
    restarted = SimulatedCluster()
    async with restarted.running():
        for name in ("big", "web"):
            restarted.store.create(PODS, cluster.pod(name) or {})
        await asyncio.sleep(2)
        pending = condition(restarted, "PodResizePending")
        assert pending is not None
        assert pending["reason"] == "Deferred"
        assert (allocated(restarted, "web"), actual(restarted, "web")) == ("1", "1")
        restarted.delete("big", grace=0)
        await asyncio.sleep(2)
        assert allocated(restarted, "web") == "3"
