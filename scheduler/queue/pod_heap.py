"""Pods in an order: the active queue, and the parts of the backoff queue."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from kubeloop.scheduler.api.queued_pod import QueuedPodInfo


class PodHeap:
    """Pods in the order of `sort_key`; equal ones in the order they were added.

    The entry of a pod that was removed or put again stays in the heap until it reaches the top; when most entries are
    outdated, the heap is rebuilt.
    """

    def __init__(self, sort_key: Callable[[QueuedPodInfo], Any]) -> None:
        self._sort_key = sort_key
        self._heap: list[tuple[Any, int, QueuedPodInfo]] = []
        self._entries: dict[str, tuple[int, QueuedPodInfo, Any]] = {}  # pod key -> (its valid entry, pod, sort key)
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        """Iterate over the pods in no particular order."""
        return (entry[1] for entry in self._entries.values())

    def get(self, key: str) -> QueuedPodInfo | None:
        entry = self._entries.get(key)
        return entry[1] if entry is not None else None

    def put(self, queued: QueuedPodInfo) -> None:
        """Add the pod, or move it if its sort key changed."""
        sort_key = self._sort_key(queued)
        current = self._entries.get(queued.key)
        if current is not None and current[1] is queued and current[2] == sort_key:
            return
        number = next(self._numbers)
        self._entries[queued.key] = number, queued, sort_key
        heapq.heappush(self._heap, (sort_key, number, queued))

    def discard(self, key: str) -> QueuedPodInfo | None:
        """Remove and return the pod; None if it is not in the heap."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        if len(self._heap) > 64 and len(self._heap) > 2 * len(self._entries):
            self._heap = [item for item in self._heap if self._is_valid(item)]
            heapq.heapify(self._heap)
        return entry[1]

    def peek(self) -> QueuedPodInfo | None:
        heap = self._heap
        while heap:
            if self._is_valid(heap[0]):
                return heap[0][2]
            heapq.heappop(heap)
        return None

    def pop(self) -> QueuedPodInfo | None:
        queued = self.peek()
        if queued is not None:
            heapq.heappop(self._heap)
            del self._entries[queued.key]
        return queued

    def sorted(self) -> list[QueuedPodInfo]:
        """Return all pods in the order they would be popped."""
        return [queued for _, _, queued in sorted(filter(self._is_valid, self._heap), key=lambda entry: entry[:2])]

    def _is_valid(self, entry: tuple[Any, int, QueuedPodInfo]) -> bool:
        current = self._entries.get(entry[2].key)
        return current is not None and current[0] == entry[1]

    def check(self) -> None:
        """Assert that every pod has exactly one valid entry."""
        valid = [entry[2].key for entry in self._heap if self._is_valid(entry)]
        assert len(valid) == len(set(valid)) == len(self._entries)
