"""NodeResourcesBalancedAllocation: prefers nodes where the pod makes the utilization of resources more equal.

Source: plugins/noderesources/balanced_allocation.go of v1.36.
"""

from __future__ import annotations

import numpy as np

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import skip
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows, Scores
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import ResourcesArgs
from kubeloop.scheduler.plugins.node_resources.scoring import (
    Int64,
    ResourceAllocations,
    balance,
    balance_gained,
    balance_of_node,
    scored_devices,
)


class NodeResourcesBalancedAllocation:
    name = "NodeResourcesBalancedAllocation"

    def __init__(self, args: ResourcesArgs, handle: Handle) -> None:
        self._resources = tuple(resource.name for resource in args.resources)
        count_devices = scored_devices(args.resources, handle)
        self.row_local = count_devices is None
        self._allocations = ResourceAllocations(args.resources, use_requested=True, count_devices=count_devices)
        # Extended resources count only for pods that request them, so their balance without the pod is not cached.
        self._native = set(self._resources) <= {"cpu", "memory", "ephemeral-storage"}
        self._cached_balance: tuple[int, int, Scores] = (-1, -1, np.zeros(0, np.int64))  # layout, generation, [N]

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Status | None:
        if not any(pod.requests.get(name) for name in self._resources):
            return skip(self.name)  # otherwise all pods without requests would get the same node
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        before, after, allocatable = zip(*self._allocations.of_node(pod.requests, node), strict=True)
        return balance_gained(balance_of_node(before, allocatable), balance_of_node(after, allocatable))

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        pod_request, requested, allocatable = self._allocations.of_rows(pod.requests, snapshot, rows)
        if rows is snapshot.all_rows and self._native:
            before = self._balance_without_pod(snapshot, requested, allocatable)
        else:
            before = balance(requested, allocatable)
        return balance_gained(before, balance(requested + pod_request, allocatable))

    def _balance_without_pod(self, snapshot: Snapshot, requested: Int64, allocatable: Int64) -> Scores:
        """Return the balance of all nodes without the pod, recomputed for changed nodes: args [S, N] -> [N]."""
        layout, generation, cached = self._cached_balance
        if layout != snapshot.layout or generation < 0:
            cached = balance(requested, allocatable)
        elif generation != snapshot.generation:
            rows = snapshot.changed_since(generation)
            cached[rows] = balance(requested[:, rows], allocatable[:, rows])
        self._cached_balance = (snapshot.layout, snapshot.generation, cached)
        return cached
