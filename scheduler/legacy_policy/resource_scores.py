"""Scores by resource utilization of older schedulers, for Policy documents.

They differ from NodeResourcesFit of v1.36: each resource counts on each node, also one that the node does not have or
that the pod does not request; MostRequestedPriority scores an overcommitted resource 0, not 100; and
RequestedToCapacityRatioPriority rounds the utilization up. Containers without CPU or memory requests count with the
default amounts. Axes: S scored resources, K nodes.
Source: v1.20, pkg/scheduler/framework/plugins/noderesources.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import MAX_NODE_SCORE
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.cache.arrays import Rows, Scores
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import (
    CPU_AND_MEMORY,
    NoArgs,
    RequestedToCapacityRatioArgs,
    ResourcesArgs,
    ResourceSpec,
)
from kubeloop.scheduler.plugins.node_resources.scoring import (
    MAX_UTILIZATION,
    Int64,
    ResourceAllocations,
    score_by_percent,
)


class _ResourceScore(ABC):
    """Score by the amounts of the resources on a node, with the pod."""

    name = ""
    row_local = True

    def __init__(self, resources: tuple[ResourceSpec, ...]) -> None:
        self._allocations = ResourceAllocations(resources, use_requested=False, include_unrequested=True)
        self._weights = np.array([resource.weight for resource in resources], np.int64)[:, None]  # [S, 1]

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        _, requested, allocatable = np.array(self._allocations.of_node(_requests(pod), node), np.int64).T
        return int(self._scores(requested[:, None], allocatable[:, None])[0])

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        pod_request, requested, allocatable = self._allocations.of_rows(_requests(pod), snapshot, rows)
        return self._scores(requested + pod_request, allocatable)

    @abstractmethod
    def _scores(self, requested: Int64, allocatable: Int64) -> Scores:
        """Return the scores [K]. requested, allocatable [S, K]."""


def _requests(pod: PodInfo) -> dict[str, int]:
    return pod.requests | {"cpu": pod.non_zero_milli_cpu, "memory": pod.non_zero_memory}


class NodeResourcesLeastAllocated(_ResourceScore):
    """Scores 100 for an empty node and 0 for a full one."""

    name = "NodeResourcesLeastAllocated"

    def __init__(self, args: ResourcesArgs, handle: Handle) -> None:
        super().__init__(args.resources)

    def _scores(self, requested: Int64, allocatable: Int64) -> Scores:
        return _mean_percent(allocatable - requested, requested, allocatable, self._weights)


class NodeResourcesMostAllocated(_ResourceScore):
    """Scores 0 for an empty node and 100 for a full one."""

    name = "NodeResourcesMostAllocated"

    def __init__(self, args: ResourcesArgs, handle: Handle) -> None:
        super().__init__(args.resources)

    def _scores(self, requested: Int64, allocatable: Int64) -> Scores:
        return _mean_percent(requested, requested, allocatable, self._weights)


def _mean_percent(part: Int64, requested: Int64, allocatable: Int64, weights: Int64) -> Scores:
    """Return the weighted mean [K] of `part` in percent of allocatable; 0 percent of an overcommitted resource."""
    percent = np.where(requested > allocatable, 0, part * MAX_NODE_SCORE // np.maximum(allocatable, 1))
    mean: Scores = (percent * weights).sum(axis=0) // weights.sum()
    return mean


class RequestedToCapacityRatioPriority(_ResourceScore):
    """Scores each resource by a piecewise linear function of its utilization: weighted mean of the scores above 0."""

    name = "RequestedToCapacityRatio"

    def __init__(self, args: RequestedToCapacityRatioArgs, handle: Handle) -> None:
        super().__init__(args.resources)
        self._score_by_percent = np.array(score_by_percent(args.shape), np.int64)  # [101]

    def _scores(self, requested: Int64, allocatable: Int64) -> Scores:
        free_percent = np.maximum(allocatable - requested, 0) * MAX_UTILIZATION // np.maximum(allocatable, 1)
        scores = self._score_by_percent[MAX_UTILIZATION - free_percent]  # [S, K]
        weight_sum = (self._weights * (scores > 0)).sum(axis=0)
        mean = (scores * self._weights).sum(axis=0) / np.maximum(weight_sum, 1)
        rounded: Scores = np.floor(mean + 0.5).astype(np.int64)
        return rounded


class BalancedResourceAllocation(_ResourceScore):
    """Prefers nodes where the pod leaves CPU and memory equally utilized; 0 if one of them would be full."""

    name = "BalancedResourceAllocation"

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        super().__init__(CPU_AND_MEMORY)

    def _scores(self, requested: Int64, allocatable: Int64) -> Scores:
        utilization = requested / np.maximum(allocatable, 1)
        utilization[allocatable == 0] = 1.0
        scores = ((1 - np.abs(utilization[0] - utilization[1])) * float(MAX_NODE_SCORE)).astype(np.int64)
        return np.where((utilization >= 1).any(axis=0), 0, scores)
