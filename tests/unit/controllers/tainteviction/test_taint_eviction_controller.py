"""Taint eviction controller: Pods are evicted by NoExecute taints that they do not tolerate."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.controllers.tainteviction.taint_eviction_controller import TaintEvictionController
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.resources import NODES, PODS
from support.simulation.simulated_cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
TAINT = {"key": "maintenance", "value": "soon", "effect": "NoExecute"}


def cluster_with_controller() -> SimulatedCluster:
    return SimulatedCluster(controllers=[TaintEvictionController])


async def test_no_execute_taint_evicts_pods_after_toleration_seconds():
    async with cluster_with_controller().running() as cluster:
        cluster.bind("intolerant")
        cluster.bind("tolerant", tolerations=[{"key": "maintenance", "operator": "Exists"}])
        toleration = {"key": "maintenance", "operator": "Exists", "tolerationSeconds": 60}
        cluster.bind("tolerant-60s", tolerations=[toleration])
        cluster.bind("other-node", node="node-1")
        await asyncio.sleep(5)
        cluster.change_node("node-0", taints=[TAINT])
        await asyncio.sleep(1)
        assert cluster.pod("intolerant") is None
        assert cluster.pod("tolerant-60s") is not None
        await asyncio.sleep(61)
        assert cluster.pod("tolerant-60s") is None
        assert cluster.ready("tolerant")
        assert cluster.ready("other-node")
        assert ("TaintManagerEviction", "Marking for deletion Pod default/tolerant-60s") in cluster.events()


async def test_eviction_is_cancelled_when_taint_is_removed():
    async with cluster_with_controller().running() as cluster:
        cluster.bind(tolerations=[{"operator": "Exists", "tolerationSeconds": 60}])
        await asyncio.sleep(5)
        cluster.change_node("node-0", taints=[TAINT])
        await asyncio.sleep(30)
        cluster.change_node("node-0", taints=[])
        await asyncio.sleep(300)
        assert cluster.ready()
        assert ("TaintManagerEviction", "Cancelling deletion of Pod default/web") in cluster.events()


async def test_pod_that_is_bound_to_a_tainted_node_is_evicted():
    async with cluster_with_controller().running() as cluster:
        cluster.change_node("node-0", taints=[TAINT])
        await asyncio.sleep(1)
        cluster.bind()
        await asyncio.sleep(5)
        assert cluster.pod() is None


async def test_untolerated_taint_evicts_at_once_a_pod_with_a_later_eviction():
    async with cluster_with_controller().running() as cluster:
        cluster.bind(tolerations=[{"key": "maintenance", "operator": "Exists", "tolerationSeconds": 600}])
        await asyncio.sleep(5)
        cluster.change_node("node-0", taints=[TAINT])
        await asyncio.sleep(5)
        assert cluster.ready()
        cluster.change_node("node-0", taints=[TAINT, {"key": "other", "effect": "NoExecute"}])
        await asyncio.sleep(2)
        assert cluster.pod() is None


async def test_evicted_pod_is_marked_once_while_it_terminates():
    async with cluster_with_controller().running() as cluster:
        cluster.bind(finalizers=("example.com/hold",))
        await asyncio.sleep(5)
        cluster.change_node("node-0", taints=[TAINT])
        await asyncio.sleep(60)
        cluster.change_node("node-0", taints=[TAINT, {"key": "other", "effect": "NoExecute"}])
        await asyncio.sleep(60)
        assert cluster.conditions()["DisruptionTarget"] == ("True", "DeletionByTaintManager")
        assert sum(message.startswith("Marking") for _, message in cluster.events()) == 1


async def test_failed_eviction_is_retried(fake_apiserver, start):
    fake_apiserver.add(PODS, "web")
    pod = fake_apiserver.store.get(PODS, "ns", "web")
    fake_apiserver.store.update(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "node-0"}})
    fake_apiserver.transport.reject = lambda method, path: (
        errors.forbidden(PODS, "", "no") if method in ("PATCH", "DELETE") else None
    )
    await start(fake_apiserver.informers, TaintEvictionController(fake_apiserver.context))
    node = fake_apiserver.add(NODES, "node-0")
    fake_apiserver.store.update(NODES, {**node, "spec": {"taints": [TAINT]}})
    await asyncio.sleep(30)
    assert fake_apiserver.names(PODS) == ["web"]
    fake_apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(1000)
    assert "deletionTimestamp" in fake_apiserver.store.get(PODS, "ns", "web")["metadata"]


async def test_evictions_and_their_delay_are_counted():
    async with cluster_with_controller().running() as cluster:
        cluster.bind()
        await asyncio.sleep(5)
        cluster.change_node("node-0", taints=[TAINT])
        await asyncio.sleep(1)
        assert cluster.server.metrics.values("taint_eviction_controller_pod_deletion") == {
            "s_total": 1,
            "_duration_seconds_count": 1,
        }


@pytest.mark.parametrize("taints", [[TAINT, {"key": "other", "effect": "NoExecute"}], []], ids=["more", "none"])
async def test_pod_is_evicted_once_when_taints_change_during_its_eviction(taints):
    async with cluster_with_controller().running() as cluster:
        cluster.server.transport.latency_seconds = 1.0
        for number in range(20):
            cluster.bind(f"web-{number}", finalizers=("example.com/hold",))
            await asyncio.sleep(10)
            cluster.change_node("node-0", taints=[TAINT])
            await asyncio.sleep(number / 10)  # most of the second changes are within the requests of the eviction
            for later in (taints, [TAINT], []):
                cluster.change_node("node-0", taints=later)
                await asyncio.sleep(10)
        assert cluster.server.metrics.values("taint_eviction_controller_pod_deletions") == {"_total": 20}
        messages = sorted(message for reason, message in cluster.events() if reason == "TaintManagerEviction")
        assert messages == sorted(f"Marking for deletion Pod default/web-{number}" for number in range(20))
