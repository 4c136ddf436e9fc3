"""The plugin handle: what it shares with other profiles, and its own framework."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config.types import Profile
from kubeloop.scheduler.context import SchedulerContext
from kubeloop.scheduler.framework.waiting_pods import WaitingPods
from kubeloop.scheduler.plugin_handle import PluginHandle, SharedState
from kubeloop.scheduler.plugins.registry import IN_TREE_PLUGINS
from support.scheduling.plugin_cluster import PluginCluster, make_node, make_pod


@pytest.fixture
def cluster() -> PluginCluster:
    return PluginCluster([make_node("n")])


@pytest.fixture
def handle(cluster: PluginCluster) -> PluginHandle:
    context = SchedulerContext(cluster.client, cluster.clock, cluster.rng, lambda _: cluster.recorder, cluster.traces)
    shared = SharedState(
        snapshot=cluster.snapshot,
        listers=cluster.listers,
        extenders=(),
        nominator=cluster.nominator,
        waiting_pods=WaitingPods(),
        spawn=cluster.spawn,
        activate=cluster.activate,
        cluster_devices=cluster.cluster_devices,
        api_cacher=None,
        pod_groups=cluster.pod_groups,
    )
    return PluginHandle(Profile(), context, shared, IN_TREE_PLUGINS, class_cache=True)


def put(cluster: PluginCluster, name: str, **spec: Any) -> PodInfo:
    pod = make_pod(name, **spec)
    cluster.pods.put(pod.key, pod)
    return PodInfo(pod)


def test_filters_and_dry_runs_include_nominated_pods(cluster: PluginCluster, handle: PluginHandle) -> None:
    pod, state = put(cluster, "p", cpu="2"), CycleState()
    handle.framework.filters.run_pre_filter(state, pod, cluster.snapshot)
    node = cluster.snapshot.node_infos[0]
    assert handle.run_filters_with_nominated_pods(state, pod, node) is None
    cluster.nominator.add(put(cluster, "nominated", cpu="3"), "n")
    assert handle.nominator.node_of("nominated") == "n"
    expected = handle.run_filters_with_nominated_pods(state, pod, node)
    assert expected is not None
    assert expected.reasons == ("Insufficient cpu",)
    assert handle.dry_runs(state, pod)(node).run_filters() == expected


def test_added_and_removed_pods_update_cycle_state(cluster: PluginCluster, handle: PluginHandle) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pod, other, state = put(cluster, "p", affinity=affinity), put(cluster, "db", labels={"app": "db"}), CycleState()
    handle.framework.filters.run_pre_filter(state, pod, cluster.snapshot)
    node = cluster.snapshot.node_infos[0]
    assert handle.run_add_pod(state, pod, other, node) is None
    assert handle.framework.node_filters.run_filters_on_node(state, pod, node) is not None
    assert handle.run_remove_pod(state, pod, other, node) is None
    assert handle.framework.node_filters.run_filters_on_node(state, pod, node) is None


def test_activate_passes_the_pods_to_the_scheduler(cluster: PluginCluster, handle: PluginHandle) -> None:
    handle.activate([put(cluster, "p").pod])
    assert cluster.activated == ["default/p"]


async def test_spawned_work_runs_in_the_scheduler(cluster: PluginCluster, handle: PluginHandle) -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("work")

    handle.spawn(work(), "work")
    (spawned,) = cluster.spawned
    await spawned
    assert done == ["work"]
    assert handle.waiting_pod("p") is None
