"""Simulated nodes on the real store, in virtual time: registration, leases, and who may stay on them."""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kubeloop.devcluster.controllers.taint_eviction import stay_seconds
from kubeloop.devcluster.simulation.node_addresses import NodeAddresses, host_ip, pod_cidr
from kubeloop.devcluster.storage.data_directory import DataDirectory
from kubeloop.devcluster.storage.store import Store
from kubeloop.kube.objects.resources import LEASES, NODES
from support.simulated_cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time


async def test_nodes_register_as_kubelets_do():
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
        conditions = {each["type"]: each["status"] for each in status["conditions"]}
        assert conditions == {
            "MemoryPressure": "False",
            "DiskPressure": "False",
            "PIDPressure": "False",
            "Ready": "True",
        }
        assert status["nodeInfo"]["kubeletVersion"].startswith("v1.36")
        assert len({node["spec"]["podCIDR"] for node in nodes}) == 4
        assert len({node["metadata"]["uid"] for node in nodes}) == 4
        assert {each["type"] for each in status["addresses"]} == {"InternalIP", "Hostname"}


def test_pod_networks_of_nodes_with_many_pods_do_not_overlap():
    assert pod_cidr(0, 110) == "10.128.0.0/24"
    assert pod_cidr(1, 110) == "10.128.1.0/24"
    assert pod_cidr(1, 250) == "10.128.2.0/23"
    assert pod_cidr(1, 10**12) == "10.128.0.0/9"


def with_addresses(host: str, cidr: str) -> dict[str, Any]:
    return {"spec": {"podCIDR": cidr}, "status": {"addresses": [{"type": "InternalIP", "address": host}]}}


def test_no_node_gets_what_another_has():
    addresses = NodeAddresses()
    given = []
    for index, pods in ((0, 110), (0, 110), (1, 110), (0, 500), (2, 110), (4, 110)):
        node = with_addresses(addresses.host_ip(index), addresses.pod_cidr(index, pods))
        addresses.take(node)
        given.append(node)
    networks = [ipaddress.IPv4Network(node["spec"]["podCIDR"]) for node in given]
    assert [each.prefixlen for each in networks] == [24, 24, 24, 22, 24, 24]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(networks, 2))
    assert len({node["status"]["addresses"][0]["address"] for node in given}) == 6
    addresses.release(given[3])
    assert addresses.pod_cidr(1, 500) == given[3]["spec"]["podCIDR"]
    assert addresses.host_ip(3) == given[3]["status"]["addresses"][0]["address"]


@pytest.mark.parametrize("cidr", ["", "none", "fd00::/64", "192.168.0.0/24", "0.0.0.0/0"])
def test_networks_of_nodes_from_elsewhere_are_no_shares_of_ours(cidr):
    addresses = NodeAddresses()
    addresses.take(with_addresses("192.168.1.1", cidr))
    assert addresses.pod_cidr(3, 110) == pod_cidr(3, 110)  # of 0.0.0.0/0 all is taken: given a second time
    assert addresses.host_ip(3) == host_ip(3)


async def test_leases_are_renewed_every_ten_seconds():
    async with SimulatedCluster(count=3).running() as cluster:
        await asyncio.sleep(0.1)
        before = {each["metadata"]["name"]: each["spec"]["renewTime"] for each in cluster.store.list(LEASES)}
        assert sorted(before) == ["node-0", "node-1", "node-2"]
        await asyncio.sleep(10.1)
        after = {each["metadata"]["name"]: each["spec"]["renewTime"] for each in cluster.store.list(LEASES)}
        assert all(after[name] > before[name] for name in before)
        lease = cluster.store.list(LEASES)[0]
        assert lease["metadata"]["namespace"] == "kube-node-lease"
        assert lease["spec"]["holderIdentity"] == "node-0"
        assert lease["spec"]["leaseDurationSeconds"] == 40


async def test_leases_of_many_nodes_are_spread_over_the_period():
    async with SimulatedCluster(count=300).running() as cluster:
        await asyncio.sleep(20)
        times = {each["spec"]["renewTime"] for each in cluster.store.list(LEASES)}
        assert len(times) > 50


async def test_a_node_made_by_a_user_runs_pods_too():
    async with SimulatedCluster(count=0).running() as cluster:
        node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "mine", "uid": "n1"}, "spec": {}, "status": {}}
        node["status"] = {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "5"}}
        cluster.store.create(NODES, node)
        await asyncio.sleep(0.1)
        stored = cluster.store.get(NODES, "", "mine")
        assert stored is not None
        assert stored["status"]["allocatable"] == {"cpu": "1", "memory": "1Gi", "pods": "5"}
        assert stored["spec"]["podCIDR"]
        cluster.bind(node="mine")
        await asyncio.sleep(2)
        assert cluster.ready()


