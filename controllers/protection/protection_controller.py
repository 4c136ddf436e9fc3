"""Protection of objects in use: a finalizer that is removed from an object in deletion once nothing uses it.

Source: v1.36 pkg/controller/util/protectionutil.
"""

from __future__ import annotations

from typing import Any, ClassVar

from kubeloop.controllers.api.controller import Controller, Result
from kubeloop.controllers.api.objects import Request
from kubeloop.controllers.api.predicates import Predicate
from kubeloop.kube.objects.api_types import Object, ObjectMeta
from kubeloop.kube.objects.resources import Resource


class ProtectionController(Controller):
    """Reconciles the objects of one kind. Subclasses watch them, with protects(), and their users.

    adds_finalizer: False if the API server adds it when an object is created.
    """

    resource: ClassVar[Resource[Any]]
    finalizer: ClassVar[str]
    adds_finalizer: ClassVar[bool] = True

    async def reconcile(self, request: Request) -> Result:
        """Add or remove the finalizer of an object."""
        obj = self.cache.get(self.resource, request)
        if obj is None or not needs_write(obj.metadata, self.finalizer, adds_finalizer=self.adds_finalizer):
            return None
        if obj.metadata.deletion_timestamp is None or not await self.is_used(obj):
            await self.finalize(obj, self.finalizer, _nothing)
        return None

    async def is_used(self, obj: Any) -> bool:
        """Return True while an object in deletion must stay."""
        raise NotImplementedError


def protects(finalizer: str, *, adds_finalizer: bool = True) -> Predicate[Object]:
    """Return a predicate that is True for objects to write."""
    return lambda old, new: new is not None and needs_write(new.metadata, finalizer, adds_finalizer=adds_finalizer)


def needs_write(metadata: ObjectMeta, finalizer: str, *, adds_finalizer: bool) -> bool:
    """Return True for an object that lacks the finalizer, or has it and is in deletion."""
    has_finalizer = finalizer in metadata.finalizers
    if metadata.deletion_timestamp is not None:
        return has_finalizer
    return adds_finalizer and not has_finalizer


async def _nothing() -> None: ...
