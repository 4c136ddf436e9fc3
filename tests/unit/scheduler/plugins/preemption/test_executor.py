"""PreemptionExecutor: eviction of victims, and its failures."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kubeloop.kube.errors import Conflict, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import ApiStatus, convert
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.fit_error import NodeToStatus
from kubeloop.scheduler.plugins.preemption.default_preemption import DefaultPreemption
from kubeloop.scheduler.plugins.preemption.executor import PreemptionExecutor, Preemptor


class EvictionMetrics:
    """Metrics that record the number of victims and the results of evictions."""

    def __init__(self) -> None:
        self.victims: list[int] = []
        self.evictions: list[str] = []
        self.seconds: list[float] = []

    def preemption_victims(self, count: int) -> None:
        self.victims.append(count)

    def victims_evicted(self, result: str, seconds: float) -> None:
        self.evictions.append(result)
        self.seconds.append(seconds)


def post_filter(plugin_cluster: Any, node: Any, pod: Any, **gates: bool) -> tuple[Any, DefaultPreemption, PodInfo, Any]:
    """Return the last item: the result of post_filter for a pod that needs the room of both pods on the only node."""
    cluster = plugin_cluster(
        [node("a")], [pod("low-1", "a", cpu="2", priority=1), pod("low-2", "a", cpu="2", priority=2)], gates
    )
    new = PodInfo(pod("high", cpu="4", priority=100))
    plugin: DefaultPreemption = cluster.framework.plugins["DefaultPreemption"]
    state = CycleState()
    cluster.framework.filters.run_pre_filter(state, new, cluster.snapshot)
    status = cluster.run_filters_with_nominated_pods(state, new, cluster.snapshot.node_infos[0])
    statuses = NodeToStatus(cluster.snapshot)
    statuses.set(cluster.snapshot.node_infos[0].name, status)
    return cluster, plugin, new, plugin.post_filter(state, new, cluster.snapshot, statuses)


def preempt(plugin_cluster: Any, node: Any, pod: Any) -> tuple[Any, DefaultPreemption, PodInfo]:
    cluster, plugin, new, (result, rejected) = post_filter(plugin_cluster, node, pod)
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
    assert event.related.metadata.name == "high"
    assert plugin.pre_enqueue(new.pod) is None
    assert cluster.activated == []
    assert cluster.metrics.evictions == ["success"]


async def test_missing_victim_is_not_a_failure(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster, plugin, new = preempt(plugin_cluster, node, pod)
    cluster.client.failures = [NotFound(ApiStatus(code=404)), NotFound(ApiStatus(code=404))]
    await cluster.spawned[0]
    assert cluster.activated == []
    assert cluster.recorder.events == [], "no pod was preempted"
    assert plugin.pre_enqueue(new.pod) is None


async def test_pod_is_activated_if_others_delete_its_victims_first(plugin_cluster: Any, node: Any, pod: Any) -> None:
    """The deletion events came while PreEnqueue rejected the pod, and no other event follows."""
    cluster, plugin, new = preempt(plugin_cluster, node, pod)
    for key in list(cluster.pods):
        cluster.pods.remove(key)
    assert plugin.pre_enqueue(new.pod) is not None
    await cluster.spawned[0]
    assert cluster.activated == [new.key]
    assert plugin.pre_enqueue(new.pod) is None
    assert not plugin._executor._rejected, "nothing remains of the preemptor"


async def test_pod_that_was_not_rejected_keeps_its_backoff_if_others_delete_its_victims(
    plugin_cluster: Any, node: Any, pod: Any
) -> None:
    """The deletion events moved it to the backoff queue, where no PreEnqueue plugin ran."""
    cluster, _plugin, _new = preempt(plugin_cluster, node, pod)
    for key in list(cluster.pods):
        cluster.pods.remove(key)
    await cluster.spawned[0]
    assert cluster.activated == []


async def test_pod_waits_for_the_event_of_a_victim_that_others_delete(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster, _plugin, _new = preempt(plugin_cluster, node, pod)
    cluster.client.failures = [NotFound(ApiStatus(code=404)), NotFound(ApiStatus(code=404))]
    first, *_ = cluster.pods
    cluster.pods.remove(first)
    await cluster.spawned[0]
    assert cluster.activated == []


async def test_terminating_victims_are_not_deleted_again(plugin_cluster: Any, node: Any, pod: Any) -> None:
    """If there are no others, nominations of pods of lower priority stay, too, and no victims are counted."""
    terminating = pod("low-1", "a", cpu="2", priority=1)
    metadata = msgspec.structs.replace(terminating.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    terminating = msgspec.structs.replace(terminating, metadata=metadata)
    cluster = plugin_cluster([node("a")], [terminating, pod("low-2", "a", cpu="2", priority=1)])
    nominate(cluster, pod)
    cluster.metrics = EvictionMetrics()
    deleted, running = cluster.snapshot.node_infos[0].pods.values()
    executor = PreemptionExecutor(cluster, "DefaultPreemption")
    preemptor = Preemptor.of_pod(PodInfo(pod("high", cpu="4", priority=100)))
    executor.start(preemptor, "a", [deleted])
    assert cluster.spawned == []
    assert not executor.rejects("high")
    assert cluster.metrics.victims == []
    executor.start(preemptor, "a", [deleted, running])
    assert cluster.metrics.victims == [2]
    await cluster.spawned[0]
    assert [(request[0], request[3]) for request in cluster.client.requests] == [
        ("patch", "nominated"),
        ("patch", "low-2"),
        ("delete", "low-2"),
    ]


async def test_victim_without_binding_is_stopped_not_deleted(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster, plugin, new = preempt(plugin_cluster, node, pod)
    cluster.unbound = {victim.uid for victim in cluster.snapshot.node_infos[0].pods.values()}
    await cluster.spawned[0]
    assert cluster.client.requests == []
    assert {event.message for event in cluster.recorder.events} == {
        "Preempted by pod high on node a (in kube-scheduler memory)."
    }
    assert plugin.pre_enqueue(new.pod) is None


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


@pytest.mark.parametrize("succeeded", range(4))
@pytest.mark.parametrize(("stored_uid", "activated"), [("", ["default/high"]), ("another", []), (None, [])])
async def test_conflict_is_a_failure_if_the_victim_exists(
    succeeded: int, stored_uid: str | None, activated: list[str], plugin_cluster: Any, node: Any, pod: Any
) -> None:
    """stored_uid: of the pod that the server has by this name: "" for the victim, None for no pod."""

    async def get(resource: Any, name: str, namespace: str, **options: Any) -> Any:
        if stored_uid is None:
            raise NotFound(ApiStatus(code=404))
        return pod(name, uid=stored_uid or name)

    cluster, plugin, new = preempt(plugin_cluster, node, pod)
    cluster.client.get = get
    cluster.client.failures = [None] * succeeded + [Conflict(ApiStatus(code=409))]
    await cluster.spawned[0]
    assert cluster.activated == activated
    assert plugin.pre_enqueue(new.pod) is None


async def test_failed_eviction_cancels_the_others(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")], [pod(f"low-{number}", "a", cpu="1", priority=1) for number in range(4)])
    executor = PreemptionExecutor(cluster, "DefaultPreemption")
    preemptor = Preemptor.of_pod(PodInfo(pod("high", cpu="4", priority=100)))
    executor.start(preemptor, "a", list(cluster.snapshot.node_infos[0].pods.values()))
    cluster.client.failures = [ServerUnreachable("no connection", maybe_applied=False)]
    cluster.client.delete = lambda *_, **__: asyncio.sleep(60)
    await cluster.spawned[0]
    assert cluster.activated == ["default/high"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_eviction_for_a_group_names_it_and_activates_its_pods_on_failure(
    plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster([node("a")], [pod("low", "a", priority=1)])
    group = convert(PodGroup, {"metadata": {"name": "g", "namespace": "default", "uid": "g-uid"}})
    members = [pod(name, priority=100, schedulerName="gangs") for name in ("m-1", "m-2")]
    executor = PreemptionExecutor(cluster, "DefaultPreemption")
    victims = list(cluster.snapshot.node_infos[0].pods.values())
    executor.start(Preemptor.of_group(group, members), "cluster", victims)
    assert executor.rejects("g-uid")
    await cluster.spawned[0]
    assert not executor.rejects("g-uid")
    (condition,) = cluster.client.requests[0][5]["status"]["conditions"]
    assert condition["message"] == "gangs: preempting to accommodate a higher priority podgroup"
    assert [event.message for event in cluster.recorder.events] == ["Preempted by podgroup g-uid on node cluster"]
    cluster.client.failures = [ServerUnreachable("no connection", maybe_applied=False)]
    executor.start(Preemptor.of_group(group, members), "cluster", victims)
    await cluster.spawned[1]
    assert cluster.activated == ["default/m-1", "default/m-2"]


def nominate(cluster: Any, pod: Any) -> None:
    """Nominate two pods to node "a", one of them with the priority of the preemptor."""
    for name, priority in (("nominated", 3), ("equal", 100)):
        nominated = pod(name, priority=priority, status={"nominatedNodeName": "a"})
        cluster.pods.put(nominated.key, nominated)
        cluster.nominator.add(PodInfo(nominated), "a")


async def test_without_async_preemption_post_filter_waits_for_evictions(
    plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster, plugin, new, outcome = post_filter(plugin_cluster, node, pod, SchedulerAsyncPreemption=False)
    nominate(cluster, pod)
    assert plugin.pre_enqueue(new.pod) is None
    cluster.metrics = EvictionMetrics()
    result, rejected = await outcome
    assert cluster.metrics.victims == [2]
    assert (rejected, result.nominated_node_name, result.victims) == (None, "a", 2)
    assert cluster.spawned == []
    requests = [(request[0], request[3]) for request in cluster.client.requests]
    assert sorted(requests[:4]) == [("delete", "low-1"), ("delete", "low-2"), ("patch", "low-1"), ("patch", "low-2")]
    assert requests[4:] == [("patch", "nominated")], "nominations are cleared after the evictions"
    assert cluster.client.requests[4][5]["status"] == {"nominatedNodeName": None}


async def test_nominations_are_cleared_by_the_dispatcher_of_api_calls(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cleared: list[Any] = []

    class Cacher:
        def patch_pod_status(self, pod: Any, **changes: Any) -> None:
            cleared.append((pod.metadata.name, changes))

    cluster, _, _, outcome = post_filter(plugin_cluster, node, pod, SchedulerAsyncPreemption=False)
    nominate(cluster, pod)
    cluster.api_cacher = Cacher()
    await outcome
    assert cleared == [("nominated", {"nominated_node_name": ""})]
    assert len(cluster.client.requests) == 4


async def test_without_async_preemption_a_failed_eviction_fails_the_attempt(
    plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster, _, _, outcome = post_filter(plugin_cluster, node, pod, SchedulerAsyncPreemption=False)
    cluster.client.failures = [ServerUnreachable("no connection", maybe_applied=False)]
    result, status = await outcome
    assert result is None
    assert (status.code, status.reasons) == (Code.ERROR, ("preemption: no connection",))
    assert cluster.activated == []


async def test_without_async_preemption_uncleared_nominations_are_no_failure(
    plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster, _, _, outcome = post_filter(plugin_cluster, node, pod, SchedulerAsyncPreemption=False)
    nominate(cluster, pod)
    cluster.client.failures = [None] * 4 + [ServerUnreachable("no connection", maybe_applied=False)]
    _, status = await outcome
    assert status is None
    assert len(cluster.client.requests) == 5


@pytest.mark.parametrize(("enabled", "count"), [(True, 1), (False, 0)])
def test_deleted_pods_concern_preemption_only_if_it_gates_pods(enabled: bool, count: int, plugin_cluster: Any) -> None:
    cluster = plugin_cluster(feature_gates={"SchedulerAsyncPreemption": enabled})
    assert len(cluster.framework.plugins["DefaultPreemption"].events_to_register()) == count


async def test_preemptor_is_queued_by_the_deletion_of_the_last_victim(plugin_cluster: Any, node: Any, pod: Any) -> None:
    """PreEnqueue rejects it until then: it would otherwise be scheduled before there is room."""
    cluster, plugin, new = preempt(plugin_cluster, node, pod)
    rejected: list[tuple[str, bool]] = []
    delete = cluster.client.delete

    async def record(resource: Any, name: str, namespace: str = "", **options: Any) -> None:
        rejected.append((name, plugin.pre_enqueue(new.pod) is not None))
        await delete(resource, name, namespace, **options)

    cluster.client.delete = record
    await cluster.spawned[0]
    assert rejected == [("low-2", True), ("low-1", False)]


@pytest.mark.parametrize("fails", [False, True])
async def test_time_of_evictions_is_measured(fails: bool, plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster, _plugin, _new = preempt(plugin_cluster, node, pod)
    cluster.metrics = metrics = EvictionMetrics()
    delete = cluster.client.delete

    async def delete_slowly(*arguments: Any, **options: Any) -> None:
        cluster.clock.moment += timedelta(seconds=3)
        await delete(*arguments, **options)

    cluster.client.delete = delete_slowly
    if fails:
        cluster.client.failures = [None, ServerUnreachable("no response", maybe_applied=True)]
    await cluster.spawned[0]
    assert metrics.evictions == ["error" if fails else "success"]
    assert metrics.seconds == [3.0 if fails else 6.0]
