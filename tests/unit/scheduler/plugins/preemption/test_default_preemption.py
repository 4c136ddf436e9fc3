"""DefaultPreemption: victims on a node, and the choice among candidates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kubeloop.kube.errors import ServerUnreachable
from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.results import unresolvable, unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.fit_error import NodeToStatus
from kubeloop.scheduler.metrics import SchedulerMetrics

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(("priority", "eligible"), [(9, False), (10, True)])
def test_terminating_victim_on_the_nominated_node_blocks_preemption(
    priority: int, eligible: bool, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    victim = pod("victim", "a", priority=priority, status={"conditions": [condition]})
    victim = msgspec.structs.replace(victim, metadata=msgspec.structs.replace(victim.metadata, deletion_timestamp=NOW))
    cluster = plugin_cluster([node("a")], [victim])
    plugin = cluster.framework.plugins["DefaultPreemption"]
    nominated = PodInfo(pod("p", priority=10, status={"nominatedNodeName": "a"}))
    statuses = NodeToStatus(cluster.snapshot)
    statuses.set("a", unschedulable("", "no room"))
    reason = plugin.ineligible_reason(nominated, cluster.snapshot, statuses)
    assert reason == ("" if eligible else "not eligible due to a terminating pod on the nominated node.")


def test_terminating_victim_on_an_unresolvable_node_does_not_block_preemption(
    plugin_cluster: Any, node: Any, pod: Any
) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    victim = pod("victim", "a", priority=1, status={"conditions": [condition]})
    victim = msgspec.structs.replace(victim, metadata=msgspec.structs.replace(victim.metadata, deletion_timestamp=NOW))
    cluster = plugin_cluster([node("a")], [victim])
    plugin = cluster.framework.plugins["DefaultPreemption"]
    nominated = PodInfo(pod("p", priority=10, status={"nominatedNodeName": "a"}))
    statuses = NodeToStatus(cluster.snapshot)
    statuses.set("a", unresolvable("", "another zone"))
    assert plugin.ineligible_reason(nominated, cluster.snapshot, statuses) == ""


def group_cluster(plugin_cluster: Any, node: Any, pod: Any, gates: dict[str, bool], **spec: Any) -> Any:
    """Return a cluster with the group "g" and a full node."""
    cluster = plugin_cluster([node("a")], [pod("low", "a", cpu="4", priority=1)], gates)
    metadata = {"name": "g", "namespace": "default", "uid": "uid-g"}
    cluster.put("pod_groups", convert(PodGroup, {"metadata": metadata, "spec": {"priority": 100} | spec}))
    return cluster


@pytest.mark.parametrize(
    ("gates", "group", "spec", "reason"),
    [
        pytest.param((), "g", {"schedulingConstraints": {}}, "", id="gates off"),
        pytest.param(("WorkloadAwarePreemption",), "", {}, "", id="no group"),
        pytest.param(
            ("WorkloadAwarePreemption",), "g", {}, "not eligible due to workload aware preemption enabled", id="group"
        ),
        pytest.param(("TopologyAwareWorkloadScheduling",), "g", {}, "", id="no constraints"),
        pytest.param(
            ("TopologyAwareWorkloadScheduling", "WorkloadAwarePreemption"),
            "g",
            {"schedulingConstraints": {"topology": [{"key": "rack"}]}},
            "not eligible due to placement-based pod group scheduling limitation",
            id="constraints",
        ),
        pytest.param(
            ("TopologyAwareWorkloadScheduling",), "gone", {}, "pod group for pod not found", id="unknown group"
        ),
    ],
)
def test_pods_of_groups_that_may_not_preempt_on_their_own(
    gates: tuple[str, ...], group: str, spec: Any, reason: str, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    enabled = dict.fromkeys(("GenericWorkload", "GangScheduling", *gates), True)
    cluster = group_cluster(plugin_cluster, node, pod, enabled, **spec)
    scheduling_group = {"podGroupName": group} if group else None
    info = PodInfo(pod("p", cpu="4", priority=100, schedulingGroup=scheduling_group))
    statuses = NodeToStatus(cluster.snapshot)
    statuses.set("a", unschedulable("", "no room"))
    state = CycleState()
    cluster.framework.filters.run_pre_filter(state, info, cluster.snapshot)
    plugin = cluster.framework.plugins["DefaultPreemption"]
    result, status = plugin.post_filter(state, info, cluster.snapshot, statuses)
    if reason:
        assert (result, status) == (None, unschedulable("DefaultPreemption", f"preemption: {reason}"))
    else:
        assert (result.nominated_node_name, status) == ("a", None)
    for work in cluster.spawned:
        work.close()


ASYNC = [pytest.param(True, id="in the background"), pytest.param(False, id="in the cycle")]


@pytest.mark.parametrize("in_background", ASYNC)
async def test_preemption_for_a_group_evicts_and_gates_its_pods(
    in_background: bool, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    gates = dict.fromkeys(("GenericWorkload", "GangScheduling", "WorkloadAwarePreemption"), True)
    cluster = group_cluster(plugin_cluster, node, pod, gates | {"SchedulerAsyncPreemption": in_background})
    plugin = cluster.framework.plugins["DefaultPreemption"]
    victims: list[int] = []
    cluster.metrics = type(
        "Metrics", (SchedulerMetrics,), {"preemption_victims": lambda _, count: victims.append(count)}
    )()
    members = [pod(name, cpu="2", schedulingGroup={"podGroupName": "g"}) for name in ("m-1", "m-2")]
    stranger = pod("s", schedulingGroup={"podGroupName": "other"})

    async def schedule() -> Status | None:
        node_info = cluster.snapshot.get("a")
        return None if not node_info.pods else unschedulable("", "no room")

    group = cluster.listers.pod_groups.get("default/g")
    assert await plugin.pod_group_post_filter(group, members, schedule) == (1, None)
    assert victims == [1]
    gated = [plugin.pre_enqueue(other) for other in (*members, stranger)]
    if in_background:
        assert [status and status.message for status in gated] == [
            *["waiting for the preemption for this pod group to be finished"] * 2,
            None,
        ]
        await cluster.spawned[0]
    assert [(request[0], request[3]) for request in cluster.client.requests] == [("patch", "low"), ("delete", "low")]
    assert [plugin.pre_enqueue(member) for member in members] == [None, None]


@pytest.mark.parametrize("in_background", ASYNC)
async def test_group_that_waits_for_terminating_victims_evicts_no_pod(
    in_background: bool, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    gates = dict.fromkeys(("GenericWorkload", "GangScheduling", "WorkloadAwarePreemption"), True)
    victim = pod("low", "a", priority=1)
    victim = msgspec.structs.replace(victim, metadata=msgspec.structs.replace(victim.metadata, deletion_timestamp=NOW))
    cluster = plugin_cluster([node("a")], [victim], gates | {"SchedulerAsyncPreemption": in_background})
    group = convert(PodGroup, {"metadata": {"name": "g", "namespace": "default"}, "spec": {"priority": 9}})
    plugin = cluster.framework.plugins["DefaultPreemption"]

    async def schedule() -> Status | None:
        return None if not cluster.snapshot.get("a").pods else unschedulable("", "no room")

    assert await plugin.pod_group_post_filter(group, [pod("m")], schedule) == (1, None)
    assert (cluster.spawned, cluster.client.requests) == ([], [])


async def test_group_without_victims_is_rejected(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = group_cluster(plugin_cluster, node, pod, {}, priority=1)
    plugin = cluster.framework.plugins["DefaultPreemption"]

    async def schedule() -> Status | None:
        raise AssertionError

    group = cluster.listers.pod_groups.get("default/g")
    victims, status = await plugin.pod_group_post_filter(group, [pod("m")], schedule)
    assert victims == 0
    assert status.message == "No preemption victims found for incoming preemptor"


async def test_failed_eviction_for_a_group_is_an_error(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = group_cluster(plugin_cluster, node, pod, {"SchedulerAsyncPreemption": False})
    plugin = cluster.framework.plugins["DefaultPreemption"]
    cluster.client.failures = [ServerUnreachable("no connection", maybe_applied=False)]

    async def schedule() -> Status | None:
        return None if not cluster.snapshot.get("a").pods else unschedulable("", "no room")

    group = cluster.listers.pod_groups.get("default/g")
    _, status = await plugin.pod_group_post_filter(group, [pod("m")], schedule)
    assert (status.code, status.message) == (Code.ERROR, "no connection")


@pytest.mark.parametrize(
    ("condition", "blocks"),
    [
        pytest.param(("DisruptionTarget", "True", "PreemptionByScheduler"), True, id="preempted"),
        pytest.param(("DisruptionTarget", "True", "EvictionByEvictionAPI"), False, id="evicted"),
        pytest.param(("DisruptionTarget", "False", "PreemptionByScheduler"), False, id="condition is False"),
        pytest.param(("Ready", "True", "PreemptionByScheduler"), False, id="another condition"),
        pytest.param(None, False, id="deleted by a user"),
    ],
)
def test_only_victims_of_a_preemption_block_the_next_one(condition, blocks, plugin_cluster, node, pod):
    conditions = [] if condition is None else [dict(zip(("type", "status", "reason"), condition, strict=True))]
    victim = pod("victim", "a", priority=1, status={"conditions": conditions})
    victim = msgspec.structs.replace(victim, metadata=msgspec.structs.replace(victim.metadata, deletion_timestamp=NOW))
    cluster = plugin_cluster([node("a")], [victim])
    nominated = PodInfo(pod("p", priority=10, status={"nominatedNodeName": "a"}))
    statuses = NodeToStatus(cluster.snapshot)
    statuses.set("a", unschedulable("", "no room"))
    reason = cluster.framework.plugins["DefaultPreemption"].ineligible_reason(nominated, cluster.snapshot, statuses)
    assert (reason != "") is blocks


class PreemptionExtender:
    name, ignorable = "http://extender", False

    def __init__(self, *, preempts: bool, interested: bool) -> None:
        self.preempts = preempts
        self.interested = interested

    def is_interested(self, pod: Any) -> bool:
        return self.interested

    async def process_preemption(self, pod: Any, victims: Any) -> Any:
        return {
            node: ([victim.uid for victim in pods], violations)
            for node, (pods, violations) in victims.items()
            if node == "b"
        }


@pytest.mark.parametrize(
    ("preempts", "interested", "node_name"),
    [
        pytest.param(True, True, "b", id="the extender chooses"),
        pytest.param(True, False, "a", id="not interested in the pod"),
        pytest.param(False, True, "a", id="without a verb for preemption"),
    ],
)
async def test_extenders_that_preempt_choose_for_pods_that_they_are_interested_in(
    preempts, interested, node_name, plugin_cluster, node, pod
):
    """The victim on a has the lower priority."""
    placed = [pod(f"on-{name}", name, cpu="4", priority=priority) for name, priority in (("a", 1), ("b", 2))]
    cluster = plugin_cluster([node("a"), node("b")], placed, {"SchedulerAsyncPreemption": False})
    cluster.extenders = [PreemptionExtender(preempts=preempts, interested=interested)]
    plugin, state, info = (
        cluster.framework.plugins["DefaultPreemption"],
        CycleState(),
        PodInfo(pod("p", cpu="4", priority=9)),
    )
    cluster.framework.filters.run_pre_filter(state, info, cluster.snapshot)
    statuses = NodeToStatus(cluster.snapshot)
    for name in "ab":
        statuses.set(name, unschedulable("NodeResourcesFit", "Insufficient cpu"))
    outcome = plugin.post_filter(state, info, cluster.snapshot, statuses)
    result, status = outcome if isinstance(outcome, tuple) else await outcome
    assert (status, result.nominated_node_name) == (None, node_name)
