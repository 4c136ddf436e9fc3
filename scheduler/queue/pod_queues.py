"""The active queue, the backoff queue and the unschedulable pods, and the moves of pods between them.

Source: moveToActiveQ, moveToBackoffQ and requeuePodWithQueueingStrategy of v1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.queue.backoff_queue import BackoffQueue
from kubeloop.scheduler.queue.nominator import Nominator
from kubeloop.scheduler.queue.pod_heap import PodHeap
from kubeloop.scheduler.queue.pre_enqueue import PreEnqueue
from kubeloop.scheduler.queue.queue_settings import QueueObserver, QueueSettings
from kubeloop.scheduler.queue.queueing_hints import QueueingStrategy
from kubeloop.scheduler.queue.unschedulable_pods import UnschedulablePods

ACTIVE: Final = "active"
BACKOFF: Final = "backoff"
UNSCHEDULABLE: Final = "unschedulable"
GATED: Final = "gated"

_NEW_POD = (events.PENDING_POD_ADD.label, events.PENDING_POD_UPDATE.label)


class PendingPods(NamedTuple):
    """All queued pods, in the order they will be popped. error_backoff: after an error. unschedulable: gated, too."""

    active: list[QueuedPodInfo]
    backoff: list[QueuedPodInfo]
    error_backoff: list[QueuedPodInfo]
    unschedulable: list[QueuedPodInfo]


class PodQueues:
    """Queued pods; each is in exactly one queue.

    may_pop: set when a pod enters a queue from which it can be popped.
    """

    def __init__(
        self,
        sort_key: Callable[[QueuedPodInfo], Any],
        now_ns: Callable[[], int],
        pre_enqueue: PreEnqueue,
        nominator: Nominator,
        settings: QueueSettings,
        observer: QueueObserver,
    ) -> None:
        self.active = PodHeap(sort_key)
        self.backoff = BackoffQueue(
            sort_key,
            now_ns,
            initial_backoff_seconds=settings.initial_backoff_seconds,
            max_backoff_seconds=settings.max_backoff_seconds,
            pops_early=settings.pops_from_backoff,
            pod_groups=settings.pod_groups,
        )
        self.unschedulable = UnschedulablePods()
        self.may_pop = asyncio.Event()
        self._pre_enqueue = pre_enqueue
        self._nominator = nominator
        self._now_ns = now_ns
        self._pops_from_backoff = settings.pops_from_backoff
        self._metrics = observer.metrics
        self._on_queued = observer.queued
        self._metrics.count_pending_pods(
            active=self.active.__len__,
            backoff=self.backoff.__len__,
            unschedulable=lambda: len(self.unschedulable) - self._gated(),
            gated=self._gated,
        )

    def pop(self) -> QueuedPodInfo | None:
        """Return the first active pod; if there is none, one whose backoff has not expired, or None."""
        queued = self.active.pop()
        if queued is None and self._pops_from_backoff:
            queued = self.backoff.pop()
            if queued is not None:
                self._entered(queued, ACTIVE, events.POP_FROM_BACKOFF)
        return queued

    def requeue(self, queued: QueuedPodInfo, strategy: QueueingStrategy, event: str) -> str:
        """Put the pod into the queue of this strategy, unless it is gated; return the queue."""
        if strategy is QueueingStrategy.SKIP:
            self._to_unschedulable(queued, event)
            return UNSCHEDULABLE
        if strategy is QueueingStrategy.AFTER_BACKOFF and self.backoff.is_backing_off(queued):
            return BACKOFF if self._to_backoff(queued, event) else UNSCHEDULABLE
        return ACTIVE if self.to_active(queued, event) else UNSCHEDULABLE

    def to_active(self, queued: QueuedPodInfo, event: str, *, from_backoff: bool = False) -> bool:
        """Move the pod to the active queue; False: it is gated, and was moved to the unschedulable pods."""
        key = queued.key
        if not (from_backoff and self._pops_from_backoff):  # else PreEnqueue ran before the backoff
            self._pre_enqueue.run(queued)
        if queued.gated:
            if key not in self.active and key not in self.backoff:
                self._to_unschedulable(queued, event)
            return False
        if queued.initial_attempt_ns == 0:
            queued.initial_attempt_ns = self._now_ns()
        self.unschedulable.discard(key)
        self.backoff.discard(key)
        self.active.put(queued)
        self._entered(queued, ACTIVE, event)
        if event in _NEW_POD:
            self._nominator.add(queued.info, None)
        self.may_pop.set()
        return True

    def _to_backoff(self, queued: QueuedPodInfo, event: str) -> bool:
        """Move the pod to the backoff queue; False: it is gated, and was moved to the unschedulable pods."""
        if self._pops_from_backoff:
            self._pre_enqueue.run(queued)
            if queued.gated:
                self._to_unschedulable(queued, event)
                return False
        self.unschedulable.discard(queued.key)
        self.backoff.put(queued)
        self._entered(queued, BACKOFF, event)
        self.may_pop.set()
        return True

    def _to_unschedulable(self, queued: QueuedPodInfo, event: str) -> None:
        if queued.key not in self.unschedulable:
            self._metrics.queue_incoming(UNSCHEDULABLE, event)
            self._on_queued(queued.pod, GATED if queued.gated else UNSCHEDULABLE, event)
        self.unschedulable.put(queued)

    def _entered(self, queued: QueuedPodInfo, queue: str, event: str) -> None:
        self._metrics.queue_incoming(queue, event)
        self._on_queued(queued.pod, queue, event)

    def discard(self, key: str) -> None:
        """Remove the pod."""
        if self.active.discard(key) is None and self.backoff.discard(key) is None:
            self.unschedulable.discard(key)

    def get(self, key: str) -> tuple[str, QueuedPodInfo] | None:
        """Return (queue, pod) of a queued pod by "namespace/name"; the queue is "gated" for a gated pod."""
        for name, queue in ((ACTIVE, self.active), (BACKOFF, self.backoff), (UNSCHEDULABLE, self.unschedulable)):
            queued = queue.get(key)
            if queued is not None:
                return (GATED if queued.gated else name), queued
        return None

    def pending(self) -> PendingPods:
        """Return all pods."""
        backoff = self.backoff
        return PendingPods(
            self.active.sorted(), backoff.rejected.sorted(), backoff.failed.sorted(), list(self.unschedulable)
        )

    def oldest_unschedulable_ns(self) -> int | None:
        """Return since when the pod has been unschedulable that is longest; None without one."""
        return min((queued.timestamp_ns for queued in self.unschedulable), default=None)

    def may_move_by_time(self) -> bool:
        """Return True if there are pods that time alone may move to another queue."""
        return bool(self.backoff or self.unschedulable)

    def _gated(self) -> int:
        return sum(queued.gated for queued in self.unschedulable)

    def check(self) -> None:
        """Assert that no pod is in two queues, and that the indexes are consistent."""
        active, backoff = {q.key for q in self.active}, {q.key for q in self.backoff}
        unschedulable = {q.key for q in self.unschedulable}
        assert not active & backoff
        assert not (active | backoff) & unschedulable
        for part in (self.active, self.backoff.rejected, self.backoff.failed, self.unschedulable):
            part.check()
