"""The backoff queue: pods that wait after a failed attempt, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.queue.pod_heap import PodHeap

ORDERING_WINDOW_NS = 1_000_000_000


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

    def next_completion_ns(self) -> int | None:
        """Return when the next backoff has expired; None if no pod is in backoff."""
        pods = [queued for heap in (self.rejected, self.failed) if (queued := heap.peek()) is not None]
        return min((self.expiration_ns(queued) + self._ordering_window_ns for queued in pods), default=None)

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
