"""Statuses of rejected rows: computed on demand, by the array form or per node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import RowStatuses
from kubeloop.scheduler.api.results import explain_rows_as, unschedulable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.class_cache import ClassResults
from kubeloop.scheduler.framework.rejection_reasons import NodeRejections, RowRejections, explain_all
from support.scheduling.plugin_cluster import PluginCluster, make_node, make_pod

ROWS = np.array([1, 3, 4])


def by_row(statuses: RowStatuses) -> list[str]:
    return [f"{status.plugin}: {status.message}" for status in (statuses.statuses[code] for code in statuses.codes)]


def test_rejected_rows_are_explained_by_their_index() -> None:
    rejections = RowRejections("P", ROWS, lambda index: unschedulable("", f"reason {index}"), None)
    assert rejections(3) == unschedulable("P", "reason 1")
    assert by_row(rejections.statuses(np.array([1, 4]))) == ["P: reason 0", "P: reason 2"]


def test_equal_statuses_share_a_code() -> None:
    status = unschedulable("P", "full")
    statuses = RowRejections("P", ROWS, lambda _: status, None).statuses(ROWS)
    assert (statuses.codes.tolist(), statuses.statuses) == ([0, 0, 0], [status])


def test_failing_explanation_preserves_the_rejection() -> None:
    def explain(index: int) -> Status:
        raise ValueError("broken")

    assert RowRejections("P", ROWS, explain, None)(1) == unschedulable("P", "rejected by P: broken")


def test_array_form_is_preferred_unless_it_raises() -> None:
    def broken(rows: Any) -> RowStatuses:
        raise ValueError("broken")

    def explain(index: int) -> Status:
        return unschedulable("", "per node")

    array_form = RowRejections("P", ROWS, explain, lambda rows: explain_rows_as(unschedulable("", "array"), rows))
    assert by_row(array_form.statuses(ROWS)) == ["P: array"] * 3
    assert by_row(RowRejections("P", ROWS, explain, broken).statuses(ROWS)) == ["P: per node"] * 3


class OddNodes:
    """Rejects nodes with an odd number, and counts its calls."""

    name = "OddNodes"
    calls = 0

    def filter(self, state: CycleState, pod: PodInfo, node: Any) -> Status | None:
        self.calls += 1
        return unschedulable("", node.name) if int(node.name[1:]) % 2 else None


@pytest.fixture
def cluster() -> PluginCluster:
    return PluginCluster([make_node(f"n{number}") for number in range(4)])


def test_node_rejections_are_computed_once_per_class(cluster: PluginCluster) -> None:
    plugin, results = OddNodes(), ClassResults(cluster.snapshot)
    for _ in range(2):
        rejections = NodeRejections(plugin, CycleState(), PodInfo(make_pod("p")), cluster.snapshot, results)
        assert by_row(rejections.statuses(np.array([1, 2]))) == ["OddNodes: n1", "OddNodes: rejected by OddNodes"]
    assert plugin.calls == 2


def test_inherited_explain_rows_is_not_used(cluster: PluginCluster) -> None:
    class Explaining(OddNodes):
        def explain_rows(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> RowStatuses:
            return explain_rows_as(unschedulable("", "array"), rows)

    class Subclass(Explaining):
        name = "Subclass"

    arguments: Any = CycleState(), PodInfo(make_pod("p")), cluster.snapshot
    explain = explain_all(Explaining(), *arguments)
    assert explain is not None
    assert by_row(explain(ROWS)) == [": array"] * 3
    assert explain_all(Subclass(), *arguments) is None
