"""Begin and end of a reconcile, the same for every controller of workloads: caches, records and trace."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from kubeloop.controllers.runtime.queue.work_queue import WorkQueue
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import LabelSelector, Object
from kubeloop.kube.selectors.selectors import Selector, SelectorError, selector_from
from kubeloop.tracing.recording.reconcile_recorder import Reconcile, ReconcileRecorder
from kubeloop.tracing.spans.traceparent import TRACEPARENT_ANNOTATION

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)


class CachedReconcile(Generic[T]):
    """Reconciles of the cached objects of one kind, each with a trace of its own."""

    def __init__(
        self,
        name: str,
        objects: Store[T],
        queue: WorkQueue,
        traces: ReconcileRecorder,
        *forget: Callable[[str], None],
        consistency: ConsistencyStore | None = None,
    ) -> None:
        """name: of the controller in traces. consistency: postpones a reconcile while the caches are outdated.

        forget: functions that drop what else is recorded of a deleted object, by its key.
        """
        self._name = name
        self._objects = objects
        self._queue = queue
        self._traces = traces
        self._consistency = consistency or ConsistencyStore({}, enabled=False)
        self._forget = (*forget, self._consistency.forget)

    async def run(self, key: str, sync: Callable[[T, Reconcile], Awaitable[float | None]]) -> float | None:
        """Return the result of `sync` for the cached object `key`, None if it was deleted; dependents of a deleted
        object are deleted by the garbage collector.

        The trace is linked to the request that changed the object, and ends with the error that `sync` raises. Raises
        StaleCache, without a trace, if the caches are older than our last writes.
        """
        self._consistency.ensure_ready(key)
        reason = self._queue.pop_reasons(key)
        obj = self._objects.get(key)
        if obj is None:
            for forget in self._forget:
                forget(key)
            self._traces.forget(self._name, key)
            return None
        with self._traces.reconcile(self._name, key, reason) as reconcile:
            reconcile.link(obj.metadata.annotations.get(TRACEPARENT_ANNOTATION, ""))
            return await sync(obj, reconcile)


def valid_selector(kind: str, key: str, selector: LabelSelector | None) -> Selector | None:
    """Return the selector of an object; None if it is invalid, which is logged. No retry can correct it."""
    try:
        return selector_from(selector)
    except SelectorError as error:
        log.error("invalid selector, left alone: %s %s: %s", kind, key, error)
        return None
