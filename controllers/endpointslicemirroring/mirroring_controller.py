"""EndpointSlice mirroring controller: the events that enqueue Endpoints, and their reconcile.

Source: v1.36 pkg/controller/endpointslicemirroring/endpointslicemirroring_controller.go, reconciler.go.
"""

from __future__ import annotations

from contextlib import suppress

from kubeloop.controllers.endpointslicemirroring.metrics import MirroringMetrics
from kubeloop.controllers.endpointslicemirroring.mirrored_slices import (
    CONTROLLER,
    MirrorChanges,
    is_mirrored,
    mirror_changes,
)
from kubeloop.controllers.runtime.controller import Controller, StaleCache
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.endpoint_slices import MANAGED_BY, SERVICE_NAME, service_key
from kubeloop.controllers.runtime.rate_limiter import (
    BucketRateLimiter,
    ItemExponentialFailureRateLimiter,
    MaxOfRateLimiter,
)
from kubeloop.controllers.runtime.slice_tracker import EndpointSliceTracker
from kubeloop.informers.shared_informer import ResourceEventHandlerFuncs
from kubeloop.kube.errors import ApiError, NotFound, is_namespace_terminating
from kubeloop.kube.objects.api_types import JSONValue, ObjectReference, Service
from kubeloop.kube.objects.resources import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

_MAX_REQUEUES = 15
_MAX_BACKOFF_SECONDS = 100.0


