"""Several profiles in one scheduler, over the same nodes and pods."""

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


async def test_pod_is_scheduled_by_the_profile_it_names(cluster, scheduling):
    config = """
        profiles:
        - schedulerName: spreading
        - schedulerName: packing
          pluginConfig:
          - {name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}
          plugins: {score: {disabled: [{name: NodeResourcesBalancedAllocation}, {name: PodTopologySpread}]}}
        - schedulerName: untainted
          plugins: {filter: {disabled: [{name: TaintToleration}]}}
    """
    cluster.node("used", cpu="4")
    cluster.node("free", cpu="4")
    cluster.pod("existing", cpu="2", nodeName="used")
    async with scheduling(**profiles(config)):
        for name in ("spreading", "packing", "unknown"):
            cluster.pod(name, cpu="500m", schedulerName=name)
        await asyncio.sleep(0.5)
        cluster.node("tainted", cpu="64", taints=[{"key": "k", "effect": "NoSchedule"}])
        for name in ("spreading", "untainted"):
            cluster.pod(f"large-{name}", cpu="32", schedulerName=name)
        await asyncio.sleep(0.5)
    assert cluster.node_of("default/spreading") == "free"
    assert cluster.node_of("default/packing") == "used"
    assert cluster.node_of("default/unknown") == ""
    assert cluster.node_of("default/large-untainted") == "tainted"
    assert cluster.node_of("default/large-spreading") == ""


@pytest.mark.parametrize("first", ["near", "far"])
async def test_profiles_do_not_share_cached_scores(cluster, scheduling, first):
    """One existing pod requires web pods near it (hardPodAffinityWeight), another prefers none with weight 50."""
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
    cluster.node("with-terms")
    cluster.node("empty")
    cluster.pod("requiring", nodeName="with-terms", affinity=required)
    cluster.pod("avoiding", nodeName="with-terms", affinity=avoiding)
    async with scheduling(**profiles(config)):
        for name in (first, "far" if first == "near" else "near"):
            # deleted before the next pod is created, so that they do not count for it
            cluster.pod(name, schedulerName=name, metadata={"labels": {"app": "web"}})
            await asyncio.sleep(0.5)
            placed = cluster.node_of(f"default/{name}")
            assert placed == ("with-terms" if name == "near" else "empty"), name
            cluster.delete_pod(f"default/{name}")
            await asyncio.sleep(0.1)


async def test_events_carry_scheduler_name_of_profile_and_action(cluster, scheduling):
    config = """
        profiles:
        - schedulerName: default-scheduler
        - schedulerName: packing
    """
    cluster.node("n", cpu="1", pods=3)
    cluster.pod("victim", cpu="1")
    async with scheduling(**profiles(config)):
        await asyncio.sleep(0.1)
        cluster.pod("large", cpu="2", schedulerName="packing")
        cluster.pod("preemptor", cpu="1", schedulerName="packing", priority=10)
        await asyncio.sleep(0.5)
    origins = {
        (key, reason): (source, action)
        for (key, reason, _), source, action in zip(
            cluster.events, cluster.event_sources, cluster.event_actions, strict=True
        )
    }
    assert origins[("default/victim", "Scheduled")] == ("default-scheduler", "Binding")
    assert origins[("default/large", "FailedScheduling")] == ("packing", "Scheduling")
    assert origins[("default/victim", "Preempted")] == ("packing", "Preempting")  # the profile of the preemptor
    assert origins[("default/preemptor", "Scheduled")] == ("packing", "Binding")
