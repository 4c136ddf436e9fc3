"""Choice of victims on many nodes at once; test_dry_run.py compares it with that on copies of the nodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.plugins.preemption.candidates import Candidate, best_candidate
from kubeloop.scheduler.plugins.preemption.victim_table import VictimRows, VictimTable

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def victims(table: VictimTable, cluster: Any, incoming: Any, now: datetime = NOW) -> VictimRows:
    table.refresh()
    info = PodInfo(incoming)
    return table.victims(cluster.snapshot.all_rows, info, info.requests, cluster.nominator, [], now)


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
    assert rows.best() == best
    assert (best.node, names(best)) == ("c", ["new", "newer"])
    assert table.lowest_priority.tolist() == [1, 2, 2, 2]


def test_changed_rows_are_filled_again(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a", allocatable={"cpu": "4"})], [pod("first", "a", cpu="3", priority=1)])
    table = VictimTable(cluster.snapshot)
    incoming = pod("p", cpu="4", priority=10)
    assert names(victims(table, cluster, incoming).best()) == ["first"]
    cluster.cache.add_pod(pod("second", "a", cpu="1", priority=2))
    cluster.cache.add_node(node("b", allocatable={"cpu": "1"}))
    cluster.refresh()
    assert names(victims(table, cluster, incoming).best()) == ["second", "first"]


def test_start_in_the_future_counts_from_the_current_time(plugin_cluster: Any, node: Any, pod: Any) -> None:
    """A pod that has not started counts as started now, before or after one whose clock is ahead."""
    ahead = {"startTime": "2026-03-02T00:00:00Z"}
    placed = [pod("ahead", "a", cpu="2", priority=1, status=ahead), pod("pending", "a", cpu="2", priority=1)]
    cluster = plugin_cluster([node("a", allocatable={"cpu": "4"})], placed)
    table = VictimTable(cluster.snapshot)
    incoming = pod("p", cpu="2", priority=10)
    assert names(victims(table, cluster, incoming).best()) == ["ahead"]
    assert names(victims(table, cluster, incoming, NOW + timedelta(days=2)).best()) == ["pending"]


def test_request_beyond_the_arrays_is_an_error(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")], [pod("huge", "a", cpu="1", memory="9Ei", priority=1)])
    with pytest.raises(OverflowError):
        victims(VictimTable(cluster.snapshot), cluster, pod("p", cpu="1", memory="1Gi", priority=10))
