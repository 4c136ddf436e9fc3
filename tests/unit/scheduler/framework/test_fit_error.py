"""Statuses of rejected nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from kubeloop.scheduler.api.extension_points import RowStatuses
from kubeloop.scheduler.api.results import unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus


def test_nodes_that_only_an_extender_names_are_counted_and_listed(plugin_cluster: Any, node: Any) -> None:
    statuses = NodeToStatus(plugin_cluster([node("a"), node("b")]).snapshot)
    by_filter, by_extender = unschedulable("Fit", "full"), unschedulable("Extender", "refused")
    statuses.override_rows(np.array([0]), RowStatuses(np.array([0]), [by_filter]))
    statuses.set("elsewhere", by_extender)
    assert statuses.plugins() == {"Fit": 1, "Extender": 1}
    assert dict(statuses.items()) == {"a": by_filter, "elsewhere": by_extender}
    assert statuses.nodes_with_code(Code.UNSCHEDULABLE) == ["a", "elsewhere"]
    assert statuses.count_reasons(2) == {"full": 1, "refused": 1}


def test_restarted_diagnosis_has_no_rejections_of_nodes(plugin_cluster: Any, node: Any) -> None:
    snapshot = plugin_cluster([node("a")]).snapshot
    diagnosis = Diagnosis(NodeToStatus(snapshot))
    absent = diagnosis.node_to_status.absent = Status(Code.UNSCHEDULABLE, ("absent",))
    diagnosis.node_to_status.set("a", Status(Code.UNSCHEDULABLE, ("no",), "Mine"))
    diagnosis.errors.append(Status(Code.ERROR, ("broken",), "Mine"))
    diagnosis.restart(snapshot)
    assert (len(diagnosis.node_to_status), diagnosis.errors) == (0, [])
    assert diagnosis.node_to_status.get("a") is absent


class SameStatus:
    """RejectionStatuses with one status for all rows."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def statuses(self, rows: Any) -> RowStatuses:
        return RowStatuses(np.zeros(len(rows), np.intp), [self._status])


def test_number_of_rejected_nodes_includes_those_that_are_not_explained_yet(plugin_cluster: Any, node: Any) -> None:
    snapshot = plugin_cluster([node("a"), node("b"), node("c")]).snapshot
    statuses = NodeToStatus(snapshot)
    assert len(statuses) == 0
    full = unschedulable("Fit", "full")
    statuses.reject_rows("Fit", np.array([0, 2]), SameStatus(full))
    assert len(statuses) == 2
    statuses.set("elsewhere", full)
    assert len(statuses) == 3


def test_status_of_a_node_that_is_not_in_the_snapshot(plugin_cluster: Any, node: Any) -> None:
    statuses = NodeToStatus(plugin_cluster([node("a"), node("b")]).snapshot)
    full = unschedulable("Fit", "full")
    statuses.override_rows(np.array([0, 1]), RowStatuses(np.array([0, 0]), [full]))
    assert statuses.get("gone") is statuses.absent
    assert statuses.get("a") == statuses.get("b") == full
