"""Scores by how full a node would be: what NodeResourcesFit and NodeResourcesBalancedAllocation have in common.

Axes: S scored resources, K nodes. Requested and allocatable amounts are int64 (millicores, bytes, units). A resource
that a node does not have, or an extended one that the pod does not ask for, takes no part; its allocatable is 0 here.
Source: plugins/noderesources of v1.36; integer divisions and float64 truncations are where Go has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kubeloop.scheduler.cache.node_info import is_scalar_resource
from kubeloop.scheduler.framework.interface import MAX_NODE_SCORE, Rows, Scores
from kubeloop.scheduler.plugins.args import ResourceSpec, UtilizationShapePoint
from kubeloop.scheduler.plugins.verdicts import at

if TYPE_CHECKING:
    from kubeloop.scheduler.cache.node_info import NodeInfo
    from kubeloop.scheduler.cache.snapshot import Snapshot

Int64 = npt.NDArray[np.int64]
Scorer = Callable[[Int64, Int64], Scores]
"""(requested [S, K], allocatable [S, K]) -> scores [K]; the pod's own wish is part of what is requested"""

_MAX_UTILIZATION = 100
_SCORE_PER_SHAPE_SCORE = MAX_NODE_SCORE // 10


class ResourceAmounts:
    """Looks up what `resources` are requested and allocatable.

    use_requested: CPU and memory count as requested; else containers that ask for none count with the defaults.
    """

    def __init__(self, resources: Sequence[ResourceSpec], *, use_requested: bool) -> None:
        self._names = tuple(each.name for each in resources)
        self._use_requested = use_requested

    def of_node(self, wanted: dict[str, int], node: NodeInfo) -> tuple[Int64, Int64, Int64]:
        """(what the pod wants [S, 1], what others have [S, 1], what there is [S, 1])"""
        wishes, requested, allocatable = [], [], []
        for name in self._names:
            wish, there = wanted.get(name, 0), node.allocatable.get(name, 0)
            used = node.requested.get(name, 0)
            if not self._use_requested and name in ("cpu", "memory"):
                used = node.non_zero_milli_cpu if name == "cpu" else node.non_zero_memory
            counts = there != 0 and not _bypassed(name, wish)
            wishes.append(wish if counts else 0)
            requested.append(used if counts else 0)
            allocatable.append(there if counts else 0)
        return _column(wishes), _column(requested), _column(allocatable)

    def of_rows(self, wanted: dict[str, int], snapshot: Snapshot, rows: Rows) -> tuple[Int64, Int64, Int64]:
        """(what the pod wants [S, 1], what others have [S, K], what there is [S, K])"""
        columns = snapshot.columns
        shape = (len(self._names), len(rows))
        requested, allocatable = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        wishes = []
        for index, name in enumerate(self._names):
            wish = wanted.get(name, 0)
            wishes.append(wish)
            if _bypassed(name, wish):
                continue
            resource = columns.resource(name)
            used = columns.requested[resource]
            if not self._use_requested and name in ("cpu", "memory"):
                used = columns.non_zero[0 if name == "cpu" else 1]
            allocatable[index] = at(columns.allocatable[resource], rows, snapshot)
            requested[index] = at(used, rows, snapshot)
        return _column(wishes), requested, allocatable


def _column(amounts: list[int]) -> Int64:
    return np.array(amounts, np.int64)[:, None]


def _bypassed(name: str, wanted: int) -> bool:
    """An extended resource that the pod does not ask for says nothing about where it should go."""
    return name not in ("cpu", "memory", "ephemeral-storage") and (wanted == 0 or not is_scalar_resource(name))


