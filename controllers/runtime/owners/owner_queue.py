"""Enqueues the owners of changed objects, such as the ReplicaSets of Pods. Source: resolveControllerRef and the event
handlers of the workload controllers in pkg/controller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from kubeloop.controllers.runtime.owners.adoption import possible_owners
from kubeloop.controllers.runtime.owners.owner_references import cached_controller
from kubeloop.controllers.runtime.queue.work_queue import WorkQueue
from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import LabelSelector, Object
from kubeloop.kube.objects.object_fields import controller_of

T = TypeVar("T", bound=Object)


class OwnerQueue(Generic[T]):
    """The owners of one kind, in the informer's store, and their work queue; an event handler of the owners."""

    def __init__(
        self,
        owners: Store[T],
        kind: str,
        queue: WorkQueue,
        selector_of: Callable[[T], LabelSelector | None],
        *forget: Callable[[T], object],
        batch_seconds: float = 0.0,
    ) -> None:
        """selector_of: returns the selector of an owner. forget: functions that drop what is recorded of a deleted one.
        batch_seconds: delay after which an owner is enqueued, so that one sync handles several changes."""
        owners.add_index("namespace")
        self._owners = owners
        self._kind = kind
        self._queue = queue
        self._batch_seconds = batch_seconds
        self._selector_of = selector_of
        self._forget = forget

    def on_add(self, owner: T, initial: bool) -> None:
        self._queue.add(owner.key, "initial list" if initial else f"{self._kind} added")

    def on_update(self, old: T, new: T) -> None:
        if old.metadata.uid != new.metadata.uid:
            self.on_delete(old, False)  # deleted and created again between two events
        self._queue.add(new.key, f"{self._kind} changed")

    def on_delete(self, owner: T, final_state_unknown: bool) -> None:
        for forget in self._forget:
            forget(owner)
        self._queue.add(owner.key, f"{self._kind} deleted")

    def owner(self, obj: Object) -> T | None:
        """Return the cached owner that controls `obj`."""
        return cached_controller(self._owners, self._kind, obj)

    def add_owner(self, obj: Object, reason: str) -> T | None:
        """Enqueue the owner that controls `obj`, and return it."""
        owner = self.owner(obj)
        if owner is not None:
            self._enqueue(owner.key, reason)
        return owner

    def add_after_creation(self, obj: Object, noun: str) -> T | None:
        """Enqueue the owner of an added object, and return it; for an orphan those that may adopt it.

        noun: the object in the reason, such as "pod".
        """
        owner = self.add_owner(obj, f"{noun} added")
        if owner is None and controller_of(obj.metadata) is None:
            self.add_possible_owners(obj, f"orphaned {noun} added")
        return owner

    def add_possible_owners(self, orphan: Object, reason: str) -> None:
        """Enqueue the owners that may adopt an object without a controller."""
        owners = self._owners.by_index("namespace", orphan.metadata.namespace)
        for owner in possible_owners(orphan, owners, self._selector_of):
            self._enqueue(owner.key, reason)

    def add_after_change(
        self, old: Object, new: Object, noun: str, affects: Callable[[T], bool] = lambda _owner: True
    ) -> T | None:
        """Enqueue the owner of a changed object, and its former owner; for an orphan those that may adopt it.

        noun: as in `add_after_creation`. affects: returns False if a sync of the owner would not read the change; not
        called if the owner has changed. Returns the owner if it was enqueued.
        """
        reference = controller_of(new.metadata)
        reference_changed = reference != controller_of(old.metadata)
        if reference_changed:
            self.add_owner(old, f"{noun} released")
        if reference is not None:
            owner = self.owner(new)
            if owner is None or not (reference_changed or affects(owner)):
                return None
            self._enqueue(owner.key, f"{noun} changed")
            return owner
        if reference_changed or new.metadata.labels != old.metadata.labels:
            self.add_possible_owners(new, f"orphaned {noun} changed")
        return None

    def _enqueue(self, key: str, reason: str) -> None:
        if self._batch_seconds:
            self._queue.add_after(key, self._batch_seconds)
        else:
            self._queue.add(key, reason)
