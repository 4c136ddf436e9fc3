"""Scoring by resource utilization, shared by NodeResourcesFit, NodeResourcesBalancedAllocation and VolumeBinding.

Axes: S scored resources, K nodes. Requested and allocatable amounts are int64 (millicores, bytes, units). A resource
that the node does not have is left out of its score, as is an extended resource that the pod does not request; its
allocatable amount is then 0 here.
Source: plugins/noderesources of v1.36; integer divisions and float64 truncations are at the same places as in Go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from kubeloop.scheduler.api.extension_points import MAX_NODE_SCORE
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import select_rows
from kubeloop.scheduler.cache.arrays import Rows, Scores
from kubeloop.scheduler.cache.node_info import NodeInfo, is_scalar_resource, may_be_devices
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import ResourceSpec, UtilizationShapePoint

Int64 = npt.NDArray[np.int64]
Allocation = tuple[int, int, int]
"""One resource on one node: requested by other pods, requested with the pod, allocatable; all 0 if left out."""

_NO_ALLOCATION: Allocation = (0, 0, 0)


class Scorer(Protocol):
    """A scoring strategy, in a per-node and an array form."""

    def score_node(self, allocations: Sequence[Allocation]) -> int: ...

    def score_rows(self, requested: Int64, allocatable: Int64) -> Scores:
        """Return scores [K]. requested [S, K] includes the pod; allocatable [S, K] is 0 if a resource is left out."""
        ...


MAX_UTILIZATION = 100
_EXACT_IN_FLOAT = 1 << 46  # 64 Ti; 100 times this is below 2^53
_SCORE_PER_SHAPE_SCORE = MAX_NODE_SCORE // 10


CountDevices = Callable[[str, str, Mapping[str, str]], tuple[int, int]]
"""(extended resource, node, labels of the node) -> (devices that provide it, those in use)."""


def scored_devices(resources: Iterable[ResourceSpec], handle: Handle) -> CountDevices | None:
    """Return how to count devices; None if no scored resource can be provided by devices."""
    if not handle.feature_gates.enabled("DRAExtendedResource"):
        return None
    if not any(may_be_devices(resource.name) for resource in resources):
        return None
    return lambda name, node, labels: handle.cluster_devices().count_devices(name, node, labels)


class ResourceAllocations:
    """Requested and allocatable amounts of the scored resources.

    use_requested: CPU and memory as requested; otherwise containers without requests count with the default amounts.
    include_unrequested: count extended resources that the pod does not request. count_devices: for extended resources
    that devices provide, see scored_devices.
    """

    def __init__(
        self,
        resources: Sequence[ResourceSpec],
        *,
        use_requested: bool,
        include_unrequested: bool = False,
        count_devices: CountDevices | None = None,
    ) -> None:
        self._names = tuple(resource.name for resource in resources)
        self._use_requested = use_requested
        self._include_unrequested = include_unrequested
        self._count_devices = count_devices

    def of_node(self, pod_requests: Mapping[str, int], node: NodeInfo) -> list[Allocation]:
        """Return the allocation of each scored resource, in the order of the configuration."""
        allocations = []
        for name in self._names:
            pod_request, allocatable = pod_requests.get(name, 0), node.allocatable.get(name, 0)
            if not allocatable and self._is_device(name, pod_request):
                allocatable, used = self._devices(name, node)
                allocations.append((used, used + pod_request, allocatable) if allocatable else _NO_ALLOCATION)
                continue
            if not allocatable or self._is_bypassed(name, pod_request):
                allocations.append(_NO_ALLOCATION)
                continue
            used = node.requested.get(name, 0)
            if not self._use_requested and name in ("cpu", "memory"):
                used = node.non_zero_milli_cpu if name == "cpu" else node.non_zero_memory
            allocations.append((used, used + pod_request, allocatable))
        return allocations

    def of_rows(self, pod_requests: dict[str, int], snapshot: Snapshot, rows: Rows) -> tuple[Int64, Int64, Int64]:
        """Return (requested by the pod [S, 1], requested by other pods [S, K], allocatable [S, K])."""
        columns = snapshot.columns
        shape = (len(self._names), len(rows))
        requested, allocatable = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        incoming = []
        for index, name in enumerate(self._names):
            pod_request = pod_requests.get(name, 0)
            incoming.append(pod_request)
            if self._is_bypassed(name, pod_request):
                continue
            resource = columns.resource(name)
            used = columns.requested[resource]
            if not self._use_requested and name in ("cpu", "memory"):
                used = columns.non_zero[0 if name == "cpu" else 1]
            allocatable[index] = select_rows(columns.allocatable[resource], rows, snapshot)
            requested[index] = select_rows(used, rows, snapshot)
            if self._is_device(name, pod_request):
                for position in np.flatnonzero(allocatable[index] == 0).tolist():
                    node = snapshot.node_infos[int(rows[position])]
                    allocatable[index, position], requested[index, position] = self._devices(name, node)
        return np.array(incoming, np.int64)[:, None], requested, allocatable

    def _is_device(self, name: str, pod_request: int) -> bool:
        return self._count_devices is not None and pod_request != 0 and may_be_devices(name)

    def _devices(self, name: str, node: NodeInfo) -> tuple[int, int]:
        """Return (devices of the node that provide a resource, those in use)."""
        assert self._count_devices is not None
        assert node.node is not None
        return self._count_devices(name, node.name, node.node.metadata.labels)

    def _is_bypassed(self, name: str, pod_request: int) -> bool:
        """Return True if the resource is left out of scoring: an extended resource that the pod does not request."""
        if name in ("cpu", "memory", "ephemeral-storage"):
            return False
        return not is_scalar_resource(name) or (pod_request == 0 and not self._include_unrequested)


class LeastAllocated:
    """Scores 100 for an empty node and 0 for a full one: weighted mean over the resources, rounded down."""

    def __init__(self, resources: Sequence[ResourceSpec]) -> None:
        self._weights = [resource.weight for resource in resources]

    def score_node(self, allocations: Sequence[Allocation]) -> int:
        return _mean_down(allocations, self._weights, _free_share)

    def score_rows(self, requested: Int64, allocatable: Int64) -> Scores:
        capacity = np.maximum(allocatable, 1)
        free = np.maximum(capacity - requested, 0)
        return _mean_down_rows(_percent(free, capacity), allocatable, self._weights)


class MostAllocated:
    """Scores 0 for an empty node and 100 for a full one: weighted mean over the resources, rounded down."""

    def __init__(self, resources: Sequence[ResourceSpec]) -> None:
        self._weights = [resource.weight for resource in resources]

    def score_node(self, allocations: Sequence[Allocation]) -> int:
        return _mean_down(allocations, self._weights, _used_share)

    def score_rows(self, requested: Int64, allocatable: Int64) -> Scores:
        capacity = np.maximum(allocatable, 1)
        return _mean_down_rows(_percent(np.minimum(requested, capacity), capacity), allocatable, self._weights)


def _percent(numerator: Int64, denominator: Int64) -> Int64:
    """Return 100 * numerator // denominator [S, K], for 0 <= numerator <= denominator and denominator > 0."""
    if denominator.max(initial=0) < _EXACT_IN_FLOAT:
        # Several times faster than integer division, with the same result: a quotient below an integer (at most 100)
        # is at least 1 / denominator below it, a gap that float64 resolves.
        quotient = (numerator * MAX_NODE_SCORE) / denominator
        return quotient.astype(np.int64)  # towards 0
    return numerator * MAX_NODE_SCORE // denominator


