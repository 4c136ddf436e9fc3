"""Simulated nodes on the store in virtual time: registration, Leases, nodes of a data directory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kubeloop.devcluster.kubelet.nodes.simulated_nodes import SimulatedNodes
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.storage.data_directory import DataDirectory
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import LEASES, NODES, PODS
from kubeloop.testing.virtual_time import VirtualClock
from support.simulation.simulated_cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time


async def test_node_is_registered_with_labels_status_and_addresses():
    async with SimulatedCluster(count=4, zones=("a", "b"), region="r", labels={"disk": "ssd"}).running() as cluster:
        nodes = cluster.store.list(NODES)
        assert [node["metadata"]["name"] for node in nodes] == ["node-0", "node-1", "node-2", "node-3"]
        labels = nodes[1]["metadata"]["labels"]
        assert labels["kubernetes.io/hostname"] == "node-1"
        assert labels["kubernetes.io/os"] == "linux"
        assert labels["kubernetes.io/arch"] == "amd64"
        assert labels["topology.kubernetes.io/zone"] == "b"
        assert labels["topology.kubernetes.io/region"] == "r"
        assert labels["disk"] == "ssd"
        status = nodes[0]["status"]
        assert status["allocatable"] == status["capacity"]
        conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
        assert conditions == {
            "MemoryPressure": "False",
            "DiskPressure": "False",
            "PIDPressure": "False",
            "Ready": "True",
        }
        assert status["nodeInfo"]["kubeletVersion"].startswith("v1.36")
        assert len({node["spec"]["podCIDR"] for node in nodes}) == 4
        assert len({node["metadata"]["uid"] for node in nodes}) == 4
        assert {address["type"] for address in status["addresses"]} == {"InternalIP", "Hostname"}


async def test_leases_are_renewed_every_ten_seconds():
    async with SimulatedCluster(count=3).running() as cluster:
        await asyncio.sleep(0.1)
        before = {lease["metadata"]["name"]: lease["spec"]["renewTime"] for lease in cluster.store.list(LEASES)}
        assert sorted(before) == ["node-0", "node-1", "node-2"]
        await asyncio.sleep(10.1)
        after = {lease["metadata"]["name"]: lease["spec"]["renewTime"] for lease in cluster.store.list(LEASES)}
        assert all(after[name] > before[name] for name in before)
        lease = cluster.store.list(LEASES)[0]
        assert lease["metadata"]["namespace"] == "kube-node-lease"
        assert lease["spec"]["holderIdentity"] == "node-0"
        assert lease["spec"]["leaseDurationSeconds"] == 40


async def test_lease_renewals_of_many_nodes_are_spread():
    async with SimulatedCluster(count=300).running() as cluster:
        await asyncio.sleep(20)
        times = {lease["spec"]["renewTime"] for lease in cluster.store.list(LEASES)}
        assert len(times) > 50


async def test_node_created_by_client_runs_pods():
    async with SimulatedCluster(count=0).running() as cluster:
        node = {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {"name": "custom", "uid": "n1"},
            "spec": {},
            "status": {},
        }
        node["status"] = {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "5"}}
        cluster.store.create(NODES, node)
        await asyncio.sleep(0.1)
        stored = cluster.store.get(NODES, "", "custom")
        assert stored is not None
        assert stored["status"]["allocatable"] == {"cpu": "1", "memory": "1Gi", "pods": "5"}
        assert stored["spec"]["podCIDR"]
        cluster.bind(node="custom")
        await asyncio.sleep(2)
        assert cluster.ready()


def node_names(store: ObjectStore) -> list[str]:
    return [node["metadata"]["name"] for node in store.list(NODES)]


async def test_nodes_of_settings_are_created_once_per_data_directory(tmp_path):
    @contextmanager
    def opened(count: int) -> Iterator[SimulatedCluster]:
        data_directory = DataDirectory(tmp_path)
        try:
            yield SimulatedCluster(count=count, data_directory=data_directory)
        finally:
            data_directory.close()

    def create(cluster: SimulatedCluster, name: str) -> None:
        cluster.store.create(NODES, {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "uid": name}})

    with opened(3) as cluster:
        async with cluster.running():
            cluster.store.delete(NODES, "", "node-1")
            create(cluster, "big")
            await asyncio.sleep(1)
    with opened(3) as cluster:
        async with cluster.running():
            assert node_names(cluster.store) == ["big", "node-0", "node-2"]
            cluster.store.delete(NODES, "", "node-2")
    with opened(2) as cluster:
        async with cluster.running():
            assert node_names(cluster.store) == ["big", "node-0"]
    with opened(5) as cluster:
        async with cluster.running():
            create(cluster, "small")
            await asyncio.sleep(1)
            assert node_names(cluster.store) == ["big", "node-0", "node-3", "node-4", "small"]
            nodes = cluster.store.list(NODES)
            assert len({node["spec"]["podCIDR"] for node in nodes}) == 5
            assert len({node["status"]["addresses"][0]["address"] for node in nodes}) == 5


async def test_register_creates_missing_nodes_of_settings_only():
    store = ObjectStore(seconds=lambda: 0.0)

    def register(count: int) -> None:
        SimulatedNodes(store, NodeSettings(count=count), clock=VirtualClock(), rng=random.Random(1)).register()

    register(2)
    store.delete(NODES, "", "node-0")
    register(2)
    assert node_names(store) == ["node-1"]
    register(3)
    assert node_names(store) == ["node-1", "node-2"]
    assert len({node["spec"]["podCIDR"] for node in store.list(NODES)}) == 2


async def test_error_at_one_object_does_not_stop_the_others(caplog):
    async with SimulatedCluster().running() as cluster:
        cluster.bind("broken", containers=[{"image": "nginx"}])  # a container without name
        cluster.bind("web")
        await asyncio.sleep(2)
        assert cluster.ready("web")
    assert "simulated node failed" in caplog.text


def patch_node(cluster: SimulatedCluster, *, capacity: dict[str, str | None]) -> None:
    """Change quantities of the capacity; None removes one."""
    node = cluster.node()
    status = node["status"]
    changed = {name: quantity for name, quantity in {**status["capacity"], **capacity}.items() if quantity is not None}
    cluster.store.update(NODES, {**node, "status": {**status, "capacity": changed}})


async def test_extended_resource_of_capacity_becomes_allocatable():
    async with SimulatedCluster().running() as cluster:
        patch_node(cluster, capacity={"example.com/fake": "5", "cpu": "16"})
        await asyncio.sleep(0.1)
        assert cluster.node()["status"]["allocatable"]["example.com/fake"] == "5"
        assert cluster.node()["status"]["allocatable"]["cpu"] == "8"  # not an extended resource
        patch_node(cluster, capacity={"example.com/fake": "3"})
        await asyncio.sleep(0.1)
        assert cluster.node()["status"]["allocatable"]["example.com/fake"] == "3"
        patch_node(cluster, capacity={"example.com/fake": None})
        await asyncio.sleep(0.1)
        assert "example.com/fake" not in cluster.node()["status"]["allocatable"]


async def test_smaller_allocatable_of_a_created_node_is_unchanged():
    async with SimulatedCluster(count=0).running() as cluster:
        metadata = {"name": "node-0", "uid": "n0"}
        capacity = {"cpu": "4", "memory": "1Gi", "pods": "9", "example.com/gpu": "8", "example.com/new": "1"}
        allocatable = {"cpu": "4", "memory": "1Gi", "pods": "9", "example.com/gpu": "2"}
        status = {"capacity": capacity, "allocatable": allocatable}
        cluster.store.create(NODES, {"kind": "Node", "metadata": metadata, "spec": {}, "status": status})
        await asyncio.sleep(0.1)
        assert cluster.node()["status"]["allocatable"] == {**allocatable, "example.com/new": "1"}


@pytest.mark.parametrize("at_once", [True, False])
async def test_running_pod_is_adopted_at_once_or_with_its_next_change(at_once):
    cluster = SimulatedCluster(count=1, adopts_at_once=at_once)
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    statuses = [{"name": "web", "ready": True, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]
    pod = cluster.bind()
    cluster.store.update(
        PODS, {**pod, "status": {"phase": "Running", "conditions": conditions, "containerStatuses": statuses}}
    )
    before = cluster.pod()
    async with cluster.running():
        await asyncio.sleep(60)
        assert (cluster.pod() is before) is not at_once
        cluster.delete(grace=5)
        await asyncio.sleep(10)
        assert cluster.pod() is None
