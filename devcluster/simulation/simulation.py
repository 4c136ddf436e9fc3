"""State that simulated nodes and controllers share: store, clock, random numbers, events, timers."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.simulation.store_event_recorder import StoreEventRecorder
from kubeloop.devcluster.simulation.timers import TimerQueue
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES, PODS, Resource

log = logging.getLogger(__name__)


class Simulation:
    """Shared state of the simulated nodes. Writes reach all of their parts unless they are `quiet`."""

    def __init__(self, store: ObjectStore, settings: NodeSettings, *, clock: Clock, rng: random.Random) -> None:
        self.store = store
        self.settings = settings
        self.clock = clock
        self.rng = rng
        self.timers = TimerQueue()
        self.quiet = False  # True during a write that the parts here ignore
        self._events = StoreEventRecorder(store, clock=clock, rng=rng) if settings.events else None
        self._second, self._text = -1, ""

    def now(self) -> float:
        """Return the event loop's time in seconds."""
        return asyncio.get_running_loop().time()

    def wall(self) -> str:
        """Return the wall time as metav1.Time, formatted once per second."""
        second = self.clock.time_ns() // 1_000_000_000
        if second != self._second:
            self._second, self._text = second, rfc3339(self.clock.now())
        return self._text

    def update(self, resource: Resource[Any], obj: JSON, *, quiet: bool = False) -> JSON:
        """Store the next version of `obj`. quiet: the parts here ignore the write."""
        before, self.quiet = self.quiet, quiet
        try:
            return self.store.update(resource, obj)
        finally:
            self.quiet = before

    def create(self, resource: Resource[Any], obj: JSON, *, quiet: bool) -> None:
        """Store a new object. quiet: the parts here ignore the write."""
        before, self.quiet = self.quiet, quiet
        try:
            self.store.create(resource, obj)
        finally:
            self.quiet = before

    def current_pod(self, obj: JSON) -> JSON | None:
        """Return the stored pod; None if it is deleted or has been replaced by one with another uid."""
        metadata = obj["metadata"]
        current = self.store.get(PODS, metadata["namespace"], metadata["name"])
        return current if current is not None and current["metadata"]["uid"] == metadata["uid"] else None

    def is_namespace_in_deletion(self, name: str) -> bool:
        namespace = self.store.get(NAMESPACES, "", name)
        return namespace is not None and "deletionTimestamp" in namespace["metadata"]

    def remove_pod(self, current: JSON) -> bool:
        """Delete a pod without grace, as kubelets do at the end; return False if finalizers remain."""
        metadata = current["metadata"]
        if metadata.get("finalizers"):
            stamp = metadata.get("deletionTimestamp") or self.wall()
            if metadata.get("deletionGracePeriodSeconds") != 0 or "deletionTimestamp" not in metadata:
                changed = {**metadata, "deletionTimestamp": stamp, "deletionGracePeriodSeconds": 0}
                self.update(PODS, {**current, "metadata": changed}, quiet=True)
            return False
        self.store.delete(PODS, metadata["namespace"], metadata["name"])
        return True

    def event(
        self,
        obj: JSON,
        type_: str,
        reason: str,
        message: str,
        *,
        component: str = "kubelet",
        host: str = "",
        field_path: str = "",
    ) -> None:
        """Record an event about a pod or a node, unless events are disabled."""
        if self._events is not None:
            self._events.record(obj, type_, reason, message, field_path=field_path, component=component, host=host)

    @property
    def records_events(self) -> bool:
        return self._events is not None


def guarded(act: Callable[[Any], None], argument: Any) -> None:
    """Call `act`; an error at one object must not stop the others."""
    try:
        act(argument)
    except Exception:
        log.exception("simulated node failed")
