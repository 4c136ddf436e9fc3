"""NodeResourcesBalancedAllocation: prefers nodes whose resources the pod brings closer to equal use.

Source: plugins/noderesources/balanced_allocation.go of v1.36.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import FEW_ROWS, score_rows_per_node, skip
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows, Scores
from kubeloop.scheduler.config.plugin_args import NodeResourcesBalancedAllocationArgs
from kubeloop.scheduler.plugins.resource_scores import Int64, ResourceAmounts, balance, balance_gained, balance_of_node

if TYPE_CHECKING:
    from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
    from kubeloop.scheduler.cache.snapshot import Snapshot

_REQUEST = "PreScoreNodeResourcesBalancedAllocation"


class NodeResourcesBalancedAllocation:
    name = "NodeResourcesBalancedAllocation"
    row_local = True

    def __init__(self, args: NodeResourcesBalancedAllocationArgs, handle: Handle) -> None:
        self._resources = tuple(each.name for each in args.resources)
        self._amounts = ResourceAmounts(args.resources, use_requested=True)
        # Whether a pod asks for them decides if other resources count.
        self._native = set(self._resources) <= {"cpu", "memory", "ephemeral-storage"}
        self._now: tuple[int, int, Scores] = (-1, -1, np.zeros(0, np.int64))  # layout, generation, balance [N]

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Status | None:
        request = pod.requests
        if not any(request.get(name) for name in self._resources):
            return skip(self.name)  # pods that ask for nothing would all go to the same node
        state.write(_REQUEST, request)
        return None

    def _request(self, state: CycleState, pod: PodInfo) -> dict[str, int]:
        request: dict[str, int] | None = state.get(_REQUEST)
        return pod.requests if request is None else request

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        before, after, there = zip(*self._amounts.of_node(self._request(state, pod), node), strict=True)
        return balance_gained(balance_of_node(before, there), balance_of_node(after, there))

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        if len(rows) <= FEW_ROWS:
            return score_rows_per_node(self.score, state, pod, snapshot, rows)
        wanted, requested, allocatable = self._amounts.of_rows(self._request(state, pod), snapshot, rows)
        if rows is snapshot.all_rows and self._native:
            before = self._balance_now(snapshot, requested, allocatable)
        else:
            before = balance(requested, allocatable)
        return balance_gained(before, balance(requested + wanted, allocatable))

    def _balance_now(self, snapshot: Snapshot, requested: Int64, allocatable: Int64) -> Scores:
        """Of all nodes without the pod, as of this generation: requested, allocatable [S, N] -> [N]."""
        layout, generation, known = self._now
        if layout != snapshot.layout or generation < 0:
            known = balance(requested, allocatable)
        elif generation != snapshot.generation:
            rows = snapshot.changed_since(generation)
            known[rows] = balance(requested[:, rows], allocatable[:, rows])
        self._now = (snapshot.layout, snapshot.generation, known)
        return known
