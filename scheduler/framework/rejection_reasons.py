"""Statuses of rejected nodes, computed on demand: most rejections are only counted."""

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
from kubeloop.scheduler.framework.plugin_calls import filter_node, with_plugin_name
from kubeloop.scheduler.framework.status_codes import NO_STATUS, StatusCodes

log = logging.getLogger(__name__)

ExplainAll = Callable[[Rows], RowStatuses]


class RowRejections:
    """Statuses of the rows that one filter call rejected. explain(i) returns that of the i-th of `rows`."""

    __slots__ = ("_explain", "_explain_all", "_plugin", "_rows")

    def __init__(
        self, plugin: str, rows: Rows, explain: Callable[[int], Status], explain_all: ExplainAll | None
    ) -> None:
        """explain_all: the filter's own explain_rows."""
        self._plugin = plugin
        self._rows = rows
        self._explain = explain
        self._explain_all = explain_all

    def __call__(self, row: int) -> Status:
        return self.status_at(int(np.searchsorted(self._rows, row)))

    def status_at(self, index: int) -> Status:
        try:
            return with_plugin_name(self._explain(index), self._plugin)
        except Exception as error:  # the rejection stands without its reason
            log.exception("a filter failed to explain a rejection", extra={"plugin": self._plugin})
            return Status(Code.UNSCHEDULABLE, (f"rejected by {self._plugin}: {error}",), self._plugin, error)

    def statuses(self, rows: Rows) -> RowStatuses:
        return _for_all(self._plugin, self._explain_all, rows) or _per_node(self, rows)


class NodeRejections:
    """Statuses by a filter's per-node form, computed once per class and change of the node."""

    __slots__ = ("_cached", "_explain_all", "_plugin", "_pod", "_snapshot", "_state")

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
        if results.statuses is None or results.statuses.is_full:
            results.statuses = StatusCodes(len(snapshot))
        self._cached = results.statuses
        self._explain_all = explain_all(plugin, state, pod, snapshot)

    def __call__(self, row: int) -> Status:
        code = int(self._cached.codes[row])
        if code == NO_STATUS:
            code = self._cached.codes[row] = self._cached.code(self._explain(row))
        return self._cached.statuses[code]

    def statuses(self, rows: Rows) -> RowStatuses:
        known = self._cached.codes[rows]
        missing = rows[known == NO_STATUS]
        if not len(missing):
            return RowStatuses(known, self._cached.statuses)
        statuses = _for_all(self._plugin.name, self._explain_all, missing) or _per_node(self, missing)
        codes = np.array([self._cached.code(status) for status in statuses.statuses], np.int32)
        self._cached.codes[missing] = codes[statuses.codes]
        return RowStatuses(self._cached.codes[rows], self._cached.statuses)

    def _explain(self, row: int) -> Status:
        node = self._snapshot.node_infos[row]
        status = filter_node(self._plugin, self._state, self._pod, node)
        return status or Status(Code.UNSCHEDULABLE, (f"rejected by {self._plugin.name}",), self._plugin.name)


def explain_all(plugin: Plugin, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> ExplainAll | None:
    """Return the plugin's explain_rows for this pod, if its own class has one.

    An inherited explain_rows is not used: it may not match what the filter of the subclass rejects.
    """
    if "explain_rows" not in vars(type(plugin)):
        return None
    explain_rows = cast("ExplainRowsPlugin", plugin).explain_rows
    return lambda rows: explain_rows(state, pod, snapshot, rows)


def _for_all(plugin: str, explain_all: ExplainAll | None, rows: Rows) -> RowStatuses | None:
    if explain_all is None:
        return None
    try:
        statuses = explain_all(rows)
    except Exception:  # the per-node form is slower, but may succeed
        log.exception("a filter failed to explain its rejections", extra={"plugin": plugin})
        return None
    return RowStatuses(statuses.codes, [with_plugin_name(status, plugin) for status in statuses.statuses])


def _per_node(explain: Callable[[int], Status], rows: Rows) -> RowStatuses:
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
