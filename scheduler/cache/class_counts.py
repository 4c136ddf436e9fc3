"""Counts of pods by class and row, and sums over them that are updated incrementally.

A class is an object compared by identity (see pod_classes). Axis: N nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
C = TypeVar("C", bound=Hashable)

_MIN_SUMS, _MAX_SUMS = 512, 4096  # cached sums: four per existing class, within these limits
_MAX_SUM_BYTES = 64 << 20  # each sum is one int64 per node: 1,600 of them at 5,000 nodes
_MIN_WEIGHTS, _MAX_WEIGHTS = 64, 4096  # cached weights of one sum: two per existing class, within these limits
_MAX_LOG = 8192  # logged changes; a sum that is further behind is counted again for changed rows


class RowChanges(Protocol):
    """The part of the snapshot that sums are updated from."""

    generation: int

    def changed_since(self, generation: int) -> npt.NDArray[np.intp]: ...


class _WeightedSum(Generic[C]):
    """For each row, the sum of weight_of(class) times the number of pods over all classes."""

    __slots__ = ("applied_changes", "generation", "values", "weight_of", "weights")

    def __init__(self, weight_of: Callable[[C], int]) -> None:
        self.weight_of = weight_of
        self.weights: dict[C, int] = {}
        self.values: Int64 = np.zeros(0, np.int64)
        self.generation = -1
        self.applied_changes = 0  # number of changes of the counts that the values include

    def weight(self, pod_class: C) -> int:
        weight = self.weights.get(pod_class)
        if weight is None:
            weight = self.weights[pod_class] = self.weight_of(pod_class)
        return weight


class ClassCounts(Generic[C]):
    """Sparse counts of pods by class and row.

    `by_row[row][class]` and `rows_of[class][row]` are the same numbers; neither stores zeros.
    """

    def __init__(self, changes: RowChanges) -> None:
        self._changes = changes
        self.by_row: list[dict[C, int]] = []
        self.rows_of: dict[C, dict[int, int]] = {}
        self.membership = 0  # increases when a class is added or removed
        self._sums: dict[Hashable, _WeightedSum[C]] = {}
        self._log: list[tuple[C, int, int]] = []  # the last changes: (class, row, difference of pods)
        self._dropped_changes = 0  # changes that were removed from the log

    def reorder(self, old_rows: Sequence[int]) -> None:
        """Reorder rows: row r becomes what `old_rows[r]` was; -1 is a new, empty row."""
        by_row = self.by_row
        self.by_row = [by_row[old] if old >= 0 else {} for old in old_rows]
        before, self.rows_of = self.rows_of, {}
        for row, counts in enumerate(self.by_row):
            for pod_class, count in counts.items():
                self.rows_of.setdefault(pod_class, {})[row] = count
        for pod_class in before:
            if pod_class not in self.rows_of:
                self._class_removed(pod_class)
        self.membership += 1
        self._dropped_changes += len(self._log)  # its row numbers are those of the old order
        self._log.clear()
        moved = np.asarray(old_rows, np.intp)  # [N]
        for weighted_sum in self._sums.values():
            weighted_sum.values = reordered_columns(weighted_sum.values, moved)

    def _class_added(self, pod_class: C) -> None:
        """Called when the first pod of a class is added."""

    def _class_removed(self, pod_class: C) -> None:
        """Called when the last pod of a class is removed."""

    def set_row(self, row: int, counts: dict[C, int]) -> None:
        """Replace the counts of `row`. The caller must not change `counts` afterwards."""
        old = self.by_row[row]
        if old == counts:
            return
        rows_of, log = self.rows_of, self._log
        if len(log) > _MAX_LOG:
            self._dropped_changes += len(log) // 2
            del log[: len(log) // 2]
        for pod_class, count in counts.items():
            before = old.get(pod_class, 0)
            if before != count:
                log.append((pod_class, row, count - before))
                rows = rows_of.get(pod_class)
                if rows is None:
                    rows = rows_of[pod_class] = {}
                    self.membership += 1
                    self._class_added(pod_class)
                rows[row] = count
        for pod_class, before in old.items():
            if pod_class not in counts:
                log.append((pod_class, row, -before))
                rows = rows_of[pod_class]
                del rows[row]
                if not rows:
                    del rows_of[pod_class]
                    self.membership += 1
                    self._class_removed(pod_class)
        self.by_row[row] = counts

    def weighted(
        self, key: Hashable, weight_of: Callable[[C], int], candidates: Callable[[], Iterable[C]] | None = None
    ) -> Int64:
        """Return the sum of weight_of(class) over the pods of each row: int64 [N]. Read only.

        weight_of must be pure; the sum is cached under `key` and updated for changed rows. candidates(): the classes
        whose weight may not be 0, to count them without visiting all classes.
        """
        sums, classes = self._sums, len(self.rows_of)
        weighted_sum = sums.pop(key, None)
        if weighted_sum is not None and len(weighted_sum.weights) > min(max(_MIN_WEIGHTS, 2 * classes), _MAX_WEIGHTS):
            weighted_sum.weights.clear()  # most may be those of classes that do not exist any more
        if weighted_sum is None:
            most = min(max(_MIN_SUMS, 4 * classes), _MAX_SUMS, max(16, _MAX_SUM_BYTES // (8 * len(self.by_row) + 1)))
            while len(sums) >= most:
                del sums[next(iter(sums))]  # the least recently used
            weighted_sum = _WeightedSum(weight_of)
            self._count_all(weighted_sum, self.rows_of if candidates is None else candidates())
        elif weighted_sum.applied_changes >= self._dropped_changes:
            self._apply_log(weighted_sum)
        else:
            self._recount_changed_rows(weighted_sum)
        sums[key] = weighted_sum
        weighted_sum.generation = self._changes.generation
        weighted_sum.applied_changes = self._dropped_changes + len(self._log)
        return weighted_sum.values

    def _apply_log(self, weighted_sum: _WeightedSum[C]) -> None:
        """Apply the logged changes since the sum was last used."""
        values, weights = weighted_sum.values, weighted_sum.weights
        for pod_class, row, number in self._log[weighted_sum.applied_changes - self._dropped_changes :]:
            weight = weights.get(pod_class)
            if weight is None:
                weight = weighted_sum.weight(pod_class)
            if weight:
                values[row] += weight * number

    def _count_all(self, weighted_sum: _WeightedSum[C], candidates: Iterable[C]) -> None:
        values = weighted_sum.values = np.zeros(len(self.by_row), np.int64)
        for pod_class in candidates:
            weight = weighted_sum.weight(pod_class)
            if weight:
                rows = self.rows_of[pod_class]
                values[list(rows)] += weight * np.fromiter(rows.values(), np.int64, len(rows))

    def _recount_changed_rows(self, weighted_sum: _WeightedSum[C]) -> None:
        values, weight, by_row = weighted_sum.values, weighted_sum.weight, self.by_row
        changed = self._changes.changed_since(weighted_sum.generation)
        if len(changed) * 4 > len(by_row) > 64:
            self._count_all(weighted_sum, self.rows_of)
            return
        for row in changed.tolist():
            values[row] = sum([weight(pod_class) * count for pod_class, count in by_row[row].items()])

    def check(self) -> None:
        """Assert the invariant of the class docstring."""
        mirrored: dict[C, dict[int, int]] = {}
        for row, counts in enumerate(self.by_row):
            for pod_class, count in counts.items():
                assert count > 0
                mirrored.setdefault(pod_class, {})[row] = count
        assert mirrored == self.rows_of


A = TypeVar("A", bound=np.generic)


def reordered_columns(array: npt.NDArray[A], old_rows: npt.NDArray[np.intp], fill: int = 0) -> npt.NDArray[A]:
    """Return `array` [..., N] in a new order: column r is what `old_rows[r]` was; `fill` where that is -1."""
    if array.shape[-1] == 0:
        return np.full((*array.shape[:-1], len(old_rows)), fill, array.dtype)
    moved = array[..., old_rows]
    moved[..., old_rows < 0] = fill
    return moved
