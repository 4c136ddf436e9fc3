"""Cache debugger: the dump of the cache and queue, and its comparison with the API server."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.kube.objects.resources import NODES, PODS
from kubeloop.scheduler.explain.cache_debugger import CacheDump, compare, comparison_text, dump, dump_text

pytestmark = pytest.mark.virtual_time


async def test_dump_and_comparison(cluster, scheduling):
    cluster.node("n", cpu="1")
    async with scheduling() as scheduler:
        cluster.pod("bound", cpu="1")
        await asyncio.sleep(0.5)
        cluster.pod("pending", cpu="1")
        cluster.pod("gated", schedulingGates=[{"name": "g"}])
        await asyncio.sleep(0.5)
        held = dump(scheduler.cache, scheduler.queue)
        assert [pod["name"] for node in held["nodes"] for pod in node["pods"]] == ["default/bound"]
        assert [pod["name"] for pod in held["queue"]["unschedulable"]] == ["default/pending"]
        assert [pod["gatedBy"] for pod in held["queue"]["gated"]] == ["SchedulingGates"]
        nodes, pods = cluster.informer(NODES).store, cluster.informer(PODS).store
        same = compare(scheduler.cache, scheduler.queue, nodes.list(), pods.list())
        assert not same
        differences = compare(scheduler.cache, scheduler.queue, [], pods.list()[1:])
        assert differences.redundant_nodes == ("n",)
        assert differences.redundant_pods == ("default/bound",)
        assert not differences.persisting(same)
        assert differences.persisting(differences) == differences
        assert comparison_text(same) == "The cache agrees with the API server"
        assert "\n  redundantPods: default/bound" in comparison_text(differences)
        assert "unschedulable: default/pending attempts 1" in dump_text(scheduler.cache, scheduler.queue)
        await asyncio.sleep(0)
        scheduler.queue.delete(pods.get("default/pending"))
        assert compare(scheduler.cache, scheduler.queue, nodes.list(), pods.list()).missed_pods == ("default/pending",)


async def test_dump_is_consistent_with_its_start(cluster, scheduling):
    cluster.node("n", cpu="1")
    cluster.pod("existing", cpu="1", nodeName="n")
    async with scheduling() as scheduler:
        cluster.pod("pending", cpu="1")
        await asyncio.sleep(0.5)
        held, before = CacheDump(scheduler.cache, scheduler.queue), dump(scheduler.cache, scheduler.queue)
        cluster.delete_pod("default/existing")
        await asyncio.sleep(3)
        assert list(held.nodes()) == before["nodes"]
        assert held.queue_document(held.queued())["inFlight"] == before["queue"]["inFlight"]
        assert [name for name, _ in held.queued()] == ["unschedulable"]
        assert dump(scheduler.cache, scheduler.queue)["nodes"] != before["nodes"]
