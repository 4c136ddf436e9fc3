"""ResourceSlices of simulated nodes: contents, and their life with the node."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.kubelet.nodes.resource_slices import slice_specs
from kubeloop.devcluster.simulation.device_files import DevicePool
from kubeloop.devcluster.storage.data_directory import DataDirectory
from kubeloop.kube.objects.resources import NODES, RESOURCE_SLICES
from support.simulation.simulated_cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
JSON = dict[str, Any]
DRIVER = "gpu.example.com"


def pools(count: int = 2, **fields: Any) -> tuple[DevicePool, ...]:
    body = {"driver": DRIVER, "devices": [{"name": "gpu", "count": count}], **fields}
    return (msgspec.convert(body, DevicePool),)


def slices(cluster: SimulatedCluster) -> dict[str, JSON]:
    return {it["metadata"]["name"]: it for it in cluster.store.list(RESOURCE_SLICES)}


async def node_is_gone(cluster: SimulatedCluster, name: str) -> None:
    cluster.store.delete(NODES, "", name)
    await asyncio.sleep(0.1)


async def test_every_node_publishes_its_devices():
    async with SimulatedCluster(devices=pools()).running() as cluster:
        await asyncio.sleep(0.1)
        published = slices(cluster)
        assert sorted(published) == [f"node-0-{DRIVER}-0", f"node-1-{DRIVER}-0"]
        first = published[f"node-0-{DRIVER}-0"]
        assert first["spec"] == {
            "driver": DRIVER,
            "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "node-0",
            "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
        }
        node = cluster.store.get(NODES, "", "node-0")
        assert node is not None
        (owner,) = first["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Node", node["metadata"]["uid"], True)


async def test_slices_are_deleted_and_created_with_their_node():
    async with SimulatedCluster(devices=pools(nodes="*-1")).running() as cluster:
        await asyncio.sleep(0.1)
        foreign = {"metadata": {"name": "foreign", "uid": "f"}, "spec": {"nodeName": "node-1", "driver": "other"}}
        cluster.store.create(RESOURCE_SLICES, {"kind": "ResourceSlice", **foreign})
        await node_is_gone(cluster, "node-1")
        assert sorted(slices(cluster)) == ["foreign"]
        added = {"kind": "Node", "metadata": {"name": "added-1", "uid": "u"}, "spec": {}, "status": {}}
        cluster.store.create(NODES, added)
        await asyncio.sleep(0.1)
        assert sorted(slices(cluster)) == [f"added-1-{DRIVER}-0", "foreign"]


async def test_slice_that_the_garbage_collector_deleted_first_is_no_error(caplog):
    async with SimulatedCluster(devices=pools()).running() as cluster:
        await asyncio.sleep(0.1)
        cluster.store.delete(RESOURCE_SLICES, "", f"node-1-{DRIVER}-0")
        await node_is_gone(cluster, "node-1")
        assert sorted(slices(cluster)) == [f"node-0-{DRIVER}-0"]
    assert not caplog.records


async def test_restarted_cluster_replaces_slices_only_if_the_devices_changed(tmp_path):
    found = []
    for count in (2, 2, 3):
        directory = DataDirectory(tmp_path)
        async with SimulatedCluster(devices=pools(count), count=1, data_directory=directory).running() as cluster:
            await asyncio.sleep(0.1)
            (published,) = slices(cluster).values()
            found.append((published["spec"]["pool"]["generation"], len(published["spec"]["devices"])))
        directory.close()
    assert found == [(1, 2), (1, 2), (2, 3)]


async def test_taints_are_added_at_the_time_of_their_publication(tmp_path):
    taints = [{"key": "example.com/broken", "effect": "NoExecute"}]
    tainted = pools(devices=[{"name": "gpu", "count": 2, "taints": taints}, {"name": "fine"}])
    times = []
    for _ in range(2):
        directory = DataDirectory(tmp_path)
        async with SimulatedCluster(devices=tainted, count=1, data_directory=directory).running() as cluster:
            await asyncio.sleep(0.1)
            (published,) = slices(cluster).values()
            assert published["spec"]["pool"]["generation"] == 1
            times.append(
                [it["timeAdded"] for device in published["spec"]["devices"] for it in device.get("taints", ())]
            )
            await asyncio.sleep(60)
        directory.close()
    assert times[0] == times[1]
    assert len(times[0]) == 2


@pytest.mark.parametrize(
    ("fields", "sizes"),
    [
        pytest.param({}, [128, 72], id="plain devices"),
        pytest.param({"taints": [{"key": "a", "effect": "NoSchedule"}]}, [64, 64, 64, 8], id="with taints"),
    ],
)
def test_large_pools_have_several_slices(fields, sizes):
    specs = slice_specs(pools(devices=[{"name": "gpu", "count": 200, **fields}]), "n", 1)
    assert [len(spec["devices"]) for spec in specs.values()] == sizes
    assert {spec["pool"]["resourceSliceCount"] for spec in specs.values()} == {len(sizes)}


def test_counters_have_a_slice_of_their_own():
    counters = [{"name": "chip", "counters": {"memory": "80Gi"}}]
    specs = list(slice_specs(pools(pool="split", sharedCounters=counters), "n", 1).values())
    assert specs[0]["sharedCounters"] == [{"name": "chip", "counters": {"memory": {"value": "80Gi"}}}]
    assert "devices" not in specs[0]
    assert [spec["pool"]["name"] for spec in specs] == ["n/split", "n/split"]
