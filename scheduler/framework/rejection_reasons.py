"""Why a filter rejected a node: found out when somebody asks, as most verdicts are only counted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

import numpy as np

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import ExplainRowsPlugin, Plugin, RowStatuses
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.class_cache import ClassResults
from kubeloop.scheduler.framework.plugin_calls import filter_node, named

log = logging.getLogger(__name__)

OfAll = Callable[[Rows], RowStatuses]


class RowRejections:
    """Explains rows of the snapshot by the verdicts of one filter call: explain(i) is about the i-th of `rows`."""

    __slots__ = ("_explain", "_of_all", "_plugin", "_rows")

    def __init__(self, plugin: str, rows: Rows, explain: Callable[[int], Status], of_all: OfAll | None) -> None:
        """of_all: the filter's own answer for many rows at once."""
        self._plugin = plugin
        self._rows = rows
        self._explain = explain
        self._of_all = of_all

    def __call__(self, row: int) -> Status:
        return self.at(int(np.searchsorted(self._rows, row)))

    def at(self, index: int) -> Status:
        try:
            return named(self._explain(index), self._plugin)
        except Exception as error:  # the verdict stands, only its reason is lost
            log.exception("a filter cannot explain its verdict", extra={"plugin": self._plugin})
            return Status(Code.UNSCHEDULABLE, (f"rejected by {self._plugin}: {error}",), self._plugin, error)

    def all(self, rows: Rows) -> RowStatuses:
        return _at_once(self._plugin, self._of_all, rows) or _one_by_one(self, rows)


class NodeRejections:
    """Explains rows by a filter's per-node form, once per class and change of the node."""

    __slots__ = ("_of_all", "_plugin", "_pod", "_results", "_snapshot", "_state")

    def __init__(
        self,
        plugin: Plugin,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        results: ClassResults,
    ) -> None:
        self._plugin = plugin
        self._state = state
        self._pod = pod
        self._snapshot = snapshot
        self._results = results
        self._of_all = of_all(plugin, state, pod, snapshot)

    def __call__(self, row: int) -> Status:
        known = self._results.statuses.get(row)
        if known is None:
            known = self._results.statuses[row] = self._explain(row)
        return known

    def all(self, rows: Rows) -> RowStatuses:
        return _at_once(self._plugin.name, self._of_all, rows) or _one_by_one(self, rows)

    def _explain(self, row: int) -> Status:
        node = self._snapshot.node_infos[row]
        status = filter_node(self._plugin, self._state, self._pod, node)
        return status or Status(Code.UNSCHEDULABLE, (f"rejected by {self._plugin.name}",), self._plugin.name)


def of_all(plugin: Plugin, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> OfAll | None:
    """The plugin's explain_rows for this pod, if its own class has one: that of a class it inherits from may not know
    what its filter rejects."""
    if "explain_rows" not in vars(type(plugin)):
        return None
    explain_rows = cast("ExplainRowsPlugin", plugin).explain_rows
    return lambda rows: explain_rows(state, pod, snapshot, rows)


def _at_once(plugin: str, of_all: OfAll | None, rows: Rows) -> RowStatuses | None:
    if of_all is None:
        return None
    try:
        reasons = of_all(rows)
    except Exception:  # the slow way may know more
        log.exception("a filter cannot explain its verdicts", extra={"plugin": plugin})
        return None
    return RowStatuses(reasons.codes, [named(status, plugin) for status in reasons.statuses])


def _one_by_one(explain: Callable[[int], Status], rows: Rows) -> RowStatuses:
    codes = np.empty(len(rows), np.intp)
    statuses: list[Status] = []
    code_of: dict[int, int] = {}  # by identity: most plugins have few Status objects
    for index, row in enumerate(rows.tolist()):
        status = explain(row)
        code = code_of.get(id(status))
        if code is None:
            code = code_of[id(status)] = len(statuses)
            statuses.append(status)
        codes[index] = code
    return RowStatuses(codes, statuses)
