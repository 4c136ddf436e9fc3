"""DefaultPreemption: victims on a node, and the choice among candidates."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kubeloop.kube.errors import ServerUnreachable
from kubeloop.kube.objects.api_types import PodDisruptionBudget, convert
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.results import unresolvable, unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.fit_error import NodeToStatus
from kubeloop.scheduler.metrics_interface import SchedulerMetrics
from kubeloop.scheduler.plugins.preemption_victims import Candidate, best_candidate
from support.simulation.set_clock import SetClock

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def victims_on(cluster: Any, incoming: Any) -> dict[str, list[str]]:
    plugin, state, info = cluster.framework.plugins["DefaultPreemption"], CycleState(), PodInfo(incoming)
    cluster.framework.filters.run_pre_filter(state, info, cluster.snapshot)
    result = plugin.dry_run(state, info, cluster.snapshot, [node.name for node in cluster.snapshot.node_infos])
    return {
        candidate.node: [victim.pod.metadata.name for victim in candidate.victims] for candidate in result.candidates
    }


def test_important_pods_are_reprieved_first(plugin_cluster: Any, node: Any, pod: Any) -> None:
    placed = [pod(f"priority-{priority}", "a", cpu="2", priority=priority) for priority in (1, 2)]
    cluster = plugin_cluster([node("a")], placed)
    assert victims_on(cluster, pod("p", cpu="2", priority=10)) == {"a": ["priority-1"]}
    assert victims_on(cluster, pod("q", cpu="4", priority=10)) == {"a": ["priority-2", "priority-1"]}
    assert victims_on(cluster, pod("r", cpu="2", priority=1)) == {}


def test_of_equal_priorities_the_longest_running_pod_is_reprieved(plugin_cluster: Any, node: Any, pod: Any) -> None:
    starts = {"newest": 3, "oldest": 1, "middle": 2}
    placed = [
        pod(name, "a", cpu="1", priority=1, status={"startTime": f"2026-01-0{day}T00:00:00Z"})
        for name, day in starts.items()
    ]
    placed.append(pod("not-started", "a", cpu="1", priority=1))
    cluster = plugin_cluster([node("a")], placed)
    assert victims_on(cluster, pod("p", cpu="3", priority=10)) == {"a": ["middle", "newest", "not-started"]}


class _RunningClock(SetClock):
    """A clock that moves on whenever it is read."""

    def now(self) -> datetime:
        self.moment += timedelta(microseconds=1)
        return self.moment


@pytest.mark.parametrize("status", [{}, {"startTime": "2026-01-01T00:00:00Z"}], ids=["not started", "started at once"])
@pytest.mark.parametrize(
    ("protected", "victims"),
    [
        pytest.param("", ["x", "y", "z"], id="no budget: the first by UID is reprieved"),
        pytest.param("z", ["w", "x", "y"], id="the pod with a budget is reprieved"),
        pytest.param("xyz", ["w", "y", "z"], id="the first by UID of those with a budget is reprieved"),
    ],
)
def test_victims_of_equal_importance_do_not_depend_on_arrival(
    status: dict[str, Any], protected: str, victims: list[str], plugin_cluster: Any, node: Any, pod: Any
) -> None:
    placed = [
        pod(name, "a", cpu="1", priority=1, labels={"protected": str(name in protected)}, status=status)
        for name in "wxyz"
    ]
    for order in itertools.permutations(placed):
        cluster = plugin_cluster([node("a")], order)
        cluster.clock = _RunningClock(NOW)
        put_budget(cluster, protected="True")
        assert victims_on(cluster, pod("p", cpu="3", priority=10)) == {"a": victims}


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


def put_budget(cluster: Any, **match_labels: str) -> None:
    """Allow no disruption of the pods with these labels."""
    budget = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": match_labels}},
        "status": {"disruptionsAllowed": 0},
    }
    cluster.put("pod_disruption_budgets", convert(PodDisruptionBudget, budget))


@pytest.mark.parametrize(("percentage", "absolute", "evaluated"), [(0, 1, 1), (0, 3, 3), (0, 9, 4), (50, 1, 2)])
def test_dry_run_ends_with_the_minimum_of_candidates(
    percentage: int, absolute: int, evaluated: int, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    placed = [pod(f"on-{name}", name, cpu="4", priority=1) for name in "abcd"]
    cluster = plugin_cluster([node(name) for name in "abcd"], placed)
    arguments = {"minCandidateNodesPercentage": percentage, "minCandidateNodesAbsolute": absolute}
    cluster.make_framework(pluginConfig=[{"name": "DefaultPreemption", "args": arguments}])
    assert len(victims_on(cluster, pod("p", cpu="4", priority=10))) == evaluated


def test_dry_run_goes_on_until_a_candidate_violates_no_budget(plugin_cluster: Any, node: Any, pod: Any) -> None:
    placed = [
        pod(f"on-{name}", name, cpu="4", priority=1, labels={"app": "web" if name == "d" else "db"}) for name in "abcd"
    ]
    cluster = plugin_cluster([node(name) for name in "abcd"], placed)
    arguments = {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 1}
    cluster.make_framework(pluginConfig=[{"name": "DefaultPreemption", "args": arguments}])
    put_budget(cluster, app="db")
    for attempt in range(8):  # each starts at a random node
        assert [*victims_on(cluster, pod(f"p{attempt}", cpu="4", priority=10))][-1] == "d"


def test_pods_with_exhausted_budget_are_reprieved_first(plugin_cluster: Any, node: Any, pod: Any) -> None:
    placed = [
        pod("covered", "a", cpu="2", priority=1, labels={"app": "db"}),
        pod("other", "a", cpu="2", priority=2, labels={"app": "web"}),
    ]
    cluster = plugin_cluster([node("a")], placed)
    put_budget(cluster, app="db")
    assert victims_on(cluster, pod("p", cpu="2", priority=10)) == {"a": ["other"]}


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param([(5, 1)], [(1, 1)], id="fewer budget violations"),
        pytest.param([(1, 1), (1, 1)], [(2, 1)], id="lower highest priority"),
        pytest.param([(2, 1), (0, 1)], [(2, 1), (1, 1)], id="lower sum of priorities"),
        pytest.param([(2, 1)], [(2, 1), (-(1 << 31), 1)], id="fewer victims"),
        pytest.param([(2, 20)], [(2, 10)], id="later start"),
        pytest.param([(2, 20), (1, 5)], [(2, 10), (1, 30)], id="later start of those with the highest priority"),
    ],
)
def test_best_candidate(
    better: list[tuple[int, int]], worse: list[tuple[int, int]], pod: Any, request: pytest.FixtureRequest
) -> None:
    violations = 1 if "violations" in request.node.name else 0

    def candidate(name: str, victims: list[tuple[int, int]], pdb_violations: int) -> Candidate:
        pods = [
            PodInfo(pod(f"v{number}", priority=priority, status={"startTime": f"2026-01-{day:02}T00:00:00Z"}))
            for number, (priority, day) in enumerate(victims)
        ]
        return Candidate(name, tuple(pods), pdb_violations)

    candidates = [candidate("worse", worse, violations), candidate("better", better, 0)]
    assert best_candidate(candidates, NOW).node == "better"


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
