"""Why a filter rejected a node: found out when somebody asks, as most verdicts are only counted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.class_cache import ClassResults
from kubeloop.scheduler.framework.interface import Code, CycleState, Plugin, Rows, Status

if TYPE_CHECKING:
    from kubeloop.scheduler.framework.runtime import Framework

log = logging.getLogger(__name__)


def named(status: Status, plugin: str) -> Status:
    """With the name of the plugin, unless it says one."""
    return status if status.plugin else Status(status.code, status.reasons, plugin, status.error)


class Explanations:
    """Explains rows of the snapshot by the verdicts of one filter call."""

    __slots__ = ("_explain", "_plugin", "_rows")

    def __init__(self, plugin: str, rows: Rows, explain: Callable[[int], Status]) -> None:
        self._plugin = plugin
        self._rows = rows
        self._explain = explain

    def __call__(self, row: int) -> Status:
        return self.at(int(np.searchsorted(self._rows, row)))

    def at(self, index: int) -> Status:
        try:
            return named(self._explain(index), self._plugin)
        except Exception as error:  # the verdict stands, only its reason is lost
            log.exception("a filter cannot explain its verdict", extra={"plugin": self._plugin})
            return Status(Code.UNSCHEDULABLE, (f"rejected by {self._plugin}: {error}",), self._plugin, error)


class ExplanationsByNode:
    """Explains rows by a filter's per-node form, once per class and change of the node."""

    __slots__ = ("_framework", "_plugin", "_pod", "_results", "_snapshot", "_state")

    def __init__(
        self,
        framework: Framework,
        plugin: Plugin,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        results: ClassResults,
    ) -> None:
        self._framework = framework
        self._plugin = plugin
        self._state = state
        self._pod = pod
        self._snapshot = snapshot
        self._results = results

    def __call__(self, row: int) -> Status:
        known = self._results.statuses.get(row)
        if known is None:
            known = self._results.statuses[row] = self._explain(row)
        return known

    def _explain(self, row: int) -> Status:
        node = self._snapshot.node_infos[row]
        status = self._framework.filter_node(self._plugin, self._state, self._pod, node)
        return status or Status(Code.UNSCHEDULABLE, (f"rejected by {self._plugin.name}",), self._plugin.name)
