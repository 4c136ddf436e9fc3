"""ClassCounts: weighted sums are updated incrementally."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest

from kubeloop.scheduler.cache import class_counts
from kubeloop.scheduler.cache.class_counts import ClassCounts, reordered_columns


class ChangedRows:
    """All rows count as changed."""

    generation = 0

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def changed_since(self, generation: int) -> npt.NDArray[np.intp]:
        return np.arange(self._rows)


def test_incremental_sum_equals_new_sum() -> None:
    rng, rows = random.Random(1), 5
    counts: ClassCounts[str] = ClassCounts(ChangedRows(rows))
    counts.reorder([-1] * rows)
    for step in range(50):
        row = {pod_class: rng.randrange(1, 4) for pod_class in rng.sample("abcd", rng.randrange(4))}
        counts.set_row(rng.randrange(rows), row)
        if step == 25:
            counts.reorder([4, 3, 2, 1, -1])
        counts.check()
        cached = counts.weighted("cached", ord)
        assert cached.tolist() == counts.weighted(f"new-{step}", ord).tolist()


def test_candidates_limit_the_counted_classes() -> None:
    counts: ClassCounts[str] = ClassCounts(ChangedRows(2))
    counts.reorder([-1, -1])
    counts.set_row(0, {"a": 2, "b": 1})
    assert counts.weighted("a only", lambda pod_class: 1, lambda: ["a"]).tolist() == [2, 0]


def test_reordered_columns() -> None:
    array = np.array([[1, 2, 3]])
    assert reordered_columns(array, np.array([2, -1, 0]), fill=9).tolist() == [[3, 9, 1]]


def test_weights_of_removed_classes_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_counts, "_MIN_WEIGHTS", 2)
    counts: ClassCounts[str] = ClassCounts(ChangedRows(1))
    counts.reorder([-1])
    computed = []

    def weight(pod_class: str) -> int:
        computed.append(pod_class)
        return ord(pod_class)

    for pod_class in "abcdefgh":
        counts.set_row(0, {pod_class: 1})
        assert counts.weighted("key", weight).tolist() == [ord(pod_class)]
    (weighted_sum,) = counts._sums.values()
    assert len(weighted_sum.weights) <= 4
    counts.set_row(0, {"h": 2})
    assert counts.weighted("key", weight).tolist() == [2 * ord("h")]
    assert computed.count("h") == 1


@pytest.mark.parametrize(("classes", "cached"), [(0, 3), (1, 4), (2, 5)])
def test_number_of_cached_sums_follows_the_existing_classes(
    monkeypatch: pytest.MonkeyPatch, classes: int, cached: int
) -> None:
    monkeypatch.setattr(class_counts, "_MIN_SUMS", 3)
    monkeypatch.setattr(class_counts, "_MAX_SUMS", 5)
    counts: ClassCounts[str] = ClassCounts(ChangedRows(1))
    counts.reorder([-1])
    counts.set_row(0, {str(pod_class): 1 for pod_class in range(classes)})
    for key in range(10):
        counts.weighted(key, int)
    assert [*counts._sums] == [*range(10 - cached, 10)]


@pytest.mark.parametrize(("rows", "changed"), [(64, 64), (65, 16), (65, 17), (200, 200)])
def test_sum_is_right_whatever_the_number_of_changed_rows(rows: int, changed: int) -> None:
    counts: ClassCounts[str] = ClassCounts(ChangedRows(changed))
    counts.reorder([-1] * rows)
    for row in range(rows):
        counts.set_row(row, {"a": 1})
    assert counts.weighted("cached", lambda pod_class: 2).tolist() == [2] * rows
    for row in range(changed):
        counts.set_row(row, {"a": row, "b": 1} if row else {})
    expected = [0, *(2 * row + 2 for row in range(1, changed)), *([2] * (rows - changed))]
    assert counts.weighted("cached", lambda pod_class: 2).tolist() == expected


class NotedCounts(ClassCounts[str]):
    """Counts that record which classes were added and removed."""

    def __init__(self, rows: int) -> None:
        super().__init__(ChangedRows(rows))
        self.noted: list[str] = []
        self.reorder([-1] * rows)

    def _class_added(self, pod_class: str) -> None:
        self.noted.append(f"+{pod_class}")

    def _class_removed(self, pod_class: str) -> None:
        self.noted.append(f"-{pod_class}")


def test_first_and_last_pods_of_a_class_are_noted() -> None:
    counts, noted = NotedCounts(2), []
    steps: list[tuple[int, dict[str, int]]] = [
        (0, {"a": 1}),
        (1, {"a": 2, "b": 1}),
        (0, {"a": 3}),
        (0, {}),
        (1, {"b": 1}),
        (1, {"b": 1}),
        (1, {}),
    ]
    for row, row_counts in steps:
        before = counts.membership
        counts.set_row(row, row_counts)
        noted.append(" ".join(counts.noted))
        assert (counts.membership != before) is bool(counts.noted)
        counts.noted.clear()
        counts.check()
    assert noted == ["+a", "+b", "", "", "-a", "", "-b"]


def test_classes_of_removed_rows_are_noted() -> None:
    counts = NotedCounts(3)
    for row, row_counts in enumerate(({"a": 1}, {"a": 1, "b": 1}, {"c": 1})):
        counts.set_row(row, row_counts)
    counts.noted.clear()
    before = counts.membership
    counts.reorder([2, 0, -1])
    assert counts.noted == ["-b"]
    assert counts.membership > before
    assert counts.rows_of == {"a": {1: 1}, "c": {0: 1}}
    counts.check()


class RecentRows(ChangedRows):
    """The rows that a test has changed since the sum was computed."""

    def __init__(self) -> None:
        self.changed: list[int] = []

    def changed_since(self, generation: int) -> npt.NDArray[np.intp]:
        return np.array(self.changed, np.intp)


@pytest.mark.parametrize("rows", [8, 64, 65, 100])
@pytest.mark.parametrize("changed", [1, 16, 17, 30])
def test_sum_is_right_after_its_changes_left_the_log(rows: int, changed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the changed rows are counted again, or all rows if many have changed."""
    monkeypatch.setattr(class_counts, "_MAX_LOG", 6)
    recent = RecentRows()
    counts: ClassCounts[str] = ClassCounts(recent)
    counts.reorder([-1] * rows)
    for row in range(rows):
        counts.set_row(row, {"a": 1})
    sums = [counts.weighted("cached", {"a": 1, "b": 10}.__getitem__).tolist()]
    assert sums[0] == [1] * rows
    recent.changed = list(range(min(changed, rows)))
    for row in recent.changed:
        counts.set_row(row, {"a": 2, "b": 1})
        assert len(counts._log) <= 6 + 2
    expected = [12 if row in recent.changed else 1 for row in range(rows)]
    assert counts.weighted("cached", {"a": 1, "b": 10}.__getitem__).tolist() == expected
    assert counts.weighted("new", {"a": 1, "b": 10}.__getitem__).tolist() == expected
    counts.check()
