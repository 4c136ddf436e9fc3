"""Endpoints controller: the events that enqueue a Service, and its reconcile.

Source: v1.36 pkg/controller/endpoint/endpoints_controller.go.
"""

from __future__ import annotations

from contextlib import suppress

from kubeloop.controllers.endpoint.endpoint_subsets import (
    MAX_ADDRESSES,
    address_count,
    endpoint_subsets,
    truncated,
)
from kubeloop.controllers.runtime.controller import EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.services.service_events import add_service_handlers
from kubeloop.controllers.runtime.services.service_pods import (
    IS_HEADLESS_SERVICE,
    LAST_CHANGE_TRIGGER_TIME,
    TriggerTimeTracker,
    has_selected_endpoints,
    is_headless,
    selected_pods,
)
from kubeloop.controllers.runtime.services.subset_packing import LEADER, repacked_subsets
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.informers.shared_informer import ResourceEventHandlerFuncs
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.errors import ApiError, NotFound, is_namespace_terminating
from kubeloop.kube.objects.api_types import JSONValue, ObjectReference, Service
from kubeloop.kube.objects.resources import ENDPOINTS, PODS, SERVICES
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

_MANAGED_BY = "endpoints.kubernetes.io/managed-by"
_CONTROLLER = "endpoint-controller"
_OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
_MAX_REQUEUES = 15


class EndpointsController(EventDrivenController):
    """Reconciles the Endpoints of Services; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "endpoint", "endpoint", max_requeues=_MAX_REQUEUES)
        self._traces = context.traces
        endpoints = context.informers.informer(ENDPOINTS)
        self._services = context.informers.informer(SERVICES).store
        self._pods = context.informers.informer(PODS).store
        self._endpoints = endpoints.store
        self._trigger_times = TriggerTimeTracker()
        self._consistency = ConsistencyStore({ENDPOINTS.group_resource: lambda: endpoints.last_resource_version})
        self._registrations = (
            *add_service_handlers(context.informers, self.queue, context.options["endpoint_updates_batch_period"]),
            endpoints.add_handler(
                ResourceEventHandlerFuncs(
                    on_add=self._on_endpoints,
                    on_delete=lambda deleted, _unknown: self.queue.add(_key(deleted), "Endpoints deleted"),
                )
            ),
        )

    def _on_endpoints(self, endpoints: JSONValue, is_initial: bool) -> None:
        """Check the Endpoints of the first list: their Service may have been deleted before the start."""
        if is_initial and LEADER not in (endpoints["metadata"].get("annotations") or {}):
            self.queue.add(_key(endpoints), "leftover Endpoints")

    async def reconcile(self, key: str) -> float | None:
        """Bring the Endpoints of Service `key` up to date. An exception means: retry with backoff."""
        service = self._services.get(key)
        if service is None:
            await self._delete(key)
            self._trigger_times.forget(key)
            self._consistency.forget(key)
            self.queue.pop_reasons(key)
            return None
        if not has_selected_endpoints(service):
            return None
        self._consistency.ensure_ready(key)
        with self._traces.reconcile("endpoint", key, self.queue.pop_reasons(key)) as reconcile:
            await self._sync(service, self._endpoints.get(key), reconcile)
        return None

    async def _delete(self, key: str) -> None:
        """Delete the Endpoints of a deleted Service. Those that the cache does not show yet are read first.

        v1.36 deletes those by name alone, which may hit the Endpoints of a Service that has been created again.
        """
        namespace, _, name = key.partition("/")
        endpoints = self._endpoints.get(key)
        with suppress(NotFound):
            if endpoints is None:
                endpoints = await self._client.get(ENDPOINTS, name, namespace)
            await self._client.delete(ENDPOINTS, name, namespace, precondition_uid=endpoints["metadata"]["uid"])

    async def _sync(self, service: Service, current: JSONValue | None, reconcile: Reconcile) -> None:
        pods = selected_pods(self._pods, service)
        changed_at = self._trigger_times.last_change(service, pods)
        subsets = endpoint_subsets(service, pods)
        if current is not None and _is_current(current, service, subsets):
            return
        metadata: JSONValue = {**current["metadata"]} if current is not None else {"name": service.metadata.name}
        annotations = dict(metadata.get("annotations") or {})
        annotations.pop(LAST_CHANGE_TRIGGER_TIME, None)
        annotations.pop(_OVER_CAPACITY, None)
        if changed_at is not None:
            annotations[LAST_CHANGE_TRIGGER_TIME] = rfc3339(changed_at)
        fewer_subsets = truncated(subsets)
        if fewer_subsets is not None:
            subsets = fewer_subsets
            annotations[_OVER_CAPACITY] = "truncated"
        metadata |= {"annotations": annotations, "labels": _labels(service)}
        body = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets}
        await self._write(service, current, body, reconcile)

    async def _write(self, service: Service, current: JSONValue | None, body: JSONValue, reconcile: Reconcile) -> None:
        name, namespace = service.metadata.name, service.metadata.namespace
        verb = "create" if current is None else "update"
        try:
            with reconcile.action_span(f"{verb} Endpoints"):
                if current is None:
                    written = await self._client.create(ENDPOINTS, body, namespace)
                else:
                    written = await self._client.update(ENDPOINTS, name, body, namespace)
        except ApiError as error:
            if current is None and is_namespace_terminating(error):
                return
            reference = ObjectReference(api_version="v1", kind="Endpoints", name=name, namespace=namespace)
            about = f"endpoint for service {service.key}" if current is None else f"endpoint {service.key}"
            message = f"Failed to {verb} {about}: {error}"
            self._events.event(reference, "Warning", f"FailedTo{verb.capitalize()}Endpoint", message)
            raise
        version = written["metadata"]["resourceVersion"]
        self._consistency.wrote_at(service.key, service.metadata.uid, ENDPOINTS.group_resource, version)


def _is_current(current: JSONValue, service: Service, subsets: list[JSONValue]) -> bool:
    """Return True if the Endpoints need no write; those with too many addresses are always written again."""
    metadata = current["metadata"]
    old_subsets = current.get("subsets") or []
    labels = metadata.get("labels") or {}
    compared = {name: value for name, value in labels.items() if name not in (IS_HEADLESS_SERVICE, _MANAGED_BY)}
    return (
        labels.get(_MANAGED_BY) == _CONTROLLER
        and compared == service.metadata.labels
        and address_count(old_subsets, "addresses", "notReadyAddresses") <= MAX_ADDRESSES
        and _OVER_CAPACITY not in (metadata.get("annotations") or {})
        and repacked_subsets(old_subsets) == repacked_subsets(subsets)
    )


def _labels(service: Service) -> dict[str, str]:
    labels = {name: value for name, value in service.metadata.labels.items() if name != IS_HEADLESS_SERVICE}
    if is_headless(service):
        labels[IS_HEADLESS_SERVICE] = ""
    return {**labels, _MANAGED_BY: _CONTROLLER}


def _key(endpoints: JSONValue) -> str:
    metadata = endpoints["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"
