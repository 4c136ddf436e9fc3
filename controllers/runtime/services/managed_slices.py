"""The EndpointSlices that one controller manages: the events of those that others have changed, and its writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.services.endpoint_slices import MANAGED_BY, SERVICE_NAME, service_key
from kubeloop.controllers.runtime.services.slice_tracker import EndpointSliceTracker
from kubeloop.kube.errors import ApiError, is_namespace_terminating
from kubeloop.kube.objects.api_types import JSONValue
from kubeloop.kube.objects.resources import ENDPOINT_SLICES
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

Operation = Literal["create", "update", "delete"]


class ManagedSlices:
    """Slices with one value of the label managed-by.

    tracker: the controller's own writes. registration: of the event handlers.
    """

    def __init__(
        self,
        context: ControllerContext,
        manager: str,
        enqueue: Callable[[str], None],
        written: Callable[[Operation], None],
    ) -> None:
        """enqueue: called with the key of a Service when another client has changed one of its slices. written: called
        after each write."""
        self._client = context.client
        self._manager = manager
        self._enqueue = enqueue
        self._written = written
        self.tracker = EndpointSliceTracker()
        slices = context.informers.informer(ENDPOINT_SLICES)
        self._store = slices.store
        self._store.add_index(manager, self._services)
        self.registration = slices.on_events(added=self._on_change, updated=self._on_update, deleted=self._on_delete)

    def of_service(self, key: str) -> list[JSONValue]:
        """Return the slices of a Service in the cache."""
        return self._store.by_index(self._manager, key)

    async def write(
        self,
        create: Iterable[JSONValue],
        update: Iterable[JSONValue],
        delete: Iterable[JSONValue],
        reconcile: Reconcile,
    ) -> None:
        """Create, update and delete slices; nothing more when their namespace terminates. Raises ApiError."""
        for created in create:
            try:
                with reconcile.action_span("create EndpointSlice"):
                    namespace = created["metadata"]["namespace"]
                    self.tracker.written(await self._client.create(ENDPOINT_SLICES, created, namespace))
            except ApiError as error:
                if is_namespace_terminating(error):
                    return
                raise
            self._written("create")
        for updated in update:
            metadata = updated["metadata"]
            with reconcile.action_span(f"update EndpointSlice {metadata['name']}"):
                self.tracker.written(
                    await self._client.update(ENDPOINT_SLICES, metadata["name"], updated, metadata["namespace"])
                )
            self._written("update")
        for deleted in delete:
            await self.delete(deleted, reconcile)

    async def delete(self, endpoint_slice: JSONValue, reconcile: Reconcile) -> None:
        """Delete a slice. Raises ApiError."""
        metadata = endpoint_slice["metadata"]
        with reconcile.action_span(f"delete EndpointSlice {metadata['name']}"):
            await self._client.delete(
                ENDPOINT_SLICES, metadata["name"], metadata["namespace"], precondition_uid=metadata["uid"]
            )
        self.tracker.deleted(endpoint_slice)
        self._written("delete")

    def _on_change(self, endpoint_slice: JSONValue) -> None:
        if self._is_managed(endpoint_slice) and self.tracker.is_new(endpoint_slice):
            self._enqueue_service_of(endpoint_slice)

    def _on_update(self, old: JSONValue, new: JSONValue) -> None:
        if service_key(old) != service_key(new):
            self._enqueue_service_of(old)
            self._enqueue_service_of(new)
        elif self._is_managed(old) != self._is_managed(new):
            self._enqueue_service_of(new)
        else:
            self._on_change(new)

    def _on_delete(self, endpoint_slice: JSONValue) -> None:
        if self._is_managed(endpoint_slice) and self.tracker.pop_foreign_deletion(endpoint_slice):
            self._enqueue_service_of(endpoint_slice)

    def _enqueue_service_of(self, endpoint_slice: JSONValue) -> None:
        if (endpoint_slice["metadata"].get("labels") or {}).get(SERVICE_NAME):
            self._enqueue(service_key(endpoint_slice))

    def _services(self, endpoint_slice: JSONValue) -> tuple[str, ...]:
        return (service_key(endpoint_slice),) if self._is_managed(endpoint_slice) else ()

    def _is_managed(self, endpoint_slice: JSONValue) -> bool:
        labels = endpoint_slice["metadata"].get("labels") or {}
        return bool(labels.get(MANAGED_BY) == self._manager)