async def test_cordon_taints_the_node_and_uncordon_frees_it():
    async with SimulatedCluster().running() as cluster:
        cluster.change_node("node-0", unschedulable=True)
        await asyncio.sleep(0.1)
        node = cluster.store.get(NODES, "", "node-0")
        assert node is not None
        assert [(each["key"], each["effect"]) for each in node["spec"]["taints"]] == [
            ("node.kubernetes.io/unschedulable", "NoSchedule")
        ]
        cluster.change_node("node-0", unschedulable=False)
        await asyncio.sleep(0.1)
        node = cluster.store.get(NODES, "", "node-0")
        assert node is not None
        assert "taints" not in node["spec"]


async def test_pods_of_a_deleted_node_are_removed_after_the_quarantine():
    async with SimulatedCluster().running() as cluster:
        cluster.bind()
        await asyncio.sleep(5)
        cluster.store.delete(NODES, "", "node-0")
        await asyncio.sleep(39)
        assert cluster.pod() is not None
        await asyncio.sleep(2)
        assert cluster.pod() is None


async def test_pods_bound_to_a_node_that_comes_later_run_on_it():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(node="late")
        await asyncio.sleep(5)
        assert cluster.status()["phase"] == "Pending"
        node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "late", "uid": "n9"}, "spec": {}, "status": {}}
        cluster.store.create(NODES, node)
        await asyncio.sleep(60)
        assert cluster.ready()


# --- eviction by taints

TAINT = {"key": "maintenance", "value": "soon", "effect": "NoExecute"}


async def test_a_no_execute_taint_evicts_pods_that_do_not_tolerate_it():
    async with SimulatedCluster().running() as cluster:
        cluster.bind("intolerant")
        cluster.bind("tolerant", tolerations=[{"key": "maintenance", "operator": "Exists"}])
        cluster.bind("patient", tolerations=[{"key": "maintenance", "operator": "Exists", "tolerationSeconds": 60}])
        cluster.bind("elsewhere", node="node-1")
        await asyncio.sleep(5)
        cluster.change_node("node-0", taints=[TAINT])
        await asyncio.sleep(1)
        assert cluster.pod("intolerant") is None
        assert cluster.pod("patient") is not None
        await asyncio.sleep(60)
        assert cluster.pod("patient") is None
        assert cluster.ready("tolerant")
        assert cluster.ready("elsewhere")
        assert ("TaintManagerEviction", "Marking for deletion Pod default/patient") in cluster.events()


async def test_a_taint_that_goes_in_time_spares_the_pods():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(tolerations=[{"operator": "Exists", "tolerationSeconds": 60}])
        await asyncio.sleep(5)
        cluster.change_node("node-0", taints=[TAINT])
        await asyncio.sleep(30)
        cluster.change_node("node-0", taints=[])
        await asyncio.sleep(300)
        assert cluster.ready()
        assert ("TaintManagerEviction", "Cancelling deletion of Pod default/web") in cluster.events()


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        pytest.param([], 0.0, id="none"),
        pytest.param([{"key": "maintenance", "operator": "Equal", "value": "other"}], 0.0, id="another value"),
        pytest.param([{"key": "maintenance", "value": "soon"}], None, id="Equal is the default operator"),
        pytest.param([{"operator": "Exists", "tolerationSeconds": -5}], 0.0, id="negative counts as 0"),
        pytest.param([{"operator": "Exists", "effect": "NoSchedule"}], 0.0, id="another effect"),
        pytest.param([{"operator": "Exists", "tolerationSeconds": 7}], 7.0, id="for a while"),
    ],
)
def test_stay_seconds(tolerations, seconds):
    assert stay_seconds([TAINT], tolerations) == seconds


def names(store: Store) -> list[str]:
    return [node["metadata"]["name"] for node in store.list(NODES)]


async def test_a_node_of_the_settings_is_created_once_in_the_life_of_a_data_directory(tmp_path):
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
            assert names(cluster.store) == ["big", "node-0", "node-2"]
            cluster.store.delete(NODES, "", "node-2")
    with opened(2) as cluster:
        async with cluster.running():
            assert names(cluster.store) == ["big", "node-0"]
    with opened(5) as cluster:
        async with cluster.running():
            create(cluster, "small")
            await asyncio.sleep(1)
            assert names(cluster.store) == ["big", "node-0", "node-3", "node-4", "small"]
            nodes = cluster.store.list(NODES)
            assert len({node["spec"]["podCIDR"] for node in nodes}) == 5
            assert len({node["status"]["addresses"][0]["address"] for node in nodes}) == 5
