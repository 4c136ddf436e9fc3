"""Several profiles: several schedulers in one, over the same nodes and pods."""

from __future__ import annotations

import asyncio
import textwrap
from typing import Any

import pytest

from kubeloop.scheduler.config.load import load_configuration

pytestmark = pytest.mark.virtual_time

HOSTNAME = "kubernetes.io/hostname"


def profiles(text: str) -> dict[str, Any]:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    return {"profiles": load_configuration(head + textwrap.dedent(text)).profiles}


async def test_each_pod_is_scheduled_by_the_profile_it_names(cluster, scheduling):
    config = """
        profiles:
        - schedulerName: spreading
        - schedulerName: packing
          pluginConfig:
          - {name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}
          plugins: {score: {disabled: [{name: NodeResourcesBalancedAllocation}, {name: PodTopologySpread}]}}
        - schedulerName: careless
          plugins: {filter: {disabled: [{name: TaintToleration}]}}
    """
    cluster.node("used", cpu="4")
    cluster.node("free", cpu="4")
    cluster.pod("there", cpu="2", nodeName="used")
    async with scheduling(**profiles(config)):
        for name in ("spreading", "packing", "nobody"):
            cluster.pod(name, cpu="500m", schedulerName=name)
        await asyncio.sleep(0.5)
        cluster.node("tainted", cpu="64", taints=[{"key": "k", "effect": "NoSchedule"}])
        for name in ("spreading", "careless"):
            cluster.pod(f"large-{name}", cpu="32", schedulerName=name)
        await asyncio.sleep(0.5)
    assert cluster.node_of("default/spreading") == "free"
    assert cluster.node_of("default/packing") == "used"
    assert cluster.node_of("default/nobody") == ""
    assert cluster.node_of("default/large-careless") == "tainted"
    assert cluster.node_of("default/large-spreading") == ""


@pytest.mark.parametrize("first", ["near", "far"])
async def test_what_one_profile_has_computed_is_not_taken_for_anothers(cluster, scheduling, first):
    """An existing pod is required to be near web (hardPodAffinityWeight), another one prefers not to be, at 50."""
    config = """
        profiles:
        - schedulerName: near
          pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 100}}]
          plugins: &alone {score: {disabled: [{name: "*"}], enabled: [{name: InterPodAffinity}]}}
        - schedulerName: far
          pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 1}}]
          plugins: *alone
    """
    web = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}
    required = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [web]}}
    preferred = [{"weight": 50, "podAffinityTerm": web}]
    avoiding = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    cluster.node("friends")
    cluster.node("strangers")
    cluster.pod("friend", nodeName="friends", affinity=required)
    cluster.pod("foe", nodeName="friends", affinity=avoiding)
    async with scheduling(**profiles(config)):
        for name in (first, "far" if first == "near" else "near"):
            # Not web themselves in any way that the next one would see: they are gone before it comes.
            cluster.pod(name, schedulerName=name, metadata={"labels": {"app": "web"}})
            await asyncio.sleep(0.5)
            placed = cluster.node_of(f"default/{name}")
            assert placed == ("friends" if name == "near" else "strangers"), name
            cluster.delete_pod(f"default/{name}")
            await asyncio.sleep(0.1)
