"""Dry runs: whether a pod would fit a node if pods were removed or added. Used by preemption and for nominated pods.

Usually no filter of a pod reads more of other pods than their number and the sum of their requests. A copy of those
sums is then enough, and filters that read no pods at all run only once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.dry_run import DryRunNode
from kubeloop.scheduler.api.extension_points import RowStatuses
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Mask, Rows, Scores
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.class_cache import FEW_ROWS
from kubeloop.scheduler.framework.node_filters import NodeFilters
from kubeloop.scheduler.framework.plugin_calls import filter_node

_MAX_REQUESTS = 1 << 62  # of nominated pods; more does not fit into the arrays, and no node has it


class NodeDryRuns:
    """Dry runs of one pod on nodes of the snapshot, in the cheapest way that the filters of this pod allow."""

    def __init__(self, node_filters: NodeFilters, state: CycleState, pod: PodInfo) -> None:
        self._node_filters = node_filters
        self._state = state
        self._pod = pod
        self.only_sums = reads_only_sums(node_filters, state)
        self._filters = _applying(node_filters, state)
        self._sum_filters = [plugin for plugin in self._filters if _declares(plugin, "reads_only_pod_sums")]

    def __call__(self, node: NodeInfo) -> DryRunNode:
        if self.only_sums:
            return _SummedNode(self._node_filters, self._filters, self._sum_filters, self._state, self._pod, node)
        return _CopiedNode(self._node_filters, self._state, self._pod, node)

    def capacity_needed(self, snapshot: Snapshot, rows: Rows) -> tuple[Mapping[str, int], Mask] | None:
        others = [plugin for plugin in self._filters if plugin not in self._sum_filters]
        by_rows = self._node_filters.filters_by_rows
        if (
            not self.only_sums
            or len(self._sum_filters) != 1
            or not _declares(self._sum_filters[0], "resources_needed")
            or not all(plugin.name in by_rows for plugin in others)
        ):
            return None
        passing = np.ones(len(rows), np.bool_)
        for plugin in others if len(rows) else ():
            left = np.flatnonzero(passing)
            passing[left] = plugin.filter_rows(self._state, self._pod, snapshot, rows[left]).passed
        return self._sum_filters[0].resources_needed(self._state, self._pod), passing

    def filter_with_nominated(self, snapshot: Snapshot, rows: Sequence[int]) -> list[Status | None]:
        """Filter each of `rows` with the pods nominated to it; None if the pod fits, or if there are none."""
        infos = snapshot.node_infos
        nominated = [self._node_filters.nominated_pods(self._pod, infos[row].name) for row in rows]
        array = np.array(rows, np.intp)
        capacity = self.capacity_needed(snapshot, array) if len(rows) > FEW_ROWS else None
        if capacity is None:
            return [self(infos[row]).run_filters() if pods else None for row, pods in zip(rows, nominated, strict=True)]
        _, passing = capacity
        explained = self._filter_with(nominated, snapshot, array, 0, {})
        statuses: list[Status | None] = []
        for row, pods, code, passes in zip(rows, nominated, explained.codes.tolist(), passing.tolist(), strict=True):
            status = explained.statuses[code]
            if pods and not passes:
                statuses.append(self(infos[row]).run_filters())
            else:
                statuses.append(status if pods and status.reasons else None)
        return statuses

    def filter_without(
        self, snapshot: Snapshot, rows: Rows, pods: Scores, requests: Mapping[str, Scores]
    ) -> RowStatuses:
        names = snapshot.names[rows].tolist()
        nominated = [self._node_filters.nominated_pods(self._pod, name) for name in names]
        return self._filter_with(nominated, snapshot, rows, pods, requests)

    def _filter_with(
        self,
        more: Sequence[Sequence[PodInfo]],
        snapshot: Snapshot,
        rows: Rows,
        fewer_pods: Scores | int,
        fewer_requests: Mapping[str, Scores],
    ) -> RowStatuses:
        """Return the statuses of `rows` with further pods on each, and so many fewer pods and requests [K]."""
        plugin, pod = self._sum_filters[0], self._pod
        more_pods = np.array([len(pods) for pods in more], np.int64) - fewer_pods
        more_requests = {}
        for name in plugin.resources_needed(self._state, pod):
            sums = [min(sum([other.requests.get(name, 0) for other in pods]), _MAX_REQUESTS) for pods in more]
            more_requests[name] = np.array(sums, np.int64) - fewer_requests.get(name, 0)
        statuses: RowStatuses = plugin.explain_with(self._state, pod, snapshot, rows, more_pods, more_requests)
        return statuses


def reads_only_sums(node_filters: NodeFilters, state: CycleState) -> bool:
    """Return True if no filter of this pod reads single pods of a node."""
    return all(
        _declares(plugin, "ignores_other_pods") or _declares(plugin, "reads_only_pod_sums")
        for plugin in _applying(node_filters, state)
    ) and not node_filters.has_pre_filter_extensions(state)


def _applying(node_filters: NodeFilters, state: CycleState) -> list[Any]:
    return [plugin for plugin in node_filters.filter if plugin.name not in state.skip_filter]


def _declares(plugin: Any, attribute: str) -> bool:
    """Return True if the plugin's own class sets the attribute: a subclass of the user may read more pods."""
    return bool(vars(type(plugin)).get(attribute, False))


class _CopiedNode:
    """A copy of the node and of the cycle state of all plugins."""

    __slots__ = ("_node", "_node_filters", "_pod", "_state")

    def __init__(self, node_filters: NodeFilters, state: CycleState, pod: PodInfo, node: NodeInfo) -> None:
        self._node_filters = node_filters
        self._state = state.clone()
        self._pod = pod
        self._node = node.clone()

    def add_pod(self, other: PodInfo) -> Status | None:
        self._node.add_pod(other)
        return self._node_filters.run_add_pod(self._state, self._pod, other, self._node)

    def remove_pod(self, other: PodInfo) -> Status | None:
        self._node.remove_pod(other.uid)
        return self._node_filters.run_remove_pod(self._state, self._pod, other, self._node)

    def run_filters(self) -> Status | None:
        return self._node_filters.run_filters_with_nominated_pods(self._state, self._pod, self._node)


class _SummedNode:
    """Copies of `pods` and `requested` of the node: first with nominated pods, if there are any, then without."""

    __slots__ = ("_filters", "_node_filters", "_nodes", "_pod", "_state", "_sum_filters")

    def __init__(
        self,
        node_filters: NodeFilters,
        filters: list[Any],
        sum_filters: list[Any],
        state: CycleState,
        pod: PodInfo,
        node: NodeInfo,
    ) -> None:
        self._node_filters = node_filters
        self._filters = filters
        self._sum_filters = sum_filters
        self._state = state
        self._pod = pod
        self._nodes = [node.copy_sums()]
        nominated = node_filters.nominated_pods(pod, node.name)
        if nominated:
            with_nominated = node.copy_sums()
            for other in nominated:
                with_nominated.add_to_sums(other)
            self._nodes.insert(0, with_nominated)

    def add_pod(self, other: PodInfo) -> None:
        for node in self._nodes:
            node.add_to_sums(other)

    def remove_pod(self, other: PodInfo) -> None:
        for node in self._nodes:
            node.remove_from_sums(other)

    def run_filters(self) -> Status | None:
        for node in self._nodes:
            for plugin in self._filters:
                status = filter_node(plugin, self._state, self._pod, node)
                if status is not None:
                    return status
        self._filters = self._sum_filters  # the result of the others does not depend on pods
        return None
