"""Delays status writes that the controller's own pending writes are about to make obsolete.

A controller that has just created or deleted objects computes a status without them. The events of these objects
enqueue the key again within milliseconds, so one status write can replace two. A key whose event does not arrive in
time is enqueued, and its status is written. kube-controller-manager writes both.

A postponed status counts as written: a controller that compares its new status with the last one, as for the progress
of a rollout, compares it with `pending`, not with what the API server has. Otherwise the final state would depend on
the delay.
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from kubeloop.controllers.runtime.queue.work_queue import WorkQueue

STATUS_DELAY_SECONDS = 0.5  # far more than an event takes, and too short for a user to wait for a status


S = TypeVar("S")


class StatusDelay(Generic[S]):
    """Statuses whose write is postponed, for at most `seconds` each since the first time of its key."""

    def __init__(self, queue: WorkQueue, seconds: float) -> None:
        """seconds: 0 to postpone nothing, as kube-controller-manager."""
        self.enabled = seconds > 0
        self._queue = queue
        self._seconds = seconds
        self._deadlines: dict[str, float] = {}  # key -> loop time, in this order
        self._overdue: set[str] = set()
        self._pending: dict[str, S] = {}
        self._timer: asyncio.TimerHandle | None = None

    def postpone(self, key: str, status: S) -> bool:
        """Return True if the status of `key` is to be written by a later reconcile, which is then guaranteed to run.

        False: it is to be written now, as nothing is postponed or the time of this key is over.
        """
        if not self.enabled or key in self._overdue:
            return False
        self._pending[key] = status
        if key not in self._deadlines:
            loop = asyncio.get_running_loop()
            self._deadlines[key] = deadline = loop.time() + self._seconds
            if self._timer is None:
                self._timer = loop.call_at(deadline, self._enqueue_overdue)
        return True

    def pending(self, key: str) -> S | None:
        """Return the last postponed status of `key` since forget(), None if there is none."""
        return self._pending.get(key)

    def forget(self, key: str) -> None:
        """End the delay of `key`: its status is up to date, or it was deleted."""
        self._pending.pop(key, None)
        self._deadlines.pop(key, None)
        self._overdue.discard(key)

    def _enqueue_overdue(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        now = loop.time() + 0.001  # the loop fires timers up to its clock's resolution early
        while self._deadlines:
            key, deadline = next(iter(self._deadlines.items()))
            if deadline > now:
                self._timer = loop.call_at(deadline, self._enqueue_overdue)
                return
            del self._deadlines[key]
            self._overdue.add(key)
            self._queue.add(key, "postponed status")
