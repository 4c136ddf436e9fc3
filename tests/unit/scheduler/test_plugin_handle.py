"""The plugin handle: calls reach the framework and the queue that are set after construction."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.plugin_handle import PluginHandle
from kubeloop.scheduler.queue.queueing_hints import QueueingHintMap, Registration
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue
from support.plugin_cluster import PluginCluster, make_node, make_pod


@pytest.fixture
def cluster() -> PluginCluster:
    return PluginCluster([make_node("n")])


@pytest.fixture
def handle(cluster: PluginCluster) -> PluginHandle:
    handle = PluginHandle(
        snapshot=cluster.snapshot,
        listers=cluster.listers,
        client=cluster.client,
        clock=cluster.clock,
        rng=cluster.rng,
        recorder=cluster.recorder,
        traces=cluster.traces,
        extenders=(),
        metrics=None,
        spawn=cluster.spawn,
    )
    handle.queue = SchedulingQueue(
        sort_key=lambda queued: queued.key,
        hint_maps={"default-scheduler": QueueingHintMap([Registration("NodeName", events.NODE_ADD, None)])},
        pre_enqueue={"default-scheduler": []},
        lookup=cluster.pods.get,
        now_ns=cluster.clock.time_ns,
    )
    cluster.nominator = handle.queue.nominator
    handle.framework = cluster.framework
    return handle


def put(cluster: PluginCluster, name: str, **spec: Any) -> PodInfo:
    pod = make_pod(name, **spec)
    cluster.pods.put(pod.key, pod)
    return PodInfo(pod)


def test_filters_and_dry_runs_include_nominated_pods(cluster: PluginCluster, handle: PluginHandle) -> None:
    pod, state = put(cluster, "p", cpu="2"), CycleState()
    handle.framework.run_pre_filter(state, pod, cluster.snapshot)
    node = cluster.snapshot.node_infos[0]
    assert handle.run_filters_with_nominated_pods(state, pod, node) is None
    handle.queue.nominator.add(put(cluster, "nominated", cpu="3"), "n")
    assert handle.nominator.node_of("nominated") == "n"
    expected = handle.run_filters_with_nominated_pods(state, pod, node)
    assert expected is not None
    assert expected.reasons == ("Insufficient cpu",)
    assert handle.dry_runs(state, pod)(node).run_filters() == expected


def test_added_and_removed_pods_update_cycle_state(cluster: PluginCluster, handle: PluginHandle) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pod, other, state = put(cluster, "p", affinity=affinity), put(cluster, "db", labels={"app": "db"}), CycleState()
    handle.framework.run_pre_filter(state, pod, cluster.snapshot)
    node = cluster.snapshot.node_infos[0]
    assert handle.run_add_pod(state, pod, other, node) is None
    assert handle.framework.run_filters_on_node(state, pod, node) is not None
    assert handle.run_remove_pod(state, pod, other, node) is None
    assert handle.framework.run_filters_on_node(state, pod, node) is None


def test_activate_moves_pod_to_active_queue(cluster: PluginCluster, handle: PluginHandle) -> None:
    handle.queue.add(put(cluster, "p").pod)
    queued = handle.queue.pop()
    assert queued is not None
    queued.unschedulable_plugins = {"NodeName"}
    handle.queue.add_unschedulable_if_not_present(queued)
    handle.activate([queued.pod])
    assert [active.key for active in handle.queue.active_pods()] == ["default/p"]


async def test_spawned_work_runs_in_the_scheduler(cluster: PluginCluster, handle: PluginHandle) -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("work")

    handle.spawn(work(), "work")
    (spawned,) = cluster.spawned
    await spawned
    assert done == ["work"]
    assert handle.waiting_pod("p") is None
