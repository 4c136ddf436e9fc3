"""DefaultPreemption: victims on a node, and the choice among candidates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kubeloop.kube.objects.api_types import PodDisruptionBudget, convert
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.results import unschedulable
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.fit_error import NodeToStatus
from kubeloop.scheduler.plugins.default_preemption import Candidate, best_candidate

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


def test_pods_with_exhausted_budget_are_reprieved_first(plugin_cluster: Any, node: Any, pod: Any) -> None:
    placed = [
        pod("covered", "a", cpu="2", priority=1, labels={"app": "db"}),
        pod("other", "a", cpu="2", priority=2, labels={"app": "web"}),
    ]
    cluster = plugin_cluster([node("a")], placed)
    budget = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": 0},
    }
    cluster.put("pod_disruption_budgets", convert(PodDisruptionBudget, budget))
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
