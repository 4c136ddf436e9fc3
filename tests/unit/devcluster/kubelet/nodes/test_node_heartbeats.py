"""Leases and status reports of simulated nodes, without their pods."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from kubeloop.devcluster.kubelet.nodes.node_heartbeats import NodeHeartbeats
from kubeloop.devcluster.kubelet.pods.simulated_node import SimulatedNode
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.object_fields import RENEWED_ON_READ
from kubeloop.kube.objects.resources import LEASES, NODES
from kubeloop.testing.virtual_time import VirtualClock

pytestmark = pytest.mark.virtual_time
SETTINGS = NodeSettings(lease_renew_seconds=10.0, status_report_seconds=100.0)


class Nodes:
    """Two nodes, the second of them unreachable, and their heartbeats."""

    def __init__(self, *, reports: bool = True, on_read: bool = False) -> None:
        self.store = ObjectStore(seconds=asyncio.get_running_loop().time)
        settings = replace(SETTINGS, heartbeats_on_read=on_read)
        self._simulation = Simulation(self.store, settings, clock=VirtualClock(), rng=random.Random(1))
        self._nodes = {name: self._node(name, fail) for name, fail in (("a", ""), ("b", "unreachable"))}
        self.heartbeats = NodeHeartbeats(self._simulation, self._nodes, reports=reports)
        self.heartbeats.start()

    def __getitem__(self, name: str) -> SimulatedNode:
        return self._nodes[name]

    def _node(self, name: str, fail: str) -> SimulatedNode:
        metadata: dict[str, Any] = {"name": name, "uid": name, "annotations": {"kubeloop.dev/fail": fail}}
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": ""}
        node = {
            "kind": "Node",
            "metadata": metadata,
            "spec": {"podCIDR": "10.128.0.0/24"},
            "status": {"conditions": [ready]},
        }
        return SimulatedNode(self.store.create(NODES, node), 0)

    async def run(self, seconds: float) -> None:
        """Run the timers that are due within this time."""
        timers, end = self._simulation.timers, self._simulation.now() + seconds
        while (due := timers.next_due()) is not None and due <= end:
            await asyncio.sleep(due - self._simulation.now())
            timer = timers.pop(due)
            assert timer is not None
            assert timer.act is not None
            timer.act(timer.argument)

    def renewals(self) -> dict[str, str]:
        return {lease["metadata"]["name"]: lease["spec"]["renewTime"] for lease in self.store.list(LEASES)}

    def have_reported(self) -> list[bool]:
        """Return for each node whether it has updated its Ready condition."""
        return [node["status"]["conditions"][0]["lastHeartbeatTime"] != "" for node in self.store.list(NODES)]


async def test_lease_of_a_reachable_node_is_created_and_renewed():
    nodes = Nodes()
    before = nodes.renewals()
    assert list(before) == ["a"]
    await nodes.run(10.0)
    assert nodes.renewals()["a"] > before["a"]


@pytest.mark.parametrize("reports", [True, False])
async def test_conditions_are_reported_unless_stages_do_it(reports):
    nodes = Nodes(reports=reports)
    await nodes.run(100.0)
    assert nodes.have_reported() == [reports, False]


async def test_heartbeats_on_read_have_the_times_of_timers():
    nodes = Nodes(on_read=True)
    nodes.heartbeats.renew_lease(nodes["a"])
    await asyncio.sleep(257.0)
    assert nodes.store.revision < 10
    nodes.store.refresh(LEASES, "kube-node-lease/a")
    nodes.store.refresh(NODES)
    assert nodes.renewals() == {"a": "2026-01-01T00:04:10.000000Z"}
    conditions = {node["metadata"]["name"]: node["status"]["conditions"] for node in nodes.store.list(NODES)}
    assert conditions["a"][0]["lastHeartbeatTime"] == "2026-01-01T00:03:20Z"
    assert conditions["b"][0]["lastHeartbeatTime"] == ""
    revision = nodes.store.revision
    nodes.store.refresh(LEASES)
    nodes.store.refresh(NODES)
    assert nodes.store.revision == revision


async def test_lease_of_a_stopped_node_has_its_last_renewal_and_no_annotation():
    nodes = Nodes(on_read=True)
    nodes.heartbeats.renew_lease(nodes["a"])
    assert nodes.store.list(LEASES)[0]["metadata"]["annotations"] == {RENEWED_ON_READ: "true"}
    await asyncio.sleep(38.0)
    nodes.heartbeats.stopped(nodes["a"])
    assert nodes.renewals() == {"a": "2026-01-01T00:00:30.000000Z"}
    assert nodes.store.list(LEASES)[0]["metadata"]["annotations"] == {}


async def test_deleted_lease_is_created_again_at_the_next_renewal():
    nodes = Nodes(on_read=True)
    nodes.heartbeats.renew_lease(nodes["a"])
    await asyncio.sleep(15.0)
    nodes.store.delete(LEASES, "kube-node-lease", "a")
    nodes.heartbeats.lease_changed("a")
    await nodes.run(4.9)
    assert nodes.renewals() == {}
    await nodes.run(5.0)
    assert nodes.renewals() == {"a": "2026-01-01T00:00:20.000000Z"}


async def test_condition_of_another_writer_is_reverted_at_the_next_report():
    nodes = Nodes(on_read=True)
    node = nodes.store.get(NODES, "", "a")
    unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastHeartbeatTime": ""}
    nodes["a"].refresh(nodes.store.update(NODES, {**node, "status": {"conditions": [unknown]}}))
    await asyncio.sleep(30.0)
    nodes.heartbeats.node_changed(nodes["a"])
    await nodes.run(69.0)
    assert nodes["a"].object["status"]["conditions"][0]["status"] == "Unknown"
    await nodes.run(70.0)
    assert nodes["a"].object["status"]["conditions"][0]["status"] == "True"