class EndpointSliceMirroringController:
    """Reconciles the slices of Endpoints whose Service has no selector; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._events = context.events
        self._traces = context.traces
        self._seconds = context.seconds
        self._max_endpoints: int = context.options["mirroring_max_endpoints_per_subset"]
        self._batch_seconds: float = context.options["mirroring_endpointslice_updates_batch_period"]
        endpoints, slices = context.informers.informer(ENDPOINTS), context.informers.informer(ENDPOINT_SLICES)
        services = context.informers.informer(SERVICES)
        self._endpoints, self._slices, self._services = endpoints.store, slices.store, services.store
        self._slices.add_index("mirrored service", _mirrored_service)
        self._metrics = MirroringMetrics(context.families, self._max_endpoints)
        self._tracker = EndpointSliceTracker()
        limiter = MaxOfRateLimiter(
            ItemExponentialFailureRateLimiter(base=1.0, cap=_MAX_BACKOFF_SECONDS), BucketRateLimiter()
        )
        self._queue = context.new_queue("endpoint_slice_mirroring", limiter)
        self._controller = Controller(
            "endpointslicemirroring", self.reconcile, self._queue, context.workers, context, max_requeues=_MAX_REQUEUES
        )
        self._registrations = (
            services.add_handler(
                ResourceEventHandlerFuncs(
                    on_add=lambda service, _initial: self._on_service(service, "Service added"),
                    on_update=self._on_service_update,
                    on_delete=lambda service, _unknown: self._on_service(service, "Service deleted"),
                )
            ),
            endpoints.add_handler(
                ResourceEventHandlerFuncs(
                    on_add=lambda added, _initial: self._on_endpoints(added, "Endpoints added"),
                    on_update=self._on_endpoints_update,
                    on_delete=lambda deleted, _unknown: self._on_endpoints(deleted, "Endpoints deleted"),
                )
            ),
            slices.add_handler(
                ResourceEventHandlerFuncs(
                    on_add=lambda added, _initial: self._on_slice(added),
                    on_update=self._on_slice_update,
                    on_delete=lambda deleted, _unknown: self._on_slice_deleted(deleted),
                )
            ),
        )

    async def run(self) -> None:
        """Reconcile until cancelled, once the caches are synced."""
        await self._controller.run(self._registrations)

    # --- events -------------------------------------------------------------------------------------

    def _on_service(self, service: Service, reason: str) -> None:
        if not service.spec.selector:
            self._queue.add(service.key, reason)

    def _on_service_update(self, old: Service, new: Service) -> None:
        if bool(old.spec.selector) != bool(new.spec.selector):
            self._queue.add(new.key, "selector changed")

    def _on_endpoints(self, endpoints: JSONValue, reason: str) -> None:
        if is_mirrored(endpoints):
            self._queue.add(_key(endpoints), reason)

    def _on_endpoints_update(self, old: JSONValue, new: JSONValue) -> None:
        if is_mirrored(old) or is_mirrored(new):
            self._queue.add(_key(new), "Endpoints changed")

    def _on_slice(self, endpoint_slice: JSONValue) -> None:
        if _is_managed(endpoint_slice) and self._tracker.is_new(endpoint_slice):
            self._enqueue_endpoints_of(endpoint_slice)

    def _on_slice_update(self, old: JSONValue, new: JSONValue) -> None:
        if service_key(old) != service_key(new):
            self._enqueue_endpoints_of(old)
            self._enqueue_endpoints_of(new)
        elif _is_managed(old) != _is_managed(new):
            self._enqueue_endpoints_of(new)
        else:
            self._on_slice(new)

    def _on_slice_deleted(self, endpoint_slice: JSONValue) -> None:
        if _is_managed(endpoint_slice) and self._tracker.is_unexpected_deletion(endpoint_slice):
            self._enqueue_endpoints_of(endpoint_slice)

    def _enqueue_endpoints_of(self, endpoint_slice: JSONValue) -> None:
        if (endpoint_slice["metadata"].get("labels") or {}).get(SERVICE_NAME):
            self._queue.add_after(service_key(endpoint_slice), self._batch_seconds)

    # --- reconcile ----------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        """Bring the slices of the Endpoints `key` up to date. An exception means: retry with backoff."""
        started_at = self._seconds()
        try:
            with self._traces.reconcile("endpointslicemirroring", key, self._queue.pop_reasons(key)) as reconcile:
                await self._reconcile(key, reconcile)
        finally:
            self._metrics.synced(max(0.0, self._seconds() - started_at))
        return None

    async def _reconcile(self, key: str, reconcile: Reconcile) -> None:
        endpoints, service = self._endpoints.get(key), self._services.get(key)
        slices = self._slices.by_index("mirrored service", key)
        if endpoints is None or not is_mirrored(endpoints) or service is None or service.spec.selector:
            self._tracker.forget(key)
            self._metrics.forget(key)
            for current in slices:
                await self._delete(current, reconcile)
            return
        if self._tracker.is_stale(key, slices):
            raise StaleCache("EndpointSlice informer cache is out of date", ENDPOINT_SLICES.group_resource)
        changes = mirror_changes(endpoints, slices, self._max_endpoints)
        self._metrics.changed(key, changes)
        self._record_skipped(endpoints, changes)
        await self._apply(endpoints, changes, reconcile)

    def _record_skipped(self, endpoints: JSONValue, changes: MirrorChanges) -> None:
        """Record events about addresses that are not mirrored."""
        metadata = endpoints["metadata"]
        reference = ObjectReference(
            api_version=ENDPOINTS.api_version,
            kind=ENDPOINTS.kind,
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"],
        )
        if changes.invalid:
            message = f"Skipped {changes.invalid} invalid IP addresses when mirroring to EndpointSlices"
            self._events.event(reference, "Warning", "InvalidIPAddress", message)
        if changes.skipped > changes.invalid:
            message = (
                f"A max of {self._max_endpoints} addresses can be mirrored to EndpointSlices per Endpoints subset."
                f" {changes.skipped} addresses were skipped"
            )
            self._events.event(reference, "Warning", "TooManyAddressesToMirror", message)

    async def _apply(self, endpoints: JSONValue, changes: MirrorChanges, reconcile: Reconcile) -> None:
        namespace = endpoints["metadata"]["namespace"]
        if not endpoints["metadata"].get("deletionTimestamp"):  # else in a race with the garbage collector
            for created in changes.create:
                try:
                    with reconcile.action_span("create EndpointSlice"):
                        self._tracker.written(await self._client.create(ENDPOINT_SLICES, created, namespace))
                except ApiError as error:
                    if is_namespace_terminating(error):
                        return
                    raise
                self._metrics.slice_changed("create")
        for updated in changes.update:
            name = updated["metadata"]["name"]
            with reconcile.action_span(f"update EndpointSlice {name}"):
                self._tracker.written(await self._client.update(ENDPOINT_SLICES, name, updated, namespace))
            self._metrics.slice_changed("update")
        for current in changes.unchanged:
            self._tracker.written(current)
        for deleted in changes.delete:
            await self._delete(deleted, reconcile)
            self._tracker.deleted(deleted)

    async def _delete(self, endpoint_slice: JSONValue, reconcile: Reconcile) -> None:
        metadata = endpoint_slice["metadata"]
        with reconcile.action_span(f"delete EndpointSlice {metadata['name']}"), suppress(NotFound):
            await self._client.delete(
                ENDPOINT_SLICES, metadata["name"], metadata["namespace"], precondition_uid=metadata["uid"]
            )
            self._metrics.slice_changed("delete")


def _is_managed(endpoint_slice: JSONValue) -> bool:
    labels = endpoint_slice["metadata"].get("labels") or {}
    return bool(labels.get(MANAGED_BY) == CONTROLLER)


def _mirrored_service(endpoint_slice: JSONValue) -> tuple[str, ...]:
    return (service_key(endpoint_slice),) if _is_managed(endpoint_slice) else ()


def _key(endpoints: JSONValue) -> str:
    metadata = endpoints["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"
