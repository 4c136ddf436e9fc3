"""The controller loop: workers that take keys from a queue and reconcile them.

The loop does not interpret keys; the caller's reconcile function does. A key whose reconcile fails is logged and added
again with a delay from the rate limiter, so a key that always fails does not block other keys.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypedDict, Unpack

from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.queue.rate_limiter import RateLimiter
from kubeloop.controllers.runtime.queue.work_queue import QueueShutDown, WorkQueue
from kubeloop.informers.shared_informer import HandlerRegistration
from kubeloop.kube.errors import ApiError, Conflict, ServerUnreachable
from kubeloop.kube.metric_families import CounterMetric, Family, NoMetric

log = logging.getLogger(__name__)


_RECONCILE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_WITH_STALE_SYNC_SKIPS = {
    "replicaset": "replicaset",
    "replicationmanager": "replicationcontroller",
    "statefulset": "statefulset",
    "daemonset": "daemonset",
    "job": "job",
}
"""Controllers that count postponed syncs in kube-controller-manager, and the start of the metric's name."""
RESYNC_SECONDS = 600.0  # covers lost events: expectations that are never met expire without enqueuing a key


class StaleCache(Exception):
    """The caches do not yet show this controller's own writes; the sync is postponed.

    group_resource: of the objects whose cache is older ("replicasets.apps").
    """

    def __init__(self, message: str, group_resource: str) -> None:
        super().__init__(message)
        self.group_resource = group_resource


class ReconcileError(Exception):
    """A reconcile failed for the reason given in the text. Logged without a traceback, and retried."""


class Requeue(Exception):
    """Result of a reconcile that waits for something: it runs again after the rate limiter's delay. Not an error."""


ReconcileFunction = Callable[[str], Awaitable[float | None]]
"""Reconcile one key and return the seconds after which time alone may change the result, else None.

Level-based; may be cancelled and run again. An exception means: retry with backoff.
"""


def never_terminal(error: Exception) -> bool:
    """Return False: every error is retried."""
    del error
    return False


class _ControllerOptions(TypedDict, total=False):
    """Options of a Controller."""

    max_requeues: int | None
    is_terminal: Callable[[Exception], bool]
    creates_pods: bool
    drain_seconds: float


