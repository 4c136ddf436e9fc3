"""How many pods of each class are on each row, and sums of them kept up to date change by change.

A class is an object compared by identity (see pod_classes). Axis: N nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
C = TypeVar("C", bound=Hashable)

_MAX_SUMS, _MAX_SUM_BYTES = 4096, 64 << 20  # sums kept; each is one int64 per node: 1,600 of them at 5,000 nodes
_MAX_WEIGHTS = 4096  # classes judged per sum before the memory of verdicts is cleared
_MAX_LOG = 8192  # changes remembered; a sum that was not asked for while more happened is counted by row


class RowChanges(Protocol):
    """The part of the snapshot that sums are kept up to date by."""

    generation: int

    def changed_since(self, generation: int) -> npt.NDArray[np.intp]: ...


class _WeightedSum(Generic[C]):
    """One sum: for each row, weight_of(class) times the number of pods, over all classes."""

    __slots__ = ("generation", "seen", "values", "verdicts", "weight_of")

    def __init__(self, weight_of: Callable[[C], int]) -> None:
        self.weight_of = weight_of
        self.verdicts: dict[C, int] = {}
        self.values: Int64 = np.zeros(0, np.int64)
        self.generation = -1
        self.seen = 0  # how many changes of the counts the values include

    def weight(self, of: C) -> int:
        verdict = self.verdicts.get(of)
        if verdict is None:
            if len(self.verdicts) >= _MAX_WEIGHTS:
                self.verdicts.clear()
            verdict = self.verdicts[of] = self.weight_of(of)
        return verdict


class ClassCounts(Generic[C]):
    """Counts of pods, class by row, sparse.

    `by_row[row][class]` and `rows_of[class][row]` are the same numbers; neither holds zeros.
    """

    def __init__(self, changes: RowChanges) -> None:
        self._changes = changes
        self.by_row: list[dict[C, int]] = []
        self.rows_of: dict[C, dict[int, int]] = {}
        self.membership = 0  # grows whenever a class appears or goes
        self._sums: dict[Hashable, _WeightedSum[C]] = {}
        self._log: list[tuple[C, int, int]] = []  # the last changes: class, row, by how many pods
        self._forgotten = 0  # changes that are no longer in the log

    def reorder(self, old_rows: Sequence[int]) -> None:
        """Rows moved: row r is what `old_rows[r]` was, -1 a new and still empty one."""
        by_row = self.by_row
        self.by_row = [by_row[old] if old >= 0 else {} for old in old_rows]
        before, self.rows_of = self.rows_of, {}
        for row, counts in enumerate(self.by_row):
            for of, count in counts.items():
                self.rows_of.setdefault(of, {})[row] = count
        for of in before:
            if of not in self.rows_of:
                self._class_removed(of)
        self.membership += 1
        self._forgotten += len(self._log)  # its row numbers mean other nodes now
        self._log.clear()
        moved = np.asarray(old_rows, np.intp)  # [N]
        for tally in self._sums.values():
            tally.values = reordered_columns(tally.values, moved)

    def _class_added(self, of: C) -> None:
        """Called when the first pod of a class comes."""

    def _class_removed(self, of: C) -> None:
        """Called when the last pod of a class went."""

    def set_row(self, row: int, counts: dict[C, int]) -> None:
        """Replace what is on `row`; takes over `counts`."""
        old = self.by_row[row]
        if old == counts:
            return
        rows_of, log = self.rows_of, self._log
        if len(log) > _MAX_LOG:
            self._forgotten += len(log) // 2
            del log[: len(log) // 2]
        for of, count in counts.items():
            before = old.get(of, 0)
            if before != count:
                log.append((of, row, count - before))
                rows = rows_of.get(of)
                if rows is None:
                    rows = rows_of[of] = {}
                    self.membership += 1
                    self._class_added(of)
                rows[row] = count
        for of, before in old.items():
            if of not in counts:
                log.append((of, row, -before))
                rows = rows_of[of]
                del rows[row]
                if not rows:
                    del rows_of[of]
                    self.membership += 1
                    self._class_removed(of)
        self.by_row[row] = counts

    def weighted(
        self, key: Hashable, weight_of: Callable[[C], int], among: Callable[[], Iterable[C]] | None = None
    ) -> Int64:
        """Sum over the pods of each row of weight_of(their class): int64 [N]. Read only.

        `key` stands for `weight_of`, which must be pure: the sum is remembered under it and brought up to date for
        changed rows only. among(): classes outside of which weight_of is 0, for counting afresh.
        """
        tallies = self._sums
        tally = tallies.pop(key, None)
        if tally is None:
            most = min(_MAX_SUMS, max(16, _MAX_SUM_BYTES // (8 * len(self.by_row) + 1)))
            while len(tallies) >= most:
                del tallies[next(iter(tallies))]  # the one that was not asked for the longest
            tally = _WeightedSum(weight_of)
            self._count_all(tally, self.rows_of if among is None else among())
        elif tally.seen >= self._forgotten:
            self._apply_log(tally)
        else:
            self._recount_changed_rows(tally)
        tallies[key] = tally
        tally.generation = self._changes.generation
        tally.seen = self._forgotten + len(self._log)
        return tally.values

    def _apply_log(self, tally: _WeightedSum[C]) -> None:
        """Apply the changes since the sum was asked for last."""
        values, verdicts = tally.values, tally.verdicts
        for of, row, number in self._log[tally.seen - self._forgotten :]:
            weight = verdicts.get(of)
            if weight is None:
                weight = tally.weight(of)
            if weight:
                values[row] += weight * number

    def _count_all(self, tally: _WeightedSum[C], among: Iterable[C]) -> None:
        values = tally.values = np.zeros(len(self.by_row), np.int64)
        for of in among:
            weight = tally.weight(of)
            if weight:
                rows = self.rows_of[of]
                values[list(rows)] += weight * np.fromiter(rows.values(), np.int64, len(rows))

    def _recount_changed_rows(self, tally: _WeightedSum[C]) -> None:
        values, weight, by_row = tally.values, tally.weight, self.by_row
        changed = self._changes.changed_since(tally.generation)
        if len(changed) * 4 > len(by_row) > 64:
            self._count_all(tally, self.rows_of)
            return
        for row in changed.tolist():
            values[row] = sum([weight(of) * count for of, count in by_row[row].items()])

    def check(self) -> None:
        """Assert what stands in the class docstring."""
        mirrored: dict[C, dict[int, int]] = {}
        for row, counts in enumerate(self.by_row):
            for of, count in counts.items():
                assert count > 0
                mirrored.setdefault(of, {})[row] = count
        assert mirrored == self.rows_of


A = TypeVar("A", bound=np.generic)


def reordered_columns(array: npt.NDArray[A], old_rows: npt.NDArray[np.intp], fill: int = 0) -> npt.NDArray[A]:
    """`array` [..., N] after rows moved: column r is what `old_rows[r]` was, `fill` where that is -1."""
    if array.shape[-1] == 0:
        return np.full((*array.shape[:-1], len(old_rows)), fill, array.dtype)
    moved = array[..., old_rows]
    moved[..., old_rows < 0] = fill
    return moved