def weighted_mean(resources: Sequence[ResourceSpec], score: Callable[[Int64, Int64], Int64]) -> Scorer:
    """Mean of the resources' scores by weight, rounded down; `score` is given no allocatable of 0."""
    weights = np.array([each.weight for each in resources], np.int64)[:, None]  # [S, 1]

    def scorer(requested: Int64, allocatable: Int64) -> Scores:
        present = allocatable != 0  # [S, K]
        scores = np.where(present, score(requested, np.where(present, allocatable, 1)), 0)
        weight_sum = (weights * present).sum(axis=0)  # [K]
        mean: Scores = (scores * weights).sum(axis=0) // np.maximum(weight_sum, 1)
        return mean

    return scorer


def least_allocated(requested: Int64, allocatable: Int64) -> Int64:
    """100 for an empty node, 0 for a full one."""
    return np.where(requested > allocatable, 0, (allocatable - requested) * MAX_NODE_SCORE // allocatable)


def most_allocated(requested: Int64, allocatable: Int64) -> Int64:
    """0 for an empty node, 100 for a full one."""
    return np.minimum(requested, allocatable) * MAX_NODE_SCORE // allocatable


def requested_to_capacity_ratio(resources: Sequence[ResourceSpec], shape: Sequence[UtilizationShapePoint]) -> Scorer:
    """Mean by weight of a broken linear function of the utilization, over the resources that score above 0."""
    weights = np.array([each.weight for each in resources], np.int64)[:, None]  # [S, 1]
    points = [(point.utilization, point.score * _SCORE_PER_SHAPE_SCORE) for point in shape]
    of_percent = np.array([_broken_linear(points, percent) for percent in range(_MAX_UTILIZATION + 1)], np.int64)

    def scorer(requested: Int64, allocatable: Int64) -> Scores:
        present = allocatable != 0  # [S, K]
        capacity = np.where(present, allocatable, 1)
        percent = np.where(requested > capacity, _MAX_UTILIZATION, requested * _MAX_UTILIZATION // capacity)
        scores = np.where(present, of_percent[np.clip(percent, 0, _MAX_UTILIZATION)], 0)
        weight_sum = (weights * (scores > 0)).sum(axis=0)  # [K]
        mean = (scores * weights).sum(axis=0) / np.maximum(weight_sum, 1)
        rounded: Scores = np.floor(mean + 0.5).astype(np.int64)  # Go rounds halves away from zero
        return rounded

    return scorer


def _broken_linear(points: Sequence[tuple[int, int]], x: int) -> int:
    for index, (at_x, y) in enumerate(points):
        if x <= at_x:
            if index == 0:
                return y
            before_x, before_y = points[index - 1]
            return before_y + math.trunc((y - before_y) * (x - before_x) / (at_x - before_x))
    return points[-1][1]


def balance(requested: Int64, allocatable: Int64) -> Scores:
    """100 where all resources are used to the same share, less by the standard deviation of the shares."""
    present = allocatable != 0  # [S, K]
    # float64, and truncated at the end alone, as Go does
    share = np.minimum(requested / np.where(present, allocatable, 1), 1.0)  # [S, K]
    if len(share) == 2:
        deviation = np.where(present.all(axis=0), np.abs((share[0] - share[1]) / 2), 0.0)  # [K]
        return ((1 - deviation) * float(MAX_NODE_SCORE)).astype(np.int64)
    count = present.sum(axis=0)  # [K]
    deviation = np.zeros(share.shape[1])
    for column in range(share.shape[1]):
        shares = share[present[:, column], column].tolist()
        if count[column] == 2:
            deviation[column] = abs((shares[0] - shares[1]) / 2)
        elif count[column] > 2:
            mean = sum(shares) / len(shares)
            squares = 0.0
            for each in shares:
                squares += (each - mean) * (each - mean)
            deviation[column] = math.sqrt(squares / len(shares))
    return ((1 - deviation) * float(MAX_NODE_SCORE)).astype(np.int64)


def balance_gained(before: Scores, after: Scores) -> Scores:
    """75 where the pod leaves the balance as it is, up to 100 where it improves it, down to 50 where it spoils it."""
    return (3 * MAX_NODE_SCORE // 2 + after - before) // 2
