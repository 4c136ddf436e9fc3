"""Nodes of clients in virtual time: heartbeats of an external kubelet, and what follows without them.

The times and states are those of kube-controller-manager v1.36 on a kube-apiserver without kubelets.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.devcluster.simulation import node_objects
from kubeloop.kube.clock import rfc3339, rfc3339_micro
from kubeloop.kube.objects.resources import EVENTS, LEASES, NODES, PODS
from support.simulation.simulated_cluster import COMPONENTS, SimulatedCluster

pytestmark = pytest.mark.virtual_time
JSON = dict[str, Any]
READY = [{"type": "Ready", "status": "True"}]
ADMISSION_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
UNREACHABLE = {("node.kubernetes.io/unreachable", effect) for effect in ("NoSchedule", "NoExecute")}


class ClusterWithClientNode(SimulatedCluster):
    def __init__(self) -> None:
        super().__init__(controllers=[*COMPONENTS])

    def create(self, name: str = "mine", *, conditions: list[JSON] | None = None, uid: str = "u") -> None:
        """Create a Node with an external kubelet, with the taint that admission adds."""
        metadata = {"name": name, "uid": uid, "annotations": {"kubeloop.dev/node": "external"}}
        metadata["creationTimestamp"] = rfc3339(self.clock.now())
        node = {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": {"taints": [ADMISSION_TAINT]}}
        self.store.create(NODES, {**node, "status": {"conditions": conditions or []}})

    def ready(self, name: str = "mine") -> tuple[str, str]:
        conditions = self.node(name)["status"]["conditions"]
        (condition,) = (condition for condition in conditions if condition["type"] == "Ready")
        return condition["status"], condition.get("reason", "")

    def taints(self, name: str = "mine") -> set[tuple[str, str]]:
        return {(taint["key"], taint["effect"]) for taint in self.node(name)["spec"].get("taints") or ()}

    def report(self, name: str = "mine") -> None:
        """Report the status as a kubelet."""
        conditions = [{**READY[0], "lastHeartbeatTime": rfc3339(self.clock.now())}]
        self.store.update(NODES, {**self.node(name), "status": {"conditions": conditions}})

    def renew(self, name: str = "mine") -> None:
        """Renew the Lease as a kubelet."""
        now = self.clock.now()
        lease = self.store.get(LEASES, node_objects.LEASE_NAMESPACE, name)
        new = node_objects.lease_object(
            self.node(name), now=rfc3339(now), now_micro=rfc3339_micro(now), uid=f"lease-{name}"
        )
        if lease is None:
            self.store.create(LEASES, new)
        else:
            self.store.update(LEASES, {**lease, "spec": new["spec"]})

    def bind_running(self) -> None:
        pod = self.bind(node="mine")
        self.store.update(PODS, {**pod, "status": {"phase": "Running", "conditions": READY}})

    def pod_ready(self) -> str:
        return self.conditions()["Ready"][0]

    def event_sources(self) -> list[tuple[str, str, str]]:
        """Return object, reason and component of every event."""
        return [
            (event["involvedObject"]["name"], event["reason"], event["source"]["component"])
            for event in self.store.list(EVENTS)
        ]


async def test_silent_node_is_unknown_after_the_grace_period():
    async with ClusterWithClientNode().running() as cluster:
        cluster.create(conditions=READY)
        cluster.bind_running()
        await asyncio.sleep(1)
        assert cluster.taints() == set()
        await asyncio.sleep(48)
        assert cluster.ready() == ("True", "")
        assert cluster.pod_ready() == "True"
        await asyncio.sleep(12)
        assert cluster.ready() == ("Unknown", "NodeStatusUnknown")
        assert cluster.taints() == UNREACHABLE
        assert cluster.pod_ready() == "False"
        assert {("mine", "NodeNotReady", "node-controller"), ("web", "NodeNotReady", "node-controller")} <= set(
            cluster.event_sources()
        )


async def test_node_that_never_reports_is_unknown_after_the_startup_grace_period():
    async with ClusterWithClientNode().running() as cluster:
        cluster.create()
        await asyncio.sleep(55)
        assert cluster.node("mine")["status"]["conditions"] == []
        assert cluster.taints() == set()  # kube-controller-manager removes the taint of admission, too
        await asyncio.sleep(16)
        assert cluster.ready() == ("Unknown", "NodeStatusNeverUpdated")
        assert cluster.taints() == UNREACHABLE
        assert ("mine", "RegisteredNode", "node-controller") in cluster.event_sources()


@pytest.mark.parametrize("heartbeat", ["report", "renew"])
async def test_node_with_heartbeats_stays_ready_until_they_end(heartbeat):
    async with ClusterWithClientNode().running() as cluster:
        cluster.create(conditions=READY)
        for _ in range(20):
            await asyncio.sleep(10)
            getattr(cluster, heartbeat)()
        assert cluster.ready()[0] == "True"
        await asyncio.sleep(66)
        assert cluster.ready()[0] == "Unknown"
        cluster.report()
        await asyncio.sleep(6)
        assert (cluster.ready()[0], cluster.taints()) == ("True", set())


async def test_pods_of_a_silent_node_are_evicted():
    tolerations = [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]
    async with ClusterWithClientNode().running() as cluster:
        cluster.create(conditions=READY)
        cluster.bind(node="mine", tolerations=tolerations)
        await asyncio.sleep(60)
        cluster.bind("late", node="mine", tolerations=tolerations)
        for name in ("web", "late"):
            pod = cluster.pod(name)
            assert pod is not None
            assert "deletionTimestamp" not in pod["metadata"]
        await asyncio.sleep(35)
        for name in ("web", "late"):
            pod = cluster.pod(name)
            assert pod is not None  # no kubelet confirms that it has stopped
            assert "deletionTimestamp" in pod["metadata"]
        cluster.change_node("mine", taints=[{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}])
        await asyncio.sleep(21)
        assert cluster.pod() is None


async def test_pods_of_a_deleted_node_are_deleted_after_the_quarantine():
    async with ClusterWithClientNode().running() as cluster:
        cluster.create(conditions=READY)
        cluster.bind_running()
        await asyncio.sleep(1)
        cluster.store.delete(NODES, "", "mine")
        await asyncio.sleep(39)
        assert cluster.pod() is not None
        await asyncio.sleep(2)
        assert cluster.pod() is None
        assert ("mine", "RemovingNode", "node-controller") in cluster.event_sources()


async def test_recreated_node_has_a_grace_period_of_its_own():
    async with ClusterWithClientNode().running() as cluster:
        cluster.create(conditions=READY)
        cluster.bind_running()
        await asyncio.sleep(40)
        cluster.store.delete(NODES, "", "mine")
        cluster.create(conditions=READY, uid="v")
        await asyncio.sleep(45)
        assert cluster.ready()[0] == "True"
        assert cluster.pod() is not None


async def test_client_node_that_is_simulated_later_becomes_ready():
    async with ClusterWithClientNode().running() as cluster:
        cluster.create()
        await asyncio.sleep(100)
        assert cluster.ready()[0] == "Unknown"
        cluster.change_metadata(NODES, "mine", annotations={})
        await asyncio.sleep(200)
        assert (cluster.ready()[0], cluster.taints()) == ("True", set())
