"""Sets of completion indexes, and their notation in status.completedIndexes ("0,2-5").

Pure. Source: orderedIntervals in v1.36 pkg/controller/job/indexed_job_utils.go.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable

import msgspec

log = logging.getLogger(__name__)


class IndexSet(msgspec.Struct, frozen=True):
    """Indexes as sorted intervals (first, last) that neither overlap nor touch. An empty set is false."""

    intervals: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.intervals)

    def __contains__(self, index: int) -> bool:
        position = bisect_left(self.intervals, index, key=lambda interval: interval[1])
        return position < len(self.intervals) and self.intervals[position][0] <= index

    def __or__(self, other: IndexSet) -> IndexSet:
        if not self or not other:
            return self or other
        return IndexSet(_joined(sorted((*self.intervals, *other.intervals))))

    def __str__(self) -> str:
        """Return the notation of the API: intervals of three indexes and more as "first-last"."""
        return ",".join(
            str(first) if first == last else f"{first}{',' if last == first + 1 else '-'}{last}"
            for first, last in self.intervals
        )

    def overlap(self, other: IndexSet) -> int:
        """Return the number of indexes that are in both sets."""
        return len(self) + len(other) - len(self | other)

    def first_missing(self, count: int, end: int) -> list[int]:
        """Return the `count` smallest indexes below `end` that are not in the set, or fewer."""
        missing: list[int] = []
        candidate = 0
        for first, last in self.intervals:
            missing += range(candidate, min(first, end, candidate + count - len(missing)))
            candidate = last + 1
        return [*missing, *range(candidate, min(end, candidate + count - len(missing)))]


def index_set(indexes: Iterable[int]) -> IndexSet:
    """Return the set of the indexes, in any order."""
    return IndexSet(_joined(sorted((index, index) for index in indexes)))


def parse_indexes(text: str, completions: int) -> IndexSet:
    """Parse the notation of the API, without indexes from `completions` on. Ignores what is not an interval."""
    intervals: list[tuple[int, int]] = []
    for interval in text.split(",") if text else ():
        limits = interval.split("-")
        try:
            first, last = int(limits[0]), int(limits[1] if len(limits) > 1 else limits[0])
        except ValueError:
            log.warning("corrupted interval of completion indexes, ignored: %r", interval)
            continue
        if first >= completions:
            break
        intervals.append((first, min(last, completions - 1)))
    return IndexSet(_joined(intervals))


def _joined(intervals: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Join the intervals, sorted by their first index, that overlap or touch."""
    joined: list[tuple[int, int]] = []
    for first, last in intervals:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return tuple(joined)
