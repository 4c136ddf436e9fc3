"""Choice of the victims on a node (plugins/preemption/victim_selection.py)."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.kube.objects.api_types import PodDisruptionBudget, convert
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.plugins.preemption import victim_table
from kubeloop.scheduler.plugins.preemption.victim_selection import DryRunResult
from support.simulation.set_clock import SetClock

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def dry_run(cluster: Any, incoming: Any) -> DryRunResult:
    plugin, state, info = cluster.framework.plugins["DefaultPreemption"], CycleState(), PodInfo(incoming)
    cluster.framework.filters.run_pre_filter(state, info, cluster.snapshot)
    result: DryRunResult = plugin.victim_selection.dry_run(state, info, cluster.snapshot, cluster.snapshot.all_rows)
    return result


def victims_on(cluster: Any, incoming: Any) -> dict[str, list[str]]:
    candidates = dry_run(cluster, incoming).candidates
    return {candidate.node: [victim.pod.metadata.name for victim in candidate.victims] for candidate in candidates}


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


def test_result_without_candidates_is_shared_until_a_change(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a"), node("b")], [pod("placed", "a", cpu="4", priority=5)])
    first = dry_run(cluster, pod("p", cpu="4", priority=5))
    assert (first.candidates, [name for name, _ in first.rejections.items()]) == ([], ["a", "b"])
    assert dry_run(cluster, pod("q", cpu="4", priority=5)) is first
    assert dry_run(cluster, pod("r", cpu="4", priority=6)) is not first
    assert victims_on(cluster, pod("s", cpu="4", priority=6)) == {"a": ["placed"]}
    cluster.cache.add_pod(pod("low", "b", cpu="4", priority=1))
    cluster.cache.update_snapshot(cluster.snapshot)
    assert victims_on(cluster, pod("t", cpu="4", priority=5)) == {"b": ["low"]}


def test_nodes_with_many_pods_are_tried_one_by_one(
    monkeypatch: pytest.MonkeyPatch, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    monkeypatch.setattr(victim_table, "MAX_PODS", 1)
    placed = [pod(f"on-{name}-{number}", name, cpu="2", priority=1) for name in "ab" for number in range(2)]
    cluster = plugin_cluster([node("a"), node("b")], placed)
    assert victims_on(cluster, pod("p", cpu="4", priority=10)) == {
        name: [f"on-{name}-0", f"on-{name}-1"] for name in "ab"
    }
    assert cluster.framework.plugins["DefaultPreemption"].victim_selection._table._codes.shape == (2, 0)
