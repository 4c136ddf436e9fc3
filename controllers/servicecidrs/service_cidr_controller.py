"""ServiceCIDR controller: sets Ready and the finalizer, which it removes when no Service needs the range any more.

Source: v1.36 pkg/controller/servicecidrs/servicecidrs_controller.go.
"""

from __future__ import annotations

from contextlib import suppress

from kubeloop.controllers.runtime.controller import EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.servicecidrs.service_cidr_deletion import (
    can_delete,
    containing_address,
    is_allocated,
    overlapping,
)
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.errors import ApiError, NotFound
from kubeloop.kube.objects.api_types import JSONValue, ObjectReference
from kubeloop.kube.objects.resources import IP_ADDRESSES, SERVICE_CIDRS
from kubeloop.kube.values.times import parse_time, seconds_between

FINALIZER = "networking.k8s.io/service-cidr-finalizer"
_NAME = "service-cidr-controller"
_DELETION_SECONDS = 10.0  # until all API servers have stopped to allocate from a range in deletion
_MAX_REQUEUES = 15
_READY = ("True", "", "Kubernetes Service CIDR is ready")
_TERMINATING = (
    "False",
    "Terminating",
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
)


class ServiceCIDRController(EventDrivenController):
    """Reconciles ServiceCIDRs, by name; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "servicecidrs", "ipaddresses", max_requeues=_MAX_REQUEUES)
        cidrs, addresses = context.informers.informer(SERVICE_CIDRS), context.informers.informer(IP_ADDRESSES)
        self._cidrs, self._addresses = cidrs.store, addresses.store
        self._registrations = (
            cidrs.on_events(
                added=self._on_cidr,
                updated=lambda _old, new: self.queue.add(new["metadata"]["name"]),
                deleted=lambda deleted: self.queue.add(deleted["metadata"]["name"]),
            ),
            addresses.on_events(added=self._on_address, deleted=self._on_address),
        )

    def _on_cidr(self, service_cidr: JSONValue) -> None:
        """Enqueue a new ServiceCIDR, and those that it may allow to be deleted."""
        self.queue.add(service_cidr["metadata"]["name"])
        for name in overlapping(service_cidr, self._cidrs.values()):
            self.queue.add(name)

    def _on_address(self, address: JSONValue) -> None:
        if is_allocated(address):
            for name in containing_address(address["metadata"]["name"], self._cidrs.values()):
                self.queue.add(name)

    async def reconcile(self, name: str) -> float | None:
        """Bring condition and finalizer of a ServiceCIDR up to date. An exception means: retry with backoff."""
        service_cidr = self._cidrs.get(name)
        if service_cidr is None:
            return None
        metadata = service_cidr["metadata"]
        finalizers = metadata.get("finalizers") or []
        if deleted_at := metadata.get("deletionTimestamp"):
            if not can_delete(service_cidr, [*self._cidrs.values()], self._addresses.values()):
                await self._set_ready(service_cidr, *_TERMINATING)
                return None
            age_seconds = seconds_between(parse_time(deleted_at), self._clock.now())
            if age_seconds < _DELETION_SECONDS:
                return _DELETION_SECONDS - age_seconds
            if FINALIZER in finalizers:
                await self._patch_finalizers(metadata, {"$deleteFromPrimitiveList/finalizers": [FINALIZER]})
            return None
        if FINALIZER not in finalizers:
            await self._patch_finalizers(metadata, {"finalizers": [FINALIZER]})
        try:
            await self._set_ready(service_cidr, *_READY)
        except ApiError:
            reference = ObjectReference(
                api_version=SERVICE_CIDRS.api_version, kind=SERVICE_CIDRS.kind, name=name, uid=metadata["uid"]
            )
            message = "The ServiceCIDR Status can not be set to Ready=True"
            self._events.event(reference, "Warning", "KubernetesServiceCIDRError", message)
            raise
        return None

    async def _patch_finalizers(self, metadata: JSONValue, changes: JSONValue) -> None:
        body = {"metadata": {"uid": metadata["uid"], **changes}}
        with suppress(NotFound):
            await self._client.patch(SERVICE_CIDRS, metadata["name"], body, PatchType.STRATEGIC)

    async def _set_ready(self, service_cidr: JSONValue, status: str, reason: str, message: str) -> None:
        """Apply the condition Ready unless it is equal but for its time."""
        conditions = (service_cidr.get("status") or {}).get("conditions") or ()
        current: JSONValue = next((it for it in conditions if it["type"] == "Ready"), {})
        if (current.get("status"), current.get("reason", ""), current.get("message")) == (status, reason, message):
            return
        condition = {
            "type": "Ready",
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": rfc3339(self._clock.now()),
        }
        name = service_cidr["metadata"]["name"]
        body = {
            "apiVersion": SERVICE_CIDRS.api_version,
            "kind": SERVICE_CIDRS.kind,
            "metadata": {"name": name, "uid": service_cidr["metadata"]["uid"]},
            "status": {"conditions": [condition]},
        }
        query = {"fieldManager": _NAME, "force": "true"}
        await self._client.patch(SERVICE_CIDRS, name, body, PatchType.APPLY, subresource="status", query=query)
