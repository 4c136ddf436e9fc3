"""The pods of nodes as arrays, and the choice of victims on many nodes at once.

For preemptors that nothing but the sum of requests keeps from a node. Rows are filled when they are first read. Axes:
N nodes, K rows, P pods of a node, most important first, C classes of pods, R resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt

from kubeloop.scheduler.api.handle import PodNominator
from kubeloop.scheduler.cache.arrays import Mask, Rows
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.pod_classes import LabelClass
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.versioned_cache import VersionedCache
from kubeloop.scheduler.plugins.preemption.candidates import PRIORITY_SHIFT, Candidate, importance_at
from kubeloop.scheduler.plugins.preemption.disruption_budgets import Budget

Int64 = npt.NDArray[np.int64]

MAX_PODS = 256
"""Most pods of a node in the table, whose width is that of the node with the most."""

_NO_POD = -1
_NOT_STARTED = 1 << 62
_NO_PODS = 1 << 62  # the lowest priority on a node without pods
_MAX_AMOUNT = 1 << 53  # sums of such requests are within int64
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


class VictimRows(msgspec.Struct):
    """Rows where preemption helps, and the victims there.

    names, pods: of each node [K]. victims: bool [K, P]. ranks: int64 [5, K], the criteria of best_candidates(), each
    with the lowest value best.
    """

    names: list[str]
    pods: list[list[PodInfo]]
    victims: Mask
    ranks: Int64

    def __len__(self) -> int:
        return len(self.names)

    def first(self, count: int) -> VictimRows:
        return VictimRows(self.names[:count], self.pods[:count], self.victims[:count], self.ranks[:, :count])

    def best(self) -> Candidate:
        """Return the first of the best candidates."""
        best = np.arange(len(self))
        for ranks in self.ranks:
            criterion = ranks[best]
            best = best[criterion == criterion.min()]
        return self.candidate(int(best[0]))

    def candidate(self, index: int) -> Candidate:
        pods = self.pods[index]
        victims = tuple(pods[position] for position in np.flatnonzero(self.victims[index]).tolist())
        return Candidate(self.names[index], victims, int(self.ranks[0, index]))


class VictimTable:
    """The pods of each row of one snapshot: codes int32 [N, P] of their classes, starts int64 [N, P] in microseconds.

    lowest_priority: int64 [N], of the pods on each node.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._generation = -1  # of lowest_priority
        self._clear()

    def _clear(self) -> None:
        count = len(self.snapshot)
        self._layout = self.snapshot.layout
        self._filled_at = np.full(count, -1, np.int64)  # [N] generation of the snapshot
        self._pods: list[list[PodInfo]] = [[] for _ in range(count)]
        self._codes = np.full((count, 0), _NO_POD, np.int32)
        self._starts = np.zeros((count, 0), np.int64)
        self.lowest_priority: Int64 = np.zeros(count, np.int64)
        self._code_of: dict[tuple[int, LabelClass, tuple[tuple[str, int], ...]], int] = {}
        self._classes: list[PodInfo] = []  # one pod of each class
        self._amounts: VersionedCache[str, Int64] = VersionedCache(64)  # by resource [C]
        self._covered: VersionedCache[Budget, Mask] = VersionedCache(4096)  # [C]

    def refresh(self) -> None:
        """Bring `lowest_priority` up to date with the snapshot, and drop rows of another layout."""
        snapshot = self.snapshot
        if self._layout != snapshot.layout or len(self._classes) > 4 * len(snapshot) + 1024:
            self._clear()
            self._generation = -1
        infos, lowest = snapshot.node_infos, self.lowest_priority
        for row in snapshot.changed_since(self._generation).tolist():
            lowest[row] = min([pod.priority for pod in infos[row].pods.values()], default=_NO_PODS)
        self._generation = snapshot.generation

    def _fill(self, rows: Rows, now: datetime) -> None:
        """Fill those of `rows` that have changed since they were filled."""
        infos, importance, code_of = self.snapshot.node_infos, importance_at(now), self._code_of
        stale = rows[self._filled_at[rows] < self.snapshot.row_generation[rows]].tolist()
        missing = max([len(infos[row].pods) for row in stale], default=0) - self._codes.shape[1]
        if missing > 0:
            self._codes = np.pad(self._codes, ((0, 0), (0, missing)), constant_values=_NO_POD)
            self._starts = np.pad(self._starts, ((0, 0), (0, missing)))
        for row in stale:
            pods = self._pods[row] = sorted(infos[row].pods.values(), key=importance)
            codes, starts, is_final = [], [], True
            for pod in pods:
                key = (pod.priority, pod.label_class, tuple(pod.requests.items()))
                code = code_of.get(key)
                if code is None:
                    code = code_of[key] = len(self._classes)
                    self._classes.append(pod)
                codes.append(code)
                start = pod.pod.status.start_time
                # A start in the future comes before or after pods that have not started, depending on `now`.
                is_final = is_final and (start is None or start <= now)
                starts.append(_NOT_STARTED if start is None else _microseconds(start))
            self._codes[row, : len(pods)], self._codes[row, len(pods) :] = codes, _NO_POD
            self._starts[row, : len(pods)] = starts
            self._filled_at[row] = self.snapshot.generation if is_final else -1

    def _by_class(self, name: str) -> Int64:
        """Return the request of each class for a resource [C]; "": the priorities. Raises OverflowError."""

        def compute() -> Int64:
            if not name:
                return np.array([pod.priority for pod in self._classes], np.int64)
            amounts = [pod.requests.get(name, 0) for pod in self._classes]
            if max(amounts) >= _MAX_AMOUNT:
                raise OverflowError
            return np.array(amounts, np.int64)

        return self._amounts.get(name, len(self._classes), compute)

    def victims(
        self,
        rows: Rows,
        pod: PodInfo,
        needed: Mapping[str, int],
        nominator: PodNominator,
        budgets: Sequence[Budget],
        now: datetime,
    ) -> VictimRows:
        """Return those of `rows` on which `pod` fits without pods of lower priority, in the same order.

        rows: each with such pods, at most MAX_PODS. needed: amount of each resource. budgets: without disrupted pods.
        Raises OverflowError for requests that are too large for arrays.
        """
        self._fill(rows, now)
        codes, priorities, lower, requests = self._below(rows, pod.priority, needed)
        slots, free = self._free(rows, pod, needed, nominator)
        slots += lower.sum(axis=1)
        free += requests.sum(axis=2)
        fits = (slots >= 0) & (free >= 0).all(axis=0)
        violating = self._violating(codes, lower, budgets)
        victims = np.zeros_like(lower)
        for to_reprieve in (lower & violating, lower & ~violating):
            for position in np.flatnonzero(to_reprieve.any(axis=0)).tolist():
                request, tried = requests[:, :, position], fits & to_reprieve[:, position]
                reprieved = tried & (slots >= 1) & (free >= request).all(axis=0)
                slots -= reprieved
                free -= request * reprieved
                victims[:, position] |= tried & ~reprieved
        helped = np.flatnonzero(victims.any(axis=1))
        victims, priorities, rows = victims[helped], priorities[helped], rows[helped]
        highest = np.where(victims, priorities, -PRIORITY_SHIFT).max(axis=1, initial=-PRIORITY_SHIFT)
        starts = self._starts[rows]
        starts[starts == _NOT_STARTED] = _microseconds(now)
        starts[~victims | (priorities < highest[:, None])] = _NOT_STARTED
        ranks = [
            (victims & violating[helped]).sum(axis=1),
            highest,
            ((priorities + PRIORITY_SHIFT) * victims).sum(axis=1),
            victims.sum(axis=1),
            -starts.min(axis=1, initial=_NOT_STARTED),
        ]
        names: list[str] = self.snapshot.names[rows].tolist()
        return VictimRows(names, [self._pods[row] for row in rows.tolist()], victims, np.array(ranks, np.int64))

    def sums_below(self, rows: Rows, priority: int, needed: Iterable[str]) -> tuple[Int64, dict[str, Int64]]:
        """Return the number of pods with a lower priority on filled rows [K], and their requests by resource [K]."""
        _, _, lower, requests = self._below(rows, priority, needed)
        return lower.sum(axis=1), dict(zip(needed, requests.sum(axis=2), strict=True))

    def _below(
        self, rows: Rows, priority: int, needed: Iterable[str]
    ) -> tuple[npt.NDArray[np.int32], Int64, Mask, Int64]:
        """Return (codes, priorities, which pods have a lower priority [K, P], the requests of these [R, K, P])."""
        codes = self._codes[rows]
        priorities = self._by_class("")[codes]
        lower = (codes != _NO_POD) & (priorities < priority)
        requests = [self._by_class(name)[codes] * lower for name in needed]
        return codes, priorities, lower, np.array(requests, np.int64).reshape(-1, *codes.shape)

    def _free(
        self, rows: Rows, pod: PodInfo, needed: Mapping[str, int], nominator: PodNominator
    ) -> tuple[Int64, Int64]:
        """Return (slots for further pods [K], free amounts [R, K]), with the incoming and the nominated pods."""
        columns, row_of = self.snapshot.columns, self.snapshot.row_of
        slots = columns.allocatable[columns.resource("pods"), rows] - columns.pod_count[rows] - 1
        free = np.zeros((len(needed), len(rows)), np.int64)
        for number, (name, amount) in enumerate(needed.items()):
            resource = columns.resource(name)  # may add a row, which replaces the arrays of `columns`
            free[number] = columns.allocatable[resource, rows] - columns.requested[resource, rows] - amount
        if nominator.nodes():
            has_nominated = np.zeros(len(self.snapshot), np.bool_)
            has_nominated[[row_of[name] for name in nominator.nodes() if name in row_of]] = True
            for position in np.flatnonzero(has_nominated[rows]).tolist():
                for other in nominator.pods_on(self.snapshot.names[rows[position]]):
                    if other.priority >= pod.priority and other.uid != pod.uid:
                        slots[position] -= 1
                        free[:, position] -= [other.requests.get(name, 0) for name in needed]
        return slots, free

    def _violating(self, codes: npt.NDArray[np.int32], lower: Mask, budgets: Sequence[Budget]) -> Mask:
        """Return which pods the eviction of all of `lower` would evict in violation of a budget: bool [K, P]."""
        violating = np.zeros_like(lower)
        for budget in budgets:
            covers = partial(self._covered_by, budget)
            covered = self._covered.get(budget, len(self._classes), covers)[codes] & lower
            violating |= covered & (np.cumsum(covered, axis=1) > budget.disruptions_allowed)
        return violating

    def _covered_by(self, budget: Budget) -> Mask:
        return np.array([budget.covers(pod.pod) for pod in self._classes], np.bool_)


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND
