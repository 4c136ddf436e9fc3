"""The queues of the scheduling queue: active (PodHeap), backoff (BackoffQueue) and unschedulable (UnschedulablePods).

Each holds pods by key. A pod is in at most one of them (SchedulingQueue.check).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kubeloop.scheduler.api.queued_pod import QueuedPodInfo

ORDERING_WINDOW_NS = 1_000_000_000


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


class BackoffQueue:
    """Pods whose backoff has not expired. `rejected` by a plugin; `failed`: their attempt ended in an error.

    Members of pod groups count as failed: no event shows that the group became schedulable, so that a group popped
    early would be tried without a pause.
    Expiration times are truncated to whole seconds: pods that expire within the same second leave in the order of the
    active queue, so that priority counts. Failed pods are not popped early. With the feature gate
    SchedulerPopFromBackoffQ off no pod is popped early, and the exact expiration is the order.
    Source: backoff_queue.go of v1.36.
    """

    def __init__(
        self,
        sort_key: Callable[[QueuedPodInfo], Any],
        now_ns: Callable[[], int],
        *,
        initial_backoff_seconds: float,
        max_backoff_seconds: float,
        pops_early: bool = True,
        pod_groups: bool = False,
    ) -> None:
        """pops_early, pod_groups: the feature gates SchedulerPopFromBackoffQ and GenericWorkload."""
        self._pod_groups = pod_groups
        self._ordering_window_ns = ORDERING_WINDOW_NS if pops_early else 1
        self._now_ns = now_ns
        self._initial_ns = round(initial_backoff_seconds * 1e9)
        self._max_ns = round(max_backoff_seconds * 1e9)
        self.rejected = PodHeap(
            (lambda queued: (self.expiration_ns(queued), sort_key(queued)))
            if pops_early
            else (lambda queued: (self.expiration_ns(queued), queued.key))
        )
        self.failed = PodHeap(lambda queued: (self.expiration_ns(queued), queued.key))

    def __len__(self) -> int:
        return len(self.rejected) + len(self.failed)

    def __contains__(self, key: str) -> bool:
        return key in self.rejected or key in self.failed

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        yield from self.rejected
        yield from self.failed

    def get(self, key: str) -> QueuedPodInfo | None:
        return self.rejected.get(key) or self.failed.get(key)

    def put(self, queued: QueuedPodInfo) -> None:
        is_member = self._pod_groups and queued.pod.spec.scheduling_group is not None
        if not is_member and (queued.unschedulable_plugins or queued.pending_plugins):
            self.rejected.put(queued)
            self.failed.discard(queued.key)
        else:
            self.failed.put(queued)
            self.rejected.discard(queued.key)

    def discard(self, key: str) -> QueuedPodInfo | None:
        return self.rejected.discard(key) or self.failed.discard(key)

    def pop(self) -> QueuedPodInfo | None:
        """Pop the next rejected pod, even if its backoff has not expired; never one whose attempt ended in an error."""
        return self.rejected.pop()

    def pop_completed(self) -> list[QueuedPodInfo]:
        """Remove and return all pods whose backoff has expired."""
        completed = []
        for heap in (self.rejected, self.failed):
            while (queued := heap.peek()) is not None and not self.is_backing_off(queued):
                heap.pop()
                completed.append(queued)
        return completed

    def is_backing_off(self, queued: QueuedPodInfo) -> bool:
        expiration = self.expiration_ns(queued)
        return expiration != 0 and expiration >= self._window(self._now_ns())

    def expiration_ns(self, queued: QueuedPodInfo) -> int:
        """Return when the backoff expires, truncated to the ordering window; 0 if there is none. Cached in the pod."""
        if queued.backoff_expiration_ns == 0:
            backoff = self.backoff_ns(queued)
            if backoff:
                queued.backoff_expiration_ns = self._window(queued.timestamp_ns + backoff)
            else:
                return 0
        return queued.backoff_expiration_ns

    def backoff_ns(self, queued: QueuedPodInfo) -> int:
        """Return the backoff: initial, doubled per failed attempt, at most max; 0 for a pod that never failed."""
        failures = queued.consecutive_errors_count or queued.unschedulable_count
        if failures == 0:
            return 0
        return min(self._max_ns, self._initial_ns << min(failures - 1, 63))

    def _window(self, time_ns: int) -> int:
        return time_ns - time_ns % self._ordering_window_ns


class UnschedulablePods:
    """Rejected or gated pods, until an event may make them schedulable.

    Indexed by the plugins that rejected them, so that an event visits only the pods it concerns.
    """

    def __init__(self) -> None:
        self._pods: dict[str, QueuedPodInfo] = {}
        self._numbers: dict[str, int] = {}  # pod key -> position in the order they were added
        self._by_plugin: dict[str, dict[str, QueuedPodInfo]] = {}  # "" has pods that no plugin rejected
        self._plugins_of: dict[str, tuple[str, ...]] = {}
        self._counter = itertools.count()

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, key: str) -> bool:
        return key in self._pods

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        return iter(list(self._pods.values()))

    def get(self, key: str) -> QueuedPodInfo | None:
        return self._pods.get(key)

    def put(self, queued: QueuedPodInfo) -> None:
        """Add the pod, or update the plugins that rejected it."""
        key = queued.key
        if key in self._pods:
            self._unindex(key)
        else:
            self._numbers[key] = next(self._counter)
        self._pods[key] = queued
        plugins = tuple(queued.rejectors) or ("",)
        self._plugins_of[key] = plugins
        for plugin in plugins:
            self._by_plugin.setdefault(plugin, {})[key] = queued

    def discard(self, key: str) -> QueuedPodInfo | None:
        queued = self._pods.pop(key, None)
        if queued is not None:
            del self._numbers[key]
            self._unindex(key)
        return queued

    def rejected_by(self, plugins: Iterable[str]) -> list[QueuedPodInfo]:
        """Return the pods that one of `plugins` or no plugin rejected, in the order they were added."""
        if not self._pods:
            return []
        rejected: dict[str, QueuedPodInfo] = dict(self._by_plugin.get("", {}))
        for plugin in plugins:
            rejected.update(self._by_plugin.get(plugin, {}))
        return [rejected[key] for key in sorted(rejected, key=self._numbers.__getitem__)]

    def _unindex(self, key: str) -> None:
        for plugin in self._plugins_of.pop(key):
            pods = self._by_plugin[plugin]
            del pods[key]
            if not pods:
                del self._by_plugin[plugin]

    def check(self) -> None:
        """Assert that the index has every pod under exactly the plugins that rejected it."""
        assert self._pods.keys() == self._numbers.keys() == self._plugins_of.keys()
        assert {(key, plugin) for plugin, pods in self._by_plugin.items() for key in pods} == {
            (key, plugin) for key, plugins in self._plugins_of.items() for plugin in plugins
        }
