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
from kubeloop.controllers.runtime.controller import EventDrivenController, StaleCache
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.queue.rate_limiter import controller_rate_limiter
from kubeloop.controllers.runtime.services.managed_slices import ManagedSlices
from kubeloop.kube.errors import NotFound
from kubeloop.kube.objects.api_types import JSONValue, ObjectReference, Service
from kubeloop.kube.objects.resources import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

_MAX_REQUEUES = 15
_MAX_BACKOFF_SECONDS = 100.0


class EndpointSliceMirroringController(EventDrivenController):
    """Reconciles the slices of Endpoints whose Service has no selector; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(
            context,
            "endpointslicemirroring",
            "endpoint_slice_mirroring",
            controller_rate_limiter(base=1.0, cap=_MAX_BACKOFF_SECONDS),
            max_requeues=_MAX_REQUEUES,
        )
        self._traces = context.traces
        self._seconds = context.seconds
        self._max_endpoints: int = context.options["mirroring_max_endpoints_per_subset"]
        batch_seconds: float = context.options["mirroring_endpointslice_updates_batch_period"]
        endpoints, services = context.informers.informer(ENDPOINTS), context.informers.informer(SERVICES)
        self._endpoints, self._services = endpoints.store, services.store
        self._metrics = MirroringMetrics(context.metrics, self._max_endpoints)
        self._slices = ManagedSlices(
            context, CONTROLLER, lambda key: self.queue.add_after(key, batch_seconds), self._metrics.slice_changed
        )
        self._registrations = (
            services.on_events(
                added=lambda service: self._on_service(service, "Service added"),
                updated=self._on_service_update,
                deleted=lambda service: self._on_service(service, "Service deleted"),
            ),
            endpoints.on_events(
                added=lambda added: self._on_endpoints(added, "Endpoints added"),
                updated=self._on_endpoints_update,
                deleted=lambda deleted: self._on_endpoints(deleted, "Endpoints deleted"),
            ),
            self._slices.registration,
        )

    # --- events -------------------------------------------------------------------------------------

    def _on_service(self, service: Service, reason: str) -> None:
        if not service.spec.selector:
            self.queue.add(service.key, reason)

    def _on_service_update(self, old: Service, new: Service) -> None:
        if bool(old.spec.selector) != bool(new.spec.selector):
            self.queue.add(new.key, "selector changed")

    def _on_endpoints(self, endpoints: JSONValue, reason: str) -> None:
        if is_mirrored(endpoints):
            self.queue.add(_key(endpoints), reason)

    def _on_endpoints_update(self, old: JSONValue, new: JSONValue) -> None:
        if is_mirrored(old) or is_mirrored(new):
            self.queue.add(_key(new), "Endpoints changed")

    # --- reconcile ----------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        """Bring the slices of the Endpoints `key` up to date. An exception means: retry with backoff."""
        started_at = self._seconds()
        try:
            with self._traces.reconcile("endpointslicemirroring", key, self.queue.pop_reasons(key)) as reconcile:
                await self._reconcile(key, reconcile)
        finally:
            self._metrics.synced(max(0.0, self._seconds() - started_at))
        return None

    async def _reconcile(self, key: str, reconcile: Reconcile) -> None:
        endpoints, service = self._endpoints.get(key), self._services.get(key)
        slices = self._slices.of_service(key)
        if endpoints is None or not is_mirrored(endpoints) or service is None or service.spec.selector:
            for current in slices:
                with suppress(NotFound):  # the garbage collector deletes those of deleted Endpoints, too
                    await self._slices.delete(current, reconcile)
            self._slices.tracker.forget(key)
            self._metrics.forget(key)
            return
        if self._slices.tracker.is_stale(key, slices):
            raise StaleCache("EndpointSlice informer cache is out of date", ENDPOINT_SLICES.group_resource)
        changes = mirror_changes(endpoints, slices, self._max_endpoints)
        self._metrics.changed(key, changes)
        self._record_skipped(endpoints, changes)
        for current in changes.unchanged:
            self._slices.tracker.written(current)
        # in a race with the garbage collector, deleted Endpoints get no new slices
        created = [] if endpoints["metadata"].get("deletionTimestamp") else changes.create
        await self._slices.write(created, changes.update, changes.delete, reconcile)

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


def _key(endpoints: JSONValue) -> str:
    metadata = endpoints["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"
