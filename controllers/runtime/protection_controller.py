"""Protection of objects in use: a finalizer that is removed from an object in deletion once nothing uses it.

Source: v1.36 pkg/controller/util/protectionutil.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from kubeloop.controllers.runtime.controller import EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.writes.object_patch import merge_object
from kubeloop.kube.objects.api_types import Object, ObjectMeta
from kubeloop.kube.objects.resources import Resource

T = TypeVar("T", bound=Object)


class ProtectionController(EventDrivenController, Generic[T]):
    """Reconciles the objects of one kind; `run()` works until cancelled.

    Subclasses enqueue an object when it may be released, and add the registrations of their event handlers.
    """

    def __init__(
        self,
        context: ControllerContext,
        name: str,
        resource: Resource[T],
        finalizer: str,
        *,
        adds_finalizer: bool = True,
    ) -> None:
        """name: of the queue. adds_finalizer: False if the API server adds it when an object is created."""
        super().__init__(context, name)
        self._resource = resource
        self._finalizer = finalizer
        self._adds_finalizer = adds_finalizer
        objects = context.informers.informer(resource)
        self._objects = objects.store
        self._registrations = (objects.on_latest(self._on_object),)

    def _on_object(self, obj: T) -> None:
        if self._needs_write(obj):
            self.queue.add(obj.key)

    def _needs_write(self, obj: T) -> bool:
        return needs_write(obj.metadata, self._finalizer, adds_finalizer=self._adds_finalizer)

    async def reconcile(self, key: str) -> float | None:
        """Add or remove the finalizer of an object. An exception means: retry with backoff."""
        obj = self._objects.get(key)
        if obj is None or not self._needs_write(obj):
            return None
        finalizers = obj.metadata.finalizers
        if obj.metadata.deletion_timestamp is None:
            finalizers = (*finalizers, self._finalizer)
        elif await self.is_used(obj):
            return None
        else:
            finalizers = tuple(finalizer for finalizer in finalizers if finalizer != self._finalizer)
        await merge_object(self._client, self._resource, obj, metadata={"finalizers": list(finalizers)})
        return None

    async def is_used(self, obj: T) -> bool:
        """Return True while an object in deletion must stay."""
        raise NotImplementedError


def needs_write(metadata: ObjectMeta, finalizer: str, *, adds_finalizer: bool) -> bool:
    """Return True for an object that lacks the finalizer, or has it and is in deletion."""
    has_finalizer = finalizer in metadata.finalizers
    if metadata.deletion_timestamp is not None:
        return has_finalizer
    return adds_finalizer and not has_finalizer