def _free_share(requested: int, allocatable: int) -> int:
    return 0 if requested > allocatable else (allocatable - requested) * MAX_NODE_SCORE // allocatable


def _used_share(requested: int, allocatable: int) -> int:
    return min(requested, allocatable) * MAX_NODE_SCORE // allocatable


def _mean_down(allocations: Sequence[Allocation], weights: Sequence[int], share: Callable[[int, int], int]) -> int:
    total = weight_sum = 0
    for (_, requested, allocatable), weight in zip(allocations, weights, strict=True):
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
    """Scores each resource by a piecewise linear function of its utilization: weighted mean of the scores above 0."""

    def __init__(self, resources: Sequence[ResourceSpec], shape: Sequence[UtilizationShapePoint]) -> None:
        self._weights = [resource.weight for resource in resources]
        self._score_by_percent = score_by_percent(shape)

    def score_node(self, allocations: Sequence[Allocation]) -> int:
        total = weight_sum = 0
        for (_, requested, allocatable), weight in zip(allocations, self._weights, strict=True):
            if not allocatable:
                continue
            full = requested > allocatable
            score = self._score_by_percent[MAX_UTILIZATION if full else requested * MAX_UTILIZATION // allocatable]
            if score > 0:
                total += score * weight
                weight_sum += weight
        return math.floor(total / weight_sum + 0.5) if weight_sum else 0  # Go rounds halves away from zero

    def score_rows(self, requested: Int64, allocatable: Int64) -> Scores:
        weights = np.array(self._weights, np.int64)[:, None]  # [S, 1]
        present = allocatable != 0  # [S, K]
        capacity = np.where(present, allocatable, 1)
        percent = np.where(requested > capacity, MAX_UTILIZATION, requested * MAX_UTILIZATION // capacity)
        scores = np.where(present, np.array(self._score_by_percent, np.int64)[np.clip(percent, 0, MAX_UTILIZATION)], 0)
        weight_sum = (weights * (scores > 0)).sum(axis=0)  # [K]
        mean = (scores * weights).sum(axis=0) / np.maximum(weight_sum, 1)
        rounded: Scores = np.floor(mean + 0.5).astype(np.int64)
        return rounded


def score_by_percent(shape: Iterable[UtilizationShapePoint]) -> list[int]:
    """Return the score for each utilization from 0 to 100 percent, linear between the points of the shape."""
    points = [(point.utilization, point.score * _SCORE_PER_SHAPE_SCORE) for point in shape]
    return [_piecewise_linear(points, percent) for percent in range(MAX_UTILIZATION + 1)]


def _piecewise_linear(points: Sequence[tuple[int, int]], x: int) -> int:
    for index, (at_x, y) in enumerate(points):
        if x <= at_x:
            if index == 0:
                return y
            before_x, before_y = points[index - 1]
            return before_y + math.trunc((y - before_y) * (x - before_x) / (at_x - before_x))
    return points[-1][1]


def balance_of_node(requested: Sequence[int], allocatable: Sequence[int]) -> int:
    """Return 100 if all resources have equal utilization, less for a larger standard deviation of the utilization."""
    # float64, truncated only at the end, as in Go
    shares = [min(used / capacity, 1.0) for used, capacity in zip(requested, allocatable, strict=True) if capacity]
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
    """Return balance_of_node for many nodes: requested, allocatable [S, K] -> [K]."""
    if len(requested) == 2:
        everywhere = allocatable.all()
        share = requested / (allocatable if everywhere else np.maximum(allocatable, 1))  # [S, K]
        np.minimum(share, 1.0, out=share)
        deviation = share[0]  # [K], computed in place: allocating arrays of all nodes dominates the cost
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
    return np.array([balance_of_node(used, capacity) for used, capacity in columns], np.int64)


Score = TypeVar("Score", int, Scores)


def balance_gained(before: Score, after: Score) -> Score:
    """Return 75 if the pod leaves the balance unchanged, up to 100 if it improves it, down to 50 if it worsens it."""
    return (3 * MAX_NODE_SCORE // 2 + after - before) // 2
