"""Scores by how full a node would be: what NodeResourcesFit and NodeResourcesBalancedAllocation have in common.

Axes: S scored resources, K nodes. Requested and allocatable amounts are int64 (millicores, bytes, units). A resource
that a node does not have, or an extended one that the pod does not ask for, takes no part; its allocatable is 0 here.
Source: plugins/noderesources of v1.36; integer divisions and float64 truncations are where Go has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from kubeloop.scheduler.api.extension_points import MAX_NODE_SCORE
from kubeloop.scheduler.api.results import select_rows
from kubeloop.scheduler.cache.arrays import Rows, Scores
from kubeloop.scheduler.cache.node_info import is_scalar_resource
from kubeloop.scheduler.config.plugin_args import ResourceSpec, UtilizationShapePoint

if TYPE_CHECKING:
    from kubeloop.scheduler.cache.node_info import NodeInfo
    from kubeloop.scheduler.cache.snapshot import Snapshot

Int64 = npt.NDArray[np.int64]
Amounts = tuple[int, int, int]
"""Of one resource on one node: requested by others, requested with the pod, allocatable; 0 if it takes no part."""

_ABSENT: Amounts = (0, 0, 0)


class Scorer(Protocol):
    """A scoring strategy, for one node and for many."""

    def of_node(self, amounts: Sequence[Amounts]) -> int: ...

    def of_rows(self, requested: Int64, allocatable: Int64) -> Scores:
        """requested [S, K] with the pod, allocatable [S, K], 0 if a resource takes no part -> scores [K]."""
        ...


_MAX_UTILIZATION = 100
_EXACT_IN_FLOAT = 1 << 46  # 64 Ti: a hundred times that is below 2^53
_SCORE_PER_SHAPE_SCORE = MAX_NODE_SCORE // 10


class ResourceAmounts:
    """Looks up what `resources` are requested and allocatable.

    use_requested: CPU and memory count as requested; else containers that ask for none count with the defaults.
    """

    def __init__(self, resources: Sequence[ResourceSpec], *, use_requested: bool) -> None:
        self._names = tuple(each.name for each in resources)
        self._use_requested = use_requested

    def of_node(self, wanted: Mapping[str, int], node: NodeInfo) -> list[Amounts]:
        """(requested by others, requested with the pod, allocatable) of each scored resource that counts there."""
        found = []
        for name in self._names:
            wish, there = wanted.get(name, 0), node.allocatable.get(name, 0)
            if not there or _bypassed(name, wish):
                found.append(_ABSENT)
                continue
            used = node.requested.get(name, 0)
            if not self._use_requested and name in ("cpu", "memory"):
                used = node.non_zero_milli_cpu if name == "cpu" else node.non_zero_memory
            found.append((used, used + wish, there))
        return found

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
            allocatable[index] = select_rows(columns.allocatable[resource], rows, snapshot)
            requested[index] = select_rows(used, rows, snapshot)
        return _column(wishes), requested, allocatable


def _column(amounts: list[int]) -> Int64:
    return np.array(amounts, np.int64)[:, None]


def _bypassed(name: str, wanted: int) -> bool:
    """An extended resource that the pod does not ask for says nothing about where it should go."""
    return name not in ("cpu", "memory", "ephemeral-storage") and (wanted == 0 or not is_scalar_resource(name))


class LeastAllocated:
    """100 for an empty node, 0 for a full one: the mean by weight of the resources, rounded down."""

    def __init__(self, resources: Sequence[ResourceSpec]) -> None:
        self._weights = [each.weight for each in resources]

    def of_node(self, amounts: Sequence[Amounts]) -> int:
        return _mean_down(amounts, self._weights, _free_share)

    def of_rows(self, requested: Int64, allocatable: Int64) -> Scores:
        capacity = np.maximum(allocatable, 1)
        free = np.maximum(capacity - requested, 0)
        return _mean_down_rows(_percent(free, capacity), allocatable, self._weights)


class MostAllocated:
    """0 for an empty node, 100 for a full one: the mean by weight of the resources, rounded down."""

    def __init__(self, resources: Sequence[ResourceSpec]) -> None:
        self._weights = [each.weight for each in resources]

    def of_node(self, amounts: Sequence[Amounts]) -> int:
        return _mean_down(amounts, self._weights, _used_share)

    def of_rows(self, requested: Int64, allocatable: Int64) -> Scores:
        capacity = np.maximum(allocatable, 1)
        return _mean_down_rows(_percent(np.minimum(requested, capacity), capacity), allocatable, self._weights)


def _percent(part: Int64, whole: Int64) -> Int64:
    """part [S, K] of whole [S, K], rounded down; 0 <= part <= whole, and whole is not 0."""
    if whole.max(initial=0) < _EXACT_IN_FLOAT:
        # Several times faster than dividing integers, and the same: a quotient below an integer of at most 100 is so
        # by at least 1 / whole, which float64 does not round away.
        quotient = (part * MAX_NODE_SCORE) / whole
        return quotient.astype(np.int64)  # towards 0
    return part * MAX_NODE_SCORE // whole


def _free_share(requested: int, allocatable: int) -> int:
    return 0 if requested > allocatable else (allocatable - requested) * MAX_NODE_SCORE // allocatable


def _used_share(requested: int, allocatable: int) -> int:
    return min(requested, allocatable) * MAX_NODE_SCORE // allocatable


def _mean_down(amounts: Sequence[Amounts], weights: Sequence[int], share: Callable[[int, int], int]) -> int:
    total = weight_sum = 0
    for (_, requested, allocatable), weight in zip(amounts, weights, strict=True):
        if allocatable:
            total += share(requested, allocatable) * weight
            weight_sum += weight
    return total // weight_sum if weight_sum else 0


def _mean_down_rows(scores: Int64, allocatable: Int64, weights: Sequence[int]) -> Scores:
    """scores, allocatable [S, K] -> [K]."""
    column = np.array(weights, np.int64)[:, None]  # [S, 1]
    if allocatable.all():
        weighted = scores if max(weights) == 1 else scores * column
        everywhere: Scores = weighted.sum(axis=0) // sum(weights)
        return everywhere
    present = allocatable != 0  # [S, K]
    mean: Scores = (scores * column * present).sum(axis=0) // np.maximum((column * present).sum(axis=0), 1)
    return mean


class RequestedToCapacityRatio:
    """A broken linear function of each resource's utilization; the mean by weight of those that score above 0."""

    def __init__(self, resources: Sequence[ResourceSpec], shape: Sequence[UtilizationShapePoint]) -> None:
        self._weights = [each.weight for each in resources]
        points = [(point.utilization, point.score * _SCORE_PER_SHAPE_SCORE) for point in shape]
        self._of_percent = [_broken_linear(points, percent) for percent in range(_MAX_UTILIZATION + 1)]

    def of_node(self, amounts: Sequence[Amounts]) -> int:
        total = weight_sum = 0
        for (_, requested, allocatable), weight in zip(amounts, self._weights, strict=True):
            if not allocatable:
                continue
            full = requested > allocatable
            score = self._of_percent[_MAX_UTILIZATION if full else requested * _MAX_UTILIZATION // allocatable]
            if score > 0:
                total += score * weight
                weight_sum += weight
        return math.floor(total / weight_sum + 0.5) if weight_sum else 0  # Go rounds halves away from zero

    def of_rows(self, requested: Int64, allocatable: Int64) -> Scores:
        weights = np.array(self._weights, np.int64)[:, None]  # [S, 1]
        present = allocatable != 0  # [S, K]
        capacity = np.where(present, allocatable, 1)
        percent = np.where(requested > capacity, _MAX_UTILIZATION, requested * _MAX_UTILIZATION // capacity)
        scores = np.where(present, np.array(self._of_percent, np.int64)[np.clip(percent, 0, _MAX_UTILIZATION)], 0)
        weight_sum = (weights * (scores > 0)).sum(axis=0)  # [K]
        mean = (scores * weights).sum(axis=0) / np.maximum(weight_sum, 1)
        rounded: Scores = np.floor(mean + 0.5).astype(np.int64)
        return rounded


def _broken_linear(points: Sequence[tuple[int, int]], x: int) -> int:
    for index, (at_x, y) in enumerate(points):
        if x <= at_x:
            if index == 0:
                return y
            before_x, before_y = points[index - 1]
            return before_y + math.trunc((y - before_y) * (x - before_x) / (at_x - before_x))
    return points[-1][1]


def balance_of_node(requested: Sequence[int], allocatable: Sequence[int]) -> int:
    """100 where all resources are used to the same share, less by the standard deviation of the shares."""
    # float64, and truncated at the end alone, as Go does
    shares = [min(used / there, 1.0) for used, there in zip(requested, allocatable, strict=True) if there]
    deviation = 0.0
    if len(shares) == 2:
        deviation = abs((shares[0] - shares[1]) / 2)
    elif len(shares) > 2:
        mean = sum(shares) / len(shares)
        squares = 0.0
        for share in shares:
            squares += (share - mean) * (share - mean)
        deviation = math.sqrt(squares / len(shares))
    return int((1 - deviation) * float(MAX_NODE_SCORE))


def balance(requested: Int64, allocatable: Int64) -> Scores:
    """balance_of_node of many nodes: requested, allocatable [S, K] -> [K]."""
    if len(requested) == 2:
        everywhere = allocatable.all()
        share = requested / (allocatable if everywhere else np.maximum(allocatable, 1))  # [S, K]
        np.minimum(share, 1.0, out=share)
        deviation = share[0]  # [K], in place: arrays of all nodes are what this costs
        deviation -= share[1]
        deviation /= 2
        np.abs(deviation, out=deviation)
        if not everywhere:
            deviation[~(allocatable != 0).all(axis=0)] = 0.0
        np.subtract(1, deviation, out=deviation)
        deviation *= float(MAX_NODE_SCORE)
        balanced: Scores = deviation.astype(np.int64)
        return balanced
    columns = zip(requested.T.tolist(), allocatable.T.tolist(), strict=True)
    return np.array([balance_of_node(used, there) for used, there in columns], np.int64)


Score = TypeVar("Score", int, Scores)


def balance_gained(before: Score, after: Score) -> Score:
    """75 where the pod leaves the balance as it is, up to 100 where it improves it, down to 50 where it spoils it."""
    return (3 * MAX_NODE_SCORE // 2 + after - before) // 2
