"""PreemptionExecutor: eviction of victims, and its failures."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kubeloop.kube.errors import NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import Status
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.plugins.default_preemption import DefaultPreemption
from kubeloop.scheduler.plugins.preemption_executor import PreemptionExecutor


class EvictionMetrics:
    """Metrics that record the results of evictions."""

    def __init__(self) -> None:
        self.evictions: list[str] = []

    def victims_evicted(self, result: str, seconds: float) -> None:
        self.evictions.append(result)


def preempt(plugin_cluster: Any, node: Any, pod: Any) -> tuple[Any, DefaultPreemption, PodInfo]:
    cluster = plugin_cluster(
        [node("a")], [pod("low-1", "a", cpu="2", priority=1), pod("low-2", "a", cpu="2", priority=2)]
    )
    new = PodInfo(pod("high", cpu="4", priority=100))
    plugin: DefaultPreemption = cluster.framework.plugins["DefaultPreemption"]
    state = CycleState()
    cluster.framework.filters.run_pre_filter(state, new, cluster.snapshot)
    status = cluster.run_filters_with_nominated_pods(state, new, cluster.snapshot.node_infos[0])
    statuses = type("Statuses", (), {"get": lambda _, name: status, "nodes_with_code": lambda _, code: ["a"]})()
    result, rejected = plugin.post_filter(state, new, cluster.snapshot, statuses)
    assert rejected is None
    assert result is not None
    assert result.nominated_node_name == "a"
    return cluster, plugin, new


async def test_victims_get_condition_then_delete_then_event(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster, plugin, new = preempt(plugin_cluster, node, pod)
    gated = plugin.pre_enqueue(new.pod)
    assert gated is not None
    assert gated.reasons == ("waiting for the preemption for this pod to be finished",)
    cluster.metrics = EvictionMetrics()
    await cluster.spawned[0]
    assert [(request[0], request[3]) for request in cluster.client.requests] == [
        ("patch", "low-2"),
        ("delete", "low-2"),
        ("patch", "low-1"),
        ("delete", "low-1"),
    ]
    (condition,) = cluster.client.requests[0][5]["status"]["conditions"]
    assert condition["type"] == "DisruptionTarget"
    assert condition["reason"] == "PreemptionByScheduler"
    assert condition["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
    event = cluster.recorder.events[0]
    assert event.regarding.metadata.name == "low-2"
    assert event[:3] == ("Normal", "Preempted", "Preempted by pod high on node a")
    assert plugin.pre_enqueue(new.pod) is None
    assert cluster.activated == []
    assert cluster.metrics.evictions == ["success"]


async def test_missing_victim_is_not_a_failure(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster, plugin, new = preempt(plugin_cluster, node, pod)
    cluster.client.failures = [NotFound(Status(code=404)), NotFound(Status(code=404))]
    await cluster.spawned[0]
    assert cluster.activated == []
    assert cluster.recorder.events == [], "no pod was preempted"
    assert plugin.pre_enqueue(new.pod) is None


async def test_terminating_victim_is_not_deleted_again(plugin_cluster: Any, node: Any, pod: Any) -> None:
    terminating = pod("low-1", "a", cpu="4", priority=1)
    metadata = msgspec.structs.replace(terminating.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    cluster = plugin_cluster([node("a")], [msgspec.structs.replace(terminating, metadata=metadata)])
    victim = next(iter(cluster.snapshot.node_infos[0].pods.values()))
    executor = PreemptionExecutor(cluster, "DefaultPreemption")
    executor.start(PodInfo(pod("high", cpu="4", priority=100)), "a", [victim])
    await cluster.spawned[0]
    assert cluster.client.requests == []
    assert cluster.recorder.events == []


@pytest.mark.parametrize("succeeded", range(4))
async def test_failed_preemption_activates_the_pod(succeeded: int, plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster, plugin, new = preempt(plugin_cluster, node, pod)
    cluster.metrics = metrics = EvictionMetrics()
    cluster.client.failures = [None] * succeeded + [ServerUnreachable("no connection", maybe_applied=False)]
    await cluster.spawned[0]
    assert len(cluster.client.requests) == succeeded + 1
    assert cluster.activated == ["default/high"]
    assert plugin.pre_enqueue(new.pod) is None
    assert metrics.evictions == ["error"]


async def test_failed_eviction_cancels_the_others(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")], [pod(f"low-{number}", "a", cpu="1", priority=1) for number in range(4)])
    executor = PreemptionExecutor(cluster, "DefaultPreemption")
    executor.start(PodInfo(pod("high", cpu="4", priority=100)), "a", list(cluster.snapshot.node_infos[0].pods.values()))
    cluster.client.failures = [ServerUnreachable("no connection", maybe_applied=False)]
    cluster.client.delete = lambda *_, **__: asyncio.sleep(60)
    await cluster.spawned[0]
    assert cluster.activated == ["default/high"]
    assert asyncio.all_tasks() == {asyncio.current_task()}
