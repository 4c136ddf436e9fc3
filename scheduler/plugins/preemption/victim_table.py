"""The pods of nodes as arrays, and the choice of victims on many nodes at once.

For preemptors that nothing but the sum of requests keeps from a node. Rows are filled when they are first read. Axes:
N nodes, K rows, P pods of a node, most important first, C classes of pods, R resources.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
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

_MAX_CHOICES = 8
_NO_POD = -1
_NOT_STARTED = 1 << 62
_NO_PODS = 1 << 62  # the lowest priority on a node without pods
_MAX_AMOUNT = 1 << 53  # sums of such requests are within int64
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


class VictimRows(msgspec.Struct):
    """Rows where preemption helps, and the victims there. Valid until the next use of `table`.

    rows: [K]. victims: bool [K, P]. ranks: int64 [5, K], the criteria of best_candidates(), each with the lowest value
    best.
    """

    table: VictimTable
    rows: Rows
    victims: Mask
    ranks: Int64

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, count: int) -> VictimRows:
        return VictimRows(self.table, self.rows[:count], self.victims[:count], self.ranks[:, :count])

    def best(self, now: datetime) -> Candidate:
        """Return the first of the best candidates."""
        *criteria, starts = self.ranks
        starts = np.where(starts == -_NOT_STARTED, -_microseconds(now), starts)
        return self.candidate(int(np.lexsort((starts, *reversed(criteria)))[0]))

    def candidate(self, index: int) -> Candidate:
        row = int(self.rows[index])
        pods = self.table.pods[row]
        victims = tuple(pods[position] for position in np.flatnonzero(self.victims[index]).tolist())
        return Candidate(self.table.snapshot.node_infos[row].name, victims, int(self.ranks[0, index]))


class Choices:
    """The choice of victims for preemptors of one class and priority, cached per row.

    capacity_only: bool [N], nothing but a lack of capacity keeps the preemptor away. stale: bool [N], victims are to be
    chosen. generation: of the snapshot.
    """

    def __init__(self, count: int) -> None:
        self.capacity_only = np.zeros(count, np.bool_)
        self.stale = np.ones(count, np.bool_)
        self.generation = -1
        self._nominations = -1  # version of the nominator
        self._budgets: Sequence[Budget] = ()
        self._helps = np.zeros(count, np.bool_)  # [N]
        self._victims = np.zeros((count, 0), np.bool_)  # [N, P]
        self._ranks = np.zeros((5, count), np.int64)

    def refresh(
        self,
        snapshot: Snapshot,
        changed: Rows,
        capacity_only: Mask,
        nominator: PodNominator,
        budgets: Sequence[Budget],
    ) -> None:
        """Note what has changed: `changed` rows, with their `capacity_only` [K]; nominations; budgets."""
        self.capacity_only[changed], self.stale[changed] = capacity_only, True
        names, row_of = nominator.changed_since(self._nominations), snapshot.row_of
        if names is None or budgets is not self._budgets:
            self.stale[:] = True
        else:
            self.stale[[row_of[name] for name in names if name in row_of]] = True
        self.generation, self._nominations, self._budgets = snapshot.generation, nominator.version, budgets

    def store(self, rows: Rows, chosen: VictimRows, stale: Mask) -> None:
        """Store what was chosen on `rows`; stale: bool [K], where it holds for one point in time only."""
        missing = chosen.victims.shape[1] - self._victims.shape[1]
        if missing > 0:
            self._victims = np.pad(self._victims, ((0, 0), (0, missing)))
        self.stale[rows], self._helps[rows], self._helps[chosen.rows] = stale, False, True
        self._victims[chosen.rows], self._ranks[:, chosen.rows] = chosen.victims, chosen.ranks

    def of(self, table: VictimTable, rows: Rows) -> VictimRows:
        rows = rows[self._helps[rows]]
        return VictimRows(table, rows, self._victims.take(rows, axis=0), self._ranks.take(rows, axis=1))


class VictimTable:
    """The pods of each row of one snapshot: codes int32 [N, P] of their classes, starts int64 [N, P] in microseconds.

    lowest_priority: int64 [N], of the pods on each node. pods: of each filled row.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._generation = -1  # of lowest_priority
        self._clear()

    def _clear(self) -> None:
        count = len(self.snapshot)
        self._layout = self.snapshot.layout
        self._filled_at = np.full(count, -1, np.int64)  # [N] generation of the snapshot
        self.pods: list[list[PodInfo]] = [[] for _ in range(count)]
        self._codes = np.full((count, 0), _NO_POD, np.int32)
        self._starts = np.zeros((count, 0), np.int64)
        self.lowest_priority: Int64 = np.zeros(count, np.int64)
        self._code_of: dict[tuple[int, LabelClass, tuple[tuple[str, int], ...]], int] = {}
        self._classes: list[PodInfo] = []  # one pod of each class
        self._amounts: VersionedCache[str, Int64] = VersionedCache(64)  # by resource [C]
        self._covered: VersionedCache[Budget, Mask] = VersionedCache(4096)  # [C]
        self._choices: dict[Hashable, Choices | None] = {}

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

    def choices(self, key: Hashable) -> Choices | None:
        """Return the choices of a class and priority of preemptors; None for the first pod, perhaps the only one."""
        if key not in self._choices and len(self._choices) >= _MAX_CHOICES:
            self._choices.clear()
        if key in self._choices and self._choices[key] is None:
            self._choices[key] = Choices(len(self.snapshot))
        return self._choices.setdefault(key, None)

    def _fill(self, rows: Rows, now: datetime) -> None:
        """Fill those of `rows` that have changed since they were filled."""
        infos, importance, code_of = self.snapshot.node_infos, importance_at(now), self._code_of
        stale = rows[self._filled_at[rows] < self.snapshot.row_generation[rows]].tolist()
        missing = max([len(infos[row].pods) for row in stale], default=0) - self._codes.shape[1]
        if missing > 0:
            self._codes = np.pad(self._codes, ((0, 0), (0, missing)), constant_values=_NO_POD)
            self._starts = np.pad(self._starts, ((0, 0), (0, missing)))
        for row in stale:
            pods = self.pods[row] = sorted(infos[row].pods.values(), key=importance)
            codes, starts, is_final = [], [], True
            for pod in pods:
                key = (pod.priority, pod.label_class, tuple(pod.requests.items()))
                code = code_of.get(key)
                if code is None:
                    code = code_of[key] = len(self._classes)
                    self._classes.append(pod)
                codes.append(code)
                start = pod.pod.status.start_time
                # A start from `now` on comes before or after pods that have not started, depending on the time.
                is_final = is_final and (start is None or start < now)
                starts.append(_NOT_STARTED if start is None else _microseconds(start))
            self._codes[row, : len(pods)], self._codes[row, len(pods) :] = codes, _NO_POD
            self._starts[row, : len(pods)] = starts
            if not is_final:
                self._starts[row][self._starts[row] == _NOT_STARTED] = _microseconds(now)
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
        choices: Choices | None,
    ) -> VictimRows:
        """Return those of `rows` on which `pod` fits without pods of lower priority, in the same order.

        rows: each with such pods, at most MAX_PODS. needed: amount of each resource. budgets: without disrupted pods.
        choices: refreshed. Raises OverflowError for requests that are too large for arrays.
        """
        stale = rows if choices is None else rows[choices.stale[rows]]
        if choices is not None and not len(stale):
            return choices.of(self, rows)
        self._fill(stale, now)
        chosen = self._choose(stale, pod, needed, nominator, budgets)
        if choices is None:
            return chosen
        choices.store(stale, chosen, self._filled_at[stale] < 0)
        return choices.of(self, rows)

    def _choose(
        self,
        rows: Rows,
        pod: PodInfo,
        needed: Mapping[str, int],
        nominator: PodNominator,
        budgets: Sequence[Budget],
    ) -> VictimRows:
        """Choose the victims on filled rows. Pods that have not started count as _NOT_STARTED in the ranks."""
        codes, priorities, lower, requests = self._below(rows, pod.priority, needed)
        slots, free = self._free(rows, pod, needed, nominator)
        slots += lower.sum(axis=1)
        free += requests.sum(axis=2)
        fits = (slots >= 0) & (free >= 0).all(axis=0)
        if not fits.any():
            return VictimRows(self, rows[:0], lower[:0], np.zeros((5, 0), np.int64))
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
        rows, priorities, violating, victims = rows[helped], priorities[helped], violating[helped], victims[helped]
        highest = np.where(victims, priorities, -PRIORITY_SHIFT).max(axis=1, initial=-PRIORITY_SHIFT)
        starts = self._starts[rows]
        starts[~victims | (priorities < highest[:, None])] = _NOT_STARTED
        ranks = [
            (victims & violating).sum(axis=1),
            highest,
            ((priorities + PRIORITY_SHIFT) * victims).sum(axis=1),
            victims.sum(axis=1),
            -starts.min(axis=1, initial=_NOT_STARTED),
        ]
        return VictimRows(self, rows, victims, np.array(ranks, np.int64))

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
        columns = self.snapshot.columns
        slots = columns.allocatable[columns.resource("pods"), rows] - columns.pod_count[rows] - 1
        free = np.zeros((len(needed), len(rows)), np.int64)
        for number, (name, amount) in enumerate(needed.items()):
            resource = columns.resource(name)  # may add a row, which replaces the arrays of `columns`
            free[number] = columns.allocatable[resource, rows] - columns.requested[resource, rows] - amount
        nodes = nominator.nodes()
        for position, node in enumerate(self.snapshot.names[rows].tolist() if nodes else ()):
            for other in nominator.pods_on(node) if node in nodes else ():
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