class ReconcileLoop:
    """N workers on one work queue."""

    def __init__(
        self,
        name: str,
        reconcile: ReconcileFunction,
        queue: WorkQueue,
        workers: int,
        context: ControllerContext,
        *,
        max_requeues: int | None = None,
        is_terminal: Callable[[Exception], bool] = never_terminal,
        creates_pods: bool = False,
        drain_seconds: float = 0.0,
    ) -> None:
        """max_requeues: a key with this many failures in a row is dropped (None: never). is_terminal: returns True for
        an error that no retry can fix; the key is dropped without a log entry above debug level until its next event.
        creates_pods: while the API server is busy, these reconciles go before those of other controllers.
        drain_seconds: time for the reconciles in progress to end after a cancellation.
        """
        self.name = name
        self._reconcile = reconcile
        self._queue = queue
        self._workers = workers
        self._max_requeues = max_requeues
        self._is_terminal = is_terminal
        self._creates_pods = creates_pods
        self._reconcile_seconds = context.metrics.histogram(
            "kubeloop_reconcile_duration_seconds",
            "Duration of reconciles in seconds, by controller.",
            ("controller",),
            buckets=_RECONCILE_BUCKETS,
        ).labels(name)
        self._errors = context.metrics.counter(
            "kubeloop_reconcile_errors_total", "Number of failed reconciles, by controller.", ("controller",)
        )
        self._postponed: Family[CounterMetric] = NoMetric()
        if name in _WITH_STALE_SYNC_SKIPS:
            self._postponed = context.metrics.counter(
                f"{_WITH_STALE_SYNC_SKIPS[name]}_controller_stale_sync_skips_total",
                f"Number of syncs of the {name} controller that were postponed because its caches were stale.",
                ("group", "resource"),
            )
        self._drain_seconds = drain_seconds
        self._stopping = False
        self._seconds = context.seconds
        self._pace = context.pace

    async def run(self, registrations: Iterable[HandlerRegistration[Any]] = ()) -> None:
        """Process keys until cancelled, or until the queue is shut down and empty.

        Starts when the event handlers of `registrations` have received all objects of the first lists. Cancellation:
        running reconciles are cancelled after `drain_seconds`; they are level-based, so they run again after a restart.
        """
        for registration in registrations:
            await registration.wait_synced()
        try:
            async with asyncio.TaskGroup() as workers:
                tasks = [
                    workers.create_task(self._work(), name=f"{self.name}/worker-{number}")
                    for number in range(self._workers)
                ]
                try:
                    await asyncio.wait(tasks)
                except asyncio.CancelledError:
                    self._stopping = True
                    self._queue.shut_down()
                    if self._drain_seconds:
                        await asyncio.wait(tasks, timeout=self._drain_seconds)
                    raise
        finally:
            self._queue.shut_down()

    async def _work(self) -> None:
        while not self._stopping:
            try:
                await self._queue.wait()
            except QueueShutDown:
                return
            # The key is taken afterwards: events that arrive meanwhile need no further reconcile.
            await self._pace.begin(creates_pods=self._creates_pods)
            try:
                if self._queue and not self._stopping:  # else another worker has taken the key
                    key = self._queue.take()
                    try:
                        await self.process(key)
                    finally:
                        self._queue.done(key)
            finally:
                self._pace.end()

    async def process(self, key: str) -> Exception | None:
        """Reconcile `key` once, and requeue, delay or forget it according to the result.

        Returns the exception of the reconcile, which is already handled. Raises nothing but cancellation.
        """
        started_at = self._seconds()
        failure: Exception | None = None
        try:
            seconds = await self._reconcile(key)
        except Requeue:
            self._queue.add_rate_limited(key)
        except Exception as error:
            self._failed(key, error)
            failure = error.with_traceback(None)  # which refers to this frame: a cycle
        else:
            if seconds is not None:
                self._queue.add_after(key, seconds)
            self._queue.forget(key)
        self._reconcile_seconds.observe(max(0.0, self._seconds() - started_at))
        if isinstance(failure, StaleCache):
            resource, _, group = failure.group_resource.partition(".")
            self._postponed.labels(group, resource).inc()
        elif failure is not None:
            self._errors.labels(self.name).inc()
        return failure

    def _failed(self, key: str, error: Exception) -> None:
        fields = {"controller": self.name, "key": key, "error": str(error)}
        if self._is_terminal(error):
            log.debug("reconcile ended: %s %s: %s", self.name, key, error, extra=fields)
            self._queue.forget(key)
            return
        if isinstance(error, StaleCache):
            log.debug("reconcile postponed: %s %s: %s", self.name, key, error, extra=fields)
            self._queue.add_rate_limited(key, failed=False)
            return
        num_requeues = self._queue.num_requeues(key)
        if self._max_requeues is not None and num_requeues >= self._max_requeues:
            log.error("giving up after %d tries: %s %s: %s", num_requeues + 1, self.name, key, error, extra=fields)
            self._queue.forget(key)
            return
        if isinstance(error, Conflict):
            log.debug("reconcile conflicted with a newer version: %s %s: %s", self.name, key, error, extra=fields)
        elif isinstance(error, ApiError | ServerUnreachable | ReconcileError):
            log.warning("reconcile failed, will retry: %s %s: %s", self.name, key, error, extra=fields)
        else:
            log.error("reconcile failed, will retry: %s %s", self.name, key, exc_info=error, extra=fields)
        retry_after_seconds = error.retry_after_seconds if isinstance(error, ApiError) else 0
        self._queue.add_rate_limited(key, at_least_seconds=retry_after_seconds)


class EventDrivenController:
    """A controller of one queue, whose keys come from the handlers of events that a subclass registers."""

    _registrations: Sequence[HandlerRegistration[Any]]

    def __init__(
        self,
        context: ControllerContext,
        name: str,
        queue: str = "",
        limiter: RateLimiter | None = None,
        *,
        workers: int | None = None,
        **options: Unpack[_ControllerOptions],
    ) -> None:
        """queue: its name in metrics, by default that of the controller. workers: by default those of the context.

        options: see Controller.
        """
        self._client = context.client
        self._clock = context.clock
        self._events = context.events
        self.queue = context.new_queue(queue or name, limiter)
        self._controller = ReconcileLoop(
            name, self.reconcile, self.queue, workers or context.workers, context, **options
        )

    async def reconcile(self, key: str) -> float | None:
        """See ReconcileFunction."""
        raise NotImplementedError

    async def run(self) -> None:
        """Reconcile until cancelled, once the handlers have received all objects of the first lists.

        The informers are run by their factory.
        """
        await self._controller.run(self._registrations)
