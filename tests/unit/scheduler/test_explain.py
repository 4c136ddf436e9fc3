"""What operators are told: the dump, its comparison with the API server, and why a pod is pending."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.kube.resources import NODES, PODS
from kubeloop.scheduler.debug import compare, dump, dump_text
from kubeloop.scheduler.explain import explain

pytestmark = pytest.mark.virtual_time


async def test_every_obstacle_of_every_node_is_named(cluster, scheduling):
    cluster.node("cordoned", cpu="1", unschedulable=True)
    cluster.node("tainted", taints=[{"key": "gpu", "effect": "NoSchedule"}])
    async with scheduling() as scheduler:
        cluster.pod("p", cpu="2")
        await asyncio.sleep(0.5)
        told = explain(scheduler, "default/p")
    assert told.queue == "unschedulable"
    assert told.attempts == 1
    plugins = {each.node: [obstacle.plugin for obstacle in each.obstacles] for each in told.nodes}
    assert plugins == {"cordoned": ["NodeUnschedulable", "NodeResourcesFit"], "tainted": ["TaintToleration"]}
    assert told.message == (
        "0/2 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable."
    )
    assert told.shortages == {"cpu": 1000}
    assert "add a toleration to the pod, or remove a taint from a node" in told.advice
    assert told.preemption.startswith("preemption cannot help")


async def test_it_is_said_where_preemption_would_help(cluster, scheduling):
    cluster.node("n", cpu="1")
    cluster.pod("low", cpu="1", nodeName="n", priority=1)
    async with scheduling() as scheduler:
        cluster.pod("high", cpu="1", priority=10, schedulingGates=[{"name": "later"}])
        await asyncio.sleep(0.1)
        assert explain(scheduler, "default/high").summary == "the pod is held back by SchedulingGates"
        cluster.pod("waits", cpu="1", priority=5, preemptionPolicy="Never")
        await asyncio.sleep(0.1)
        told = explain(scheduler, "default/waits")
        assert [each.preemption_helps for each in told.nodes] == [True]
        assert told.preemption == "the pod may not preempt others (preemptionPolicy: Never)"


async def test_pods_that_do_not_wait_are_explained_too(cluster, scheduling):
    cluster.node("n")
    async with scheduling() as scheduler:
        cluster.pod("bound")
        cluster.pod("theirs", schedulerName="theirs")
        await asyncio.sleep(0.5)
        assert explain(scheduler, "default/bound").summary == "the pod is bound to n"
        assert explain(scheduler, "default/theirs").summary == 'the pod waits for another scheduler, "theirs"'
        assert explain(scheduler, "default/none").summary == "there is no such pod"


async def test_the_dump_shows_nodes_and_queues_and_the_comparison_finds_what_is_missed(cluster, scheduling):
    cluster.node("n", cpu="1")
    async with scheduling() as scheduler:
        cluster.pod("bound", cpu="1")
        await asyncio.sleep(0.5)
        cluster.pod("waits", cpu="1")
        cluster.pod("gated", schedulingGates=[{"name": "g"}])
        await asyncio.sleep(0.5)
        held = dump(scheduler.cache, scheduler.queue)
        assert [pod["name"] for node in held["nodes"] for pod in node["pods"]] == ["default/bound"]
        assert [pod["name"] for pod in held["queue"]["unschedulable"]] == ["default/waits"]
        assert [pod["gatedBy"] for pod in held["queue"]["gated"]] == ["SchedulingGates"]
        nodes, pods = cluster.informer(NODES).store, cluster.informer(PODS).store
        same = compare(scheduler.cache, scheduler.queue, nodes.list(), pods.list())
        assert not same
        differences = compare(scheduler.cache, scheduler.queue, [], pods.list()[1:])
        assert differences.redundant_nodes == ("n",)
        assert differences.redundant_pods == ("default/bound",)
        assert "default/waits" in dump_text(scheduler.cache, scheduler.queue, differences)
        await asyncio.sleep(0)
        scheduler.queue.delete(pods.get("default/waits"))
        assert compare(scheduler.cache, scheduler.queue, nodes.list(), pods.list()).missed_pods == ("default/waits",)
