"""Simulated nodes of a cluster with another API server: here, kubeloop's own without nodes, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kubeloop.devcluster.authorization.mode_names import ALWAYS_ALLOW
from kubeloop.devcluster.server.apiserver import ApiServer, ServingSettings
from kubeloop.devcluster.simulation.node_objects import ANNOTATION_FAIL, ANNOTATION_NODE, NodeSettings
from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import EVENTS, LEASES, NODES, PODS
from kubeloop.process.development_cluster.remote_nodes import OWNER_LABEL, RemoteNodes, remove_nodes
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.testing.virtual_time import VirtualClock
from support.apiserver.bare_apiserver import create_accounts

pytestmark = pytest.mark.virtual_time
OWNER = "me"


def node(name: str, owner: str = OWNER) -> JSON:
    labels, annotations = {OWNER_LABEL: owner}, {ANNOTATION_NODE: "simulated"}
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def pod(name: str, node_name: str, **spec: Any) -> JSON:
    container = {"name": "app", "image": "app", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node_name, "containers": [container], **spec},
    }


class Cluster:
    """An API server that simulates no nodes, and simulated nodes n0 and n1 of this process."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        settings = ServingSettings(authorization_modes=(ALWAYS_ALLOW,), root_ca="")
        self.api = ApiServer(clock=self.clock, rng=random.Random(1), token=None, settings=settings)
        create_accounts(self.api)
        self.client = ApiClient(MemoryTransport(self.api.handle), clock=self.clock, rng=random.Random(2))
        self.nodes = RemoteNodes(
            self.client, OWNER, ["n0", "n1"], NodeSettings(), clock=self.clock, rng=random.Random(3)
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        for name in ("n0", "n1"):
            await self.client.create_raw(NODES, node(name))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run()) for run in (self.api.run, self.nodes.run)]
            yield
            for task in tasks:
                task.cancel()

    def pod(self, name: str) -> JSON | None:
        return self.api.store.get(PODS, "default", name)

    def node(self, name: str) -> JSON:
        return self.api.store.get(NODES, "", name) or {}

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.1)

    def is_ready(self, obj: JSON | None) -> bool:
        conditions = ((obj or {}).get("status") or {}).get("conditions") or ()
        return any((entry["type"], entry["status"]) == ("Ready", "True") for entry in conditions)


async def test_node_becomes_ready_and_renews_its_lease():
    cluster = Cluster()
    async with cluster.running():
        await cluster.until(lambda: cluster.is_ready(cluster.node("n0")))
        await cluster.until(lambda: not cluster.node("n0")["spec"].get("taints"))
        assert cluster.node("n0")["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.")
        first = cluster.api.store.get(LEASES, "kube-node-lease", "n0")["spec"]["renewTime"]
        await asyncio.sleep(30)
        assert cluster.api.store.get(LEASES, "kube-node-lease", "n0")["spec"]["renewTime"] > first


async def test_bound_pod_runs_and_ends_when_it_is_deleted():
    cluster = Cluster()
    async with cluster.running():
        await cluster.client.create_raw(PODS, pod("web", "n0"), "default")
        await cluster.until(lambda: cluster.is_ready(cluster.pod("web")))
        status = cluster.pod("web")["status"]
        assert (status["phase"], status["containerStatuses"][0]["ready"]) == ("Running", True)
        await cluster.until(lambda: {"Started"} <= {event["reason"] for event in cluster.api.store.list(EVENTS)})
        await cluster.client.delete(PODS, "web", "default")
        await cluster.until(lambda: cluster.pod("web") is None)


async def test_pods_and_nodes_of_others_are_not_touched():
    cluster = Cluster()
    await cluster.client.create_raw(NODES, node("real", owner="another"))
    await cluster.client.create_raw(PODS, pod("theirs", "real"), "default")
    before = cluster.pod("theirs"), cluster.node("real")
    async with cluster.running():
        await cluster.client.create_raw(PODS, pod("ours", "n1"), "default")
        await cluster.until(lambda: cluster.is_ready(cluster.pod("ours")))
        await asyncio.sleep(400)
        assert (cluster.pod("theirs"), cluster.node("real")) == before
        leases = cluster.api.store.list(LEASES, "kube-node-lease")
        assert {lease["metadata"]["name"] for lease in leases} == {"n0", "n1"}


async def test_pods_that_exist_before_the_start_are_adopted():
    cluster = Cluster()
    await cluster.client.create_raw(PODS, pod("early", "n0"), "default")
    async with cluster.running():
        await cluster.until(lambda: cluster.is_ready(cluster.pod("early")))


async def test_conditions_of_others_stay_in_the_status():
    cluster = Cluster()
    async with cluster.running():
        await cluster.client.create_raw(PODS, pod("web", "n0"), "default")
        gate = {"type": "example.com/gate", "status": "True"}
        await cluster.client.patch(
            PODS, "web", {"status": {"conditions": [gate]}}, PatchType.STRATEGIC, "default", subresource="status"
        )
        await cluster.until(lambda: cluster.is_ready(cluster.pod("web")))
        assert gate["type"] in {entry["type"] for entry in cluster.pod("web")["status"]["conditions"]}


async def test_job_pod_completes_and_its_finalizer_holds_it():
    cluster = Cluster()
    async with cluster.running():
        body = pod("once", "n0", restartPolicy="Never")
        body["metadata"] |= {"finalizers": ["example.com/hold"], "annotations": {"kubeloop.dev/run-seconds": "1"}}
        await cluster.client.create_raw(PODS, body, "default")
        await cluster.until(lambda: (cluster.pod("once")["status"]).get("phase") == "Succeeded")
        await cluster.client.delete(PODS, "once", "default")
        await asyncio.sleep(60)
        assert cluster.pod("once")["metadata"]["finalizers"] == ["example.com/hold"]
        await cluster.client.patch(PODS, "once", {"metadata": {"finalizers": None}}, PatchType.MERGE, "default")
        await cluster.until(lambda: cluster.pod("once") is None)


async def test_failure_mode_of_a_node_is_reported():
    cluster = Cluster()
    async with cluster.running():
        await cluster.until(lambda: cluster.is_ready(cluster.node("n0")))
        for mode, ready in (("not-ready", False), (None, True)):
            body = {"metadata": {"annotations": {ANNOTATION_FAIL: mode}}}
            await cluster.client.patch(NODES, "n0", body, PatchType.MERGE)
            await cluster.until(lambda ready=ready: cluster.is_ready(cluster.node("n0")) is ready)


async def test_idle_nodes_write_only_heartbeats():
    cluster = Cluster()
    async with cluster.running():
        await cluster.client.create_raw(PODS, pod("web", "n0"), "default")
        await cluster.until(lambda: cluster.is_ready(cluster.pod("web")))
        await asyncio.sleep(30)
        before = cluster.pod("web")["metadata"]["resourceVersion"]
        await asyncio.sleep(600)
        assert cluster.pod("web")["metadata"]["resourceVersion"] == before


async def test_removed_nodes_take_their_pods_along():
    cluster = Cluster()
    await cluster.client.create_raw(NODES, node("real", owner="another"))
    async with cluster.running():
        await cluster.client.create_raw(PODS, pod("web", "n0"), "default")
        await cluster.until(lambda: cluster.is_ready(cluster.pod("web")))
        pods = cluster.nodes.pods
    await remove_nodes(cluster.client, ["n0", "n1", "real", "missing"], OWNER, pods)
    assert [entry["metadata"]["name"] for entry in cluster.api.store.list(NODES)] == ["real"]
    assert cluster.pod("web") is None
