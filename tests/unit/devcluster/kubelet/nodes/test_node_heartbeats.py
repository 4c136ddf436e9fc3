"""Leases and status reports of simulated nodes, without their pods."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kubeloop.devcluster.kubelet.nodes.node_heartbeats import NodeHeartbeats
from kubeloop.devcluster.kubelet.pods.simulated_node import SimulatedNode
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import LEASES, NODES
from kubeloop.testing.virtual_time import VirtualClock

pytestmark = pytest.mark.virtual_time
SETTINGS = NodeSettings(lease_renew_seconds=10.0, status_report_seconds=100.0)


class Nodes:
    """Two nodes, the second of them unreachable, and their heartbeats."""

    def __init__(self, *, reports: bool = True) -> None:
        self.store = ObjectStore(seconds=asyncio.get_running_loop().time)
        self._simulation = Simulation(self.store, SETTINGS, clock=VirtualClock(), rng=random.Random(1))
        self._nodes = {name: self._node(name, fail) for name, fail in (("a", ""), ("b", "unreachable"))}
        NodeHeartbeats(self._simulation, self._nodes, reports=reports).start()

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
