"""Cache debugger: the dump of the cache and queue, and its comparison with the API server."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.explain.cache_debugger import CacheDump, compare, comparison_text

pytestmark = pytest.mark.virtual_time


async def test_dump_and_comparison(cluster, scheduling):
    cluster.node("n", cpu="1")
    async with scheduling() as scheduler:
        cluster.pod("bound", cpu="1")
        await asyncio.sleep(0.5)
        cluster.pod("pending", cpu="1")
        cluster.pod("gated", schedulingGates=[{"name": "g"}])
        await asyncio.sleep(0.5)
        held = CacheDump(scheduler.cache, scheduler.queue)
        assert [pod["name"] for node in held.nodes() for pod in node["pods"]] == ["default/bound"]
        queued = held.queue_document(held.queued())
        assert [pod["name"] for pod in queued["unschedulable"]] == ["default/pending"]
        assert [pod["gatedBy"] for pod in queued["gated"]] == ["SchedulingGates"]
        pods = cluster.pods()
        by_uid = {pod.metadata.uid: pod for pod in pods}
        same = compare(scheduler.cache, scheduler.queue, {"n"}, by_uid)
        assert not same
        differences = compare(scheduler.cache, scheduler.queue, set(), {pod.metadata.uid: pod for pod in pods[1:]})
        assert differences.redundant_nodes == ("n",)
        assert differences.redundant_pods == ("default/bound",)
        assert not differences.persisting(same)
        assert differences.persisting(differences) == differences
        assert comparison_text(same) == "The cache agrees with the API server"
        assert "\n  redundantPods: default/bound" in comparison_text(differences)
        assert any("unschedulable: default/pending attempts 1" in line for line in held.lines())
        await asyncio.sleep(0)
        scheduler.queue.delete(next(pod for pod in pods if pod.metadata.name == "pending"))
        assert compare(scheduler.cache, scheduler.queue, {"n"}, by_uid).missed_pods == ("default/pending",)


async def test_pods_of_all_queues_are_known(cluster, scheduling):
    async with scheduling() as scheduler:
        cluster.pod("p", cpu="1")
        pods = {pod.metadata.uid: pod for pod in cluster.pods()}
        while not scheduler.queue.pending_pods().active:
            await asyncio.sleep(0)
        assert not compare(scheduler.cache, scheduler.queue, set(), pods)


async def test_dump_is_consistent_with_its_start(cluster, scheduling):
    cluster.node("n", cpu="1")
    cluster.pod("existing", cpu="1", nodeName="n")
    async with scheduling() as scheduler:
        cluster.pod("pending", cpu="1")
        await asyncio.sleep(0.5)
        held = CacheDump(scheduler.cache, scheduler.queue)
        nodes, in_flight = list(held.nodes()), held.queue_document(held.queued())["inFlight"]
        cluster.delete_pod("default/existing")
        await asyncio.sleep(3)
        assert list(held.nodes()) == nodes
        assert held.queue_document(held.queued())["inFlight"] == in_flight
        assert [name for name, _ in held.queued()] == ["unschedulable"]
        assert list(CacheDump(scheduler.cache, scheduler.queue).nodes()) != nodes


async def test_dump_names_assumed_pods(cluster, scheduling):
    cluster.node("n")
    dumps = []
    async with scheduling() as scheduler:
        cluster.pod("bound")
        await asyncio.sleep(0.5)
        cluster.server.transport.on_send = lambda request: (
            dumps.append(CacheDump(scheduler.cache, scheduler.queue)) if request.path.endswith("/binding") else None
        )
        cluster.pod("assumed")
        await asyncio.sleep(0.5)
    (dump,) = dumps
    (node,) = dump.nodes()
    assert {pod["name"]: pod["assumed"] for pod in node["pods"]} == {"default/bound": False, "default/assumed": True}
    lines = [line for line in dump.lines() if line.startswith("  pod ")]
    assert {line.split()[1]: line.endswith(" assumed") for line in lines} == {
        "default/bound": False,
        "default/assumed": True,
    }


async def test_lines_of_nominated_pods_and_pods_in_flight(cluster, scheduling):
    cluster.node("n", cpu="1")
    async with scheduling() as scheduler:
        cluster.pod("big", cpu="2")
        await asyncio.sleep(0.5)
        (big,) = cluster.pods()
        scheduler.queue.nominator.add(PodInfo(big), "n")
        scheduler.queue.in_flight.start("uid", "default/flying")
        lines = [*CacheDump(scheduler.cache, scheduler.queue).lines()]
    assert lines[2:4] == ["  nominated default/big", "Dump of scheduling queue"]
    assert lines[-1] == "in flight: default/flying"
