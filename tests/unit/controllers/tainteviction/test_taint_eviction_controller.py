"""Taint eviction controller: Pods are evicted by NoExecute taints that they do not tolerate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.controllers.tainteviction.taint_eviction_controller import TaintEvictionController
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.kube.objects.resources import NODES, PODS
from support.comparison import replay_server
from support.simulation.set_clock import SetClock
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


@asynccontextmanager
async def cluster_after_half_a_toleration() -> AsyncIterator[SimulatedCluster]:
    """A cluster whose node had a taint for 30 of the 60 seconds that its pod tolerates."""
    async with cluster_with_controller().running() as cluster:
        cluster.bind(tolerations=[{"operator": "Exists", "tolerationSeconds": 60}])
        await asyncio.sleep(5)
        cluster.change_node("node-0", taints=[TAINT])
        await asyncio.sleep(30)
        cluster.change_node("node-0", taints=[])
        yield cluster


async def test_eviction_is_cancelled_when_taint_is_removed():
    async with cluster_after_half_a_toleration() as cluster:
        await asyncio.sleep(300)
        assert cluster.ready()
        assert ("TaintManagerEviction", "Cancelling deletion of Pod default/web") in cluster.events()


async def test_toleration_starts_anew_when_taint_returns():
    async with cluster_after_half_a_toleration() as cluster:
        await asyncio.sleep(1)
        cluster.change_node("node-0", taints=[TAINT])
        await asyncio.sleep(55)
        assert cluster.ready()
        await asyncio.sleep(10)
        assert cluster.pod() is None


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


# --- events -----------------------------------------------------------------------------------------------------------


def node(name: str = "n", *taints: dict[str, Any], version: str = "1") -> Node:
    metadata = {"name": name, "uid": name, "resourceVersion": version}
    return convert(Node, {"metadata": metadata, "spec": {"taints": taints}})


def pod(node_name: str = "n", version: str = "1", **toleration: Any) -> Pod:
    """Return a Pod with one toleration of the taint; none without fields of it."""
    tolerations = [{"key": "maintenance", "operator": "Exists", **toleration}] if toleration else []
    metadata = {"name": "p", "namespace": "ns", "uid": "p", "resourceVersion": version}
    return convert(Pod, {"metadata": metadata, "spec": {"nodeName": node_name, "tolerations": tolerations}})


TAINTED, FREE = node("n", TAINT, version="2"), node("free")
FOREVER, MINUTE, HOUR = {"effect": "NoExecute"}, {"tolerationSeconds": 60}, {"tolerationSeconds": 3600}


@pytest.mark.parametrize(
    ("events", "calls"),
    [
        pytest.param([("ADDED", pod()), ("ADDED", node())], [], id="no taint"),
        pytest.param([("ADDED", pod()), ("ADDED", TAINTED)], [0.0], id="pod before the taint"),
        pytest.param([("ADDED", TAINTED), ("ADDED", pod())], [0.0], id="pod after the taint"),
        pytest.param([("ADDED", TAINTED), ("ADDED", pod(**MINUTE))], [60.0], id="tolerated for a minute"),
        pytest.param([("ADDED", TAINTED), ("ADDED", pod(**FOREVER))], [], id="tolerated"),
        pytest.param([("ADDED", TAINTED), ("ADDED", pod("free"))], [], id="another node"),
        pytest.param([("ADDED", pod(**MINUTE)), ("ADDED", TAINTED), ("MODIFIED", TAINTED)], [60.0], id="same taints"),
        pytest.param(
            [("ADDED", TAINTED), ("ADDED", pod("")), ("MODIFIED", pod("n", "2"))], [0.0], id="bound to a tainted node"
        ),
        pytest.param([("ADDED", TAINTED), ("ADDED", pod("")), ("MODIFIED", pod("free", "2"))], [], id="elsewhere"),
        pytest.param(
            [("ADDED", TAINTED), ("ADDED", pod(**FOREVER)), ("MODIFIED", pod("n", "2", **MINUTE))],
            [60.0],
            id="toleration was limited",
        ),
        pytest.param(
            [("ADDED", TAINTED), ("ADDED", pod(**MINUTE)), ("MODIFIED", pod("n", "2", **MINUTE))],
            [60.0],
            id="unchanged tolerations",
        ),
        pytest.param(
            [("ADDED", TAINTED), ("ADDED", pod(**MINUTE)), ("MODIFIED", pod("n", "2", **HOUR))],
            [60.0],
            id="the first time counts",
        ),
        pytest.param(
            [
                ("ADDED", TAINTED),
                ("ADDED", pod(**MINUTE)),
                ("MODIFIED", node("n", TAINT, {**TAINT, "key": "b"}, version="3")),
            ],
            [60.0, "Cancelling deletion of Pod ns/p", 0.0],
            id="a second taint, not tolerated",
        ),
        pytest.param(
            [("ADDED", TAINTED), ("ADDED", pod(**MINUTE)), ("MODIFIED", node(version="3"))],
            [60.0, "Cancelling deletion of Pod ns/p"],
            id="taint removed",
        ),
        pytest.param(
            [("ADDED", TAINTED), ("ADDED", pod(**MINUTE)), ("DELETED", pod("n", "2", **MINUTE))],
            [60.0, "Cancelling deletion of Pod ns/p"],
            id="pod deleted",
        ),
        pytest.param(
            [("ADDED", TAINTED), ("ADDED", pod()), ("DELETED", pod("n", "2"))], [0.0], id="deleted when it was due"
        ),
        pytest.param([("ADDED", TAINTED), ("DELETED", TAINTED), ("ADDED", pod())], [], id="node deleted"),
        pytest.param(
            [("ADDED", node("n", {**TAINT, "effect": "NoSchedule"})), ("ADDED", pod())], [], id="another effect"
        ),
    ],
)
async def test_events_plan_evictions(events, calls):
    queue, api = replay_server.RecordingQueue(), replay_server.ReplayServer({"state": {}})
    context = replay_server.replay_context(api, SetClock(datetime(2026, 1, 1, tzinfo=UTC)), queue)
    TaintEvictionController(context)
    informers = {resource.type: context.informers.informer(resource) for resource in (NODES, PODS)}
    informers[Node].apply("ADDED", FREE, 0)
    planned: list[float | str] = []
    for verb, obj in events:
        informers[type(obj)].apply(verb, obj, 0)
        planned += [event.message for event in context.events.events]
        planned += [call["after_seconds"] for call in queue.calls]
        queue.calls.clear()
        context.events.events.clear()
    assert planned == calls
