"""Endpoints controller: the events that enqueue a Service, and its reconcile.

Source: v1.36 pkg/controller/endpoint/endpoints_controller.go.
"""

from __future__ import annotations

from contextlib import suppress

from kubeloop.controllers.endpoint.endpoint_subsets import (
    MAX_ADDRESSES,
    address_count,
    canonical,
    endpoint_subsets,
    truncated,
)
from kubeloop.controllers.runtime.controller import Controller, StaleCache
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.service_pods import (
    IS_HEADLESS_SERVICE,
    LAST_CHANGE_TRIGGER_TIME,
    TriggerTimeTracker,
    affected_services,
    has_selected_endpoints,
    is_headless,
    selects,
)
from kubeloop.informers.shared_informer import ResourceEventHandlerFuncs
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.errors import ApiError, NotFound, is_namespace_terminating
from kubeloop.kube.objects.api_types import JSONValue, ObjectReference, Pod, Service
from kubeloop.kube.objects.resources import ENDPOINTS, PODS, SERVICES
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

_MANAGED_BY = "endpoints.kubernetes.io/managed-by"
_CONTROLLER = "endpoint-controller"
_OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
_LEADER = "control-plane.alpha.kubernetes.io/leader"
_MAX_REQUEUES = 15


class EndpointsController:
    """Reconciles the Endpoints of Services; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._events = context.events
        self._traces = context.traces
        self._batch_seconds: float = context.options["endpoint_updates_batch_period"]
        services, pods = context.informers.informer(SERVICES), context.informers.informer(PODS)
        endpoints = context.informers.informer(ENDPOINTS)
        self._services, self._pods, self._endpoints = services.store, pods.store, endpoints.store
        self._services.add_index("namespace")
        self._pods.add_index("namespace")
        self._trigger_times = TriggerTimeTracker()
        self._replaced_versions: dict[str, str] = {}  # Service -> version that the last write replaced, "" for none
        self._queue = context.new_queue("endpoint")
        self._controller = Controller(
            "endpoint", self.reconcile, self._queue, context.workers, context, max_requeues=_MAX_REQUEUES
        )
        self._registrations = (
            services.add_handler(
                ResourceEventHandlerFuncs(
                    on_add=lambda service, _initial: self._queue.add(service.key, "Service added"),
                    on_update=lambda _old, new: self._queue.add(new.key, "Service changed"),
                    on_delete=lambda service, _unknown: self._queue.add(service.key, "Service deleted"),
                )
            ),
            pods.add_handler(
                ResourceEventHandlerFuncs(
                    on_add=lambda pod, _initial: self._on_pod(None, pod),
                    on_update=self._on_pod,
                    on_delete=lambda pod, _unknown: self._on_pod(None, pod),
                )
            ),
            endpoints.add_handler(
                ResourceEventHandlerFuncs(
                    on_add=self._on_endpoints,
                    on_delete=lambda deleted, _unknown: self._on_endpoints_deleted(_key(deleted)),
                )
            ),
        )

    async def run(self) -> None:
        """Reconcile until cancelled, once the caches are synced."""
        await self._controller.run(self._registrations)

    def _on_pod(self, old: Pod | None, new: Pod) -> None:
        services = self._services.view("namespace", new.metadata.namespace)
        for service in affected_services(old, new, services):
            if self._batch_seconds:
                self._queue.add_after(service.key, self._batch_seconds)
            else:
                self._queue.add(service.key, "Pod changed")

    def _on_endpoints(self, endpoints: JSONValue, is_initial: bool) -> None:
        """Check the Endpoints of the first list: their Service may have been deleted before the start."""
        if is_initial and _LEADER not in (endpoints["metadata"].get("annotations") or {}):
            self._queue.add(_key(endpoints), "leftover Endpoints")

    def _on_endpoints_deleted(self, key: str) -> None:
        self._replaced_versions.pop(key, None)
        self._queue.add(key, "Endpoints deleted")

    async def reconcile(self, key: str) -> float | None:
        """Bring the Endpoints of Service `key` up to date. An exception means: retry with backoff."""
        service = self._services.get(key)
        if service is None:
            namespace, _, name = key.partition("/")
            with suppress(NotFound):
                await self._client.delete(ENDPOINTS, name, namespace)
            self._trigger_times.forget(key)
            self._replaced_versions.pop(key, None)
            return None
        if not has_selected_endpoints(service):
            return None
        current = self._endpoints.get(key)
        if self._replaced_versions.get(key) == _version(current):
            raise StaleCache("endpoints informer cache is out of date")
        with self._traces.reconcile("endpoint", key, self._queue.pop_reasons(key)) as reconcile:
            await self._sync(service, current, reconcile)
        return None

    async def _sync(self, service: Service, current: JSONValue | None, reconcile: Reconcile) -> None:
        pods = [pod for pod in self._pods.view("namespace", service.metadata.namespace) if selects(service, pod)]
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
        reference = ObjectReference(api_version="v1", kind="Endpoints", name=name, namespace=namespace)
        if current is None:
            try:
                with reconcile.action_span("create Endpoints"):
                    await self._client.create(ENDPOINTS, body, namespace)
            except ApiError as error:
                if is_namespace_terminating(error):
                    return
                message = f"Failed to create endpoint for service {service.key}: {error}"
                self._events.event(reference, "Warning", "FailedToCreateEndpoint", message)
                raise
            self._replaced_versions[service.key] = ""
            return
        try:
            with reconcile.action_span("update Endpoints"):
                updated = await self._client.update(ENDPOINTS, name, body, namespace)
        except ApiError as error:
            message = f"Failed to update endpoint {service.key}: {error}"
            self._events.event(reference, "Warning", "FailedToUpdateEndpoint", message)
            raise
        if _version(updated) != _version(current):
            self._replaced_versions[service.key] = _version(current)


def _version(endpoints: JSONValue | None) -> str:
    """Return the resourceVersion; "" without an object."""
    return str(endpoints["metadata"]["resourceVersion"]) if endpoints is not None else ""


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
        and canonical(old_subsets) == canonical(subsets)
    )


def _labels(service: Service) -> dict[str, str]:
    labels = {name: value for name, value in service.metadata.labels.items() if name != IS_HEADLESS_SERVICE}
    if is_headless(service):
        labels[IS_HEADLESS_SERVICE] = ""
    return {**labels, _MANAGED_BY: _CONTROLLER}


def _key(endpoints: JSONValue) -> str:
    metadata = endpoints["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"
