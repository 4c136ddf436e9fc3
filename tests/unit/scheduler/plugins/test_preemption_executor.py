"""What plugins write to the API: bindings, evictions, volumes."""

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


class Told:
    """Metrics that remember how preemptions went, and which stage of a pod's volumes failed."""

    def __init__(self) -> None:
        self.evictions: list[str] = []
        self.stages: list[str] = []

    def victims_evicted(self, result: str, seconds: float) -> None:
        self.evictions.append(result)

    def volume_stage_failed(self, stage: str) -> None:
        self.stages.append(stage)


def preempting(plugin_cluster: Any, node: Any, pod: Any) -> tuple[Any, DefaultPreemption, PodInfo]:
    cluster = plugin_cluster(
        [node("a")], [pod("low-1", "a", cpu="2", priority=1), pod("low-2", "a", cpu="2", priority=2)]
    )
    new = PodInfo(pod("high", cpu="4", priority=100))
    plugin: DefaultPreemption = cluster.framework.plugins["DefaultPreemption"]
    state = CycleState()
    cluster.framework.run_pre_filter(state, new, cluster.snapshot)
    status = cluster.run_filters_with_nominated_pods(state, new, cluster.snapshot.node_infos[0])
    statuses = type("Statuses", (), {"get": lambda _, name: status, "nodes_with_code": lambda _, code: ["a"]})()
    result, rejected = plugin.post_filter(state, new, cluster.snapshot, statuses)
    assert rejected is None
    assert result is not None
    assert result.nominated_node_name == "a"
    return cluster, plugin, new


async def test_victims_are_marked_then_deleted_and_told(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster, plugin, new = preempting(plugin_cluster, node, pod)
    gated = plugin.pre_enqueue(new.pod)
    assert gated is not None
    assert gated.reasons == ("waiting for the preemption for this pod to be finished",)
    cluster.metrics = Told()
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
    assert cluster.recorder.events[0] == ("low-2", "Normal", "Preempted", "Preempted by pod high on node a")
    assert plugin.pre_enqueue(new.pod) is None
    assert cluster.activated == []
    assert cluster.metrics.evictions == ["success"]


async def test_a_victim_that_is_gone_already_is_no_failure(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster, plugin, new = preempting(plugin_cluster, node, pod)
    cluster.client.failures = [NotFound(Status(code=404)), NotFound(Status(code=404))]
    await cluster.spawned[0]
    assert cluster.activated == []
    assert cluster.recorder.events == [], "nobody was preempted"
    assert plugin.pre_enqueue(new.pod) is None


async def test_a_victim_on_its_way_out_is_not_asked_to_leave_again(plugin_cluster: Any, node: Any, pod: Any) -> None:
    leaving = pod("low-1", "a", cpu="4", priority=1)
    metadata = msgspec.structs.replace(leaving.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    cluster = plugin_cluster([node("a")], [msgspec.structs.replace(leaving, metadata=metadata)])
    victim = next(iter(cluster.snapshot.node_infos[0].pods.values()))
    evictions = PreemptionExecutor(cluster, "DefaultPreemption")
    evictions.start(PodInfo(pod("high", cpu="4", priority=100)), "a", [victim])
    await cluster.spawned[0]
    assert cluster.client.requests == []
    assert cluster.recorder.events == []


@pytest.mark.parametrize("answered", range(4))
async def test_a_pod_whose_preemption_failed_is_tried_again(
    answered: int, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster, plugin, new = preempting(plugin_cluster, node, pod)
    cluster.metrics = told = Told()
    cluster.client.failures = [None] * answered + [ServerUnreachable("gone", maybe_applied=False)]
    await cluster.spawned[0]
    assert len(cluster.client.requests) == answered + 1
    assert cluster.activated == ["default/high"]
    assert plugin.pre_enqueue(new.pod) is None
    assert told.evictions == ["error"]


async def test_when_one_victim_cannot_be_asked_to_go_nobody_goes_on_asking(
    plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster([node("a")], [pod(f"low-{number}", "a", cpu="1", priority=1) for number in range(4)])
    evictions = PreemptionExecutor(cluster, "DefaultPreemption")
    evictions.start(
        PodInfo(pod("high", cpu="4", priority=100)), "a", list(cluster.snapshot.node_infos[0].pods.values())
    )
    cluster.client.failures = [ServerUnreachable("gone", maybe_applied=False)]
    cluster.client.delete = lambda *_, **__: asyncio.sleep(60)
    await cluster.spawned[0]
    assert cluster.activated == ["default/high"]
    assert asyncio.all_tasks() == {asyncio.current_task()}
