"""Choice of victims on many nodes at once; test_dry_run.py compares it with that on copies of the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.plugins.preemption.candidates import Candidate, best_candidate
from kubeloop.scheduler.plugins.preemption.disruption_budgets import Budget
from kubeloop.scheduler.plugins.preemption.victim_table import Choices, VictimRows, VictimTable

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def victims(
    table: VictimTable, cluster: Any, incoming: Any, now: datetime = NOW, choices: Choices | None = None
) -> VictimRows:
    table.refresh()
    info = PodInfo(incoming)
    return table.victims(cluster.snapshot.all_rows, info, info.requests, cluster.nominator, [], now, choices)


def names(candidate: Candidate) -> list[str]:
    return [victim.pod.metadata.name for victim in candidate.victims]


def test_best_row_is_that_of_the_best_candidate(plugin_cluster: Any, node: Any, pod: Any) -> None:
    def started(name: str, node_name: str, priority: int, day: int) -> Any:
        status = {"startTime": f"2026-01-0{day}T00:00:00Z"} if day else {}
        return pod(name, node_name, cpu="2", priority=priority, status=status)

    placed = [
        *(started("high", "a", 5, 1), started("low-a", "a", 1, 1)),
        *(started("old", "b", 2, 1), started("older", "b", 2, 2)),
        *(started("new", "c", 2, 3), started("newer", "c", 2, 4)),
        *(started("pending", "d", 2, 0), started("running", "d", 2, 1)),
    ]
    cluster = plugin_cluster([node(name, allocatable={"cpu": "4"}) for name in "abcd"], placed)
    table = VictimTable(cluster.snapshot)
    rows = victims(table, cluster, pod("p", cpu="4", priority=10))
    best = best_candidate([rows.candidate(index) for index in range(len(rows))], NOW)
    assert rows.best(NOW) == best
    assert (best.node, names(best)) == ("c", ["new", "newer"])
    assert table.lowest_priority.tolist() == [1, 2, 2, 2]


def test_changed_rows_are_filled_again(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a", allocatable={"cpu": "4"})], [pod("first", "a", cpu="3", priority=1)])
    table = VictimTable(cluster.snapshot)
    incoming = pod("p", cpu="4", priority=10)
    assert names(victims(table, cluster, incoming).best(NOW)) == ["first"]
    cluster.cache.add_pod(pod("second", "a", cpu="1", priority=2))
    cluster.cache.add_node(node("b", allocatable={"cpu": "1"}))
    cluster.refresh()
    assert names(victims(table, cluster, incoming).best(NOW)) == ["second", "first"]


def test_start_in_the_future_counts_from_the_current_time(plugin_cluster: Any, node: Any, pod: Any) -> None:
    """A pod that has not started counts as started now, before or after one whose clock is ahead."""
    ahead = {"startTime": "2026-03-02T00:00:00Z"}
    placed = [pod("ahead", "a", cpu="2", priority=1, status=ahead), pod("pending", "a", cpu="2", priority=1)]
    cluster = plugin_cluster([node("a", allocatable={"cpu": "4"})], placed)
    table = VictimTable(cluster.snapshot)
    incoming, later = pod("p", cpu="2", priority=10), NOW + timedelta(days=2)
    assert names(victims(table, cluster, incoming).best(NOW)) == ["ahead"]
    assert names(victims(table, cluster, incoming, later).best(later)) == ["pending"]


def test_request_beyond_the_arrays_is_an_error(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")], [pod("huge", "a", cpu="1", memory="9Ei", priority=1)])
    with pytest.raises(OverflowError):
        victims(VictimTable(cluster.snapshot), cluster, pod("p", cpu="1", memory="1Gi", priority=10))


def refresh(choices: Choices, cluster: Any, budgets: Sequence[Budget]) -> list[int]:
    """Refresh `choices`, and return the stale rows."""
    changed = cluster.refresh().changed_since(choices.generation)
    choices.refresh(cluster.snapshot, changed, np.ones(len(changed), np.bool_), cluster.nominator, budgets)
    return np.flatnonzero(choices.stale).tolist()


def test_changes_make_the_choices_of_their_rows_stale(plugin_cluster: Any, node: Any, pod: Any) -> None:
    placed = [pod(f"on-{name}", name, cpu="4", priority=1) for name in "abc"]
    cluster = plugin_cluster([node(name, allocatable={"cpu": "4"}) for name in "abc"], placed)
    table, choices, incoming = VictimTable(cluster.snapshot), Choices(3), pod("p", cpu="4", priority=10)
    budgets: list[Budget] = []

    def candidates() -> dict[str, list[str]]:
        rows = victims(table, cluster, incoming, choices=choices)
        return {(candidate := rows.candidate(index)).node: names(candidate) for index in range(len(rows))}

    assert refresh(choices, cluster, budgets) == [0, 1, 2]
    assert candidates() == {"a": ["on-a"], "b": ["on-b"], "c": ["on-c"]}
    assert refresh(choices, cluster, budgets) == []
    cluster.cache.add_pod(pod("second", "b", cpu="1", priority=2))
    nominated = pod("nominated", cpu="1", priority=10)
    cluster.pods.put(nominated.key, nominated)
    cluster.nominator.add(PodInfo(nominated), "c")
    assert refresh(choices, cluster, budgets) == [1, 2]
    assert candidates() == {"a": ["on-a"], "b": ["second", "on-b"]}
    cluster.nominator.remove(nominated.metadata.uid)
    assert refresh(choices, cluster, budgets) == [2]
    assert refresh(choices, cluster, []) == [0, 1, 2]
    assert candidates() == {"a": ["on-a"], "b": ["second", "on-b"], "c": ["on-c"]}


def test_choices_are_cached_from_the_second_preemptor_on(plugin_cluster: Any, node: Any) -> None:
    table = VictimTable(plugin_cluster([node("a")]).snapshot)
    assert table.choices("first") is None
    choices = table.choices("first")
    assert choices is not None
    assert table.choices("first") is choices
    for key in range(100):
        assert table.choices(key) is None
    assert table.choices("first") is not choices
