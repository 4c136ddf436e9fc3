"""EndpointSlice controller: the events that enqueue a Service, and its reconcile.

Source: v1.36 pkg/controller/endpointslice/endpointslice_controller.go, staging/src/k8s.io/endpointslice/reconciler.go.
"""

from __future__ import annotations

from datetime import datetime

from kubeloop.controllers.endpointslice.endpoint_hints import (
    is_valid_traffic_distribution,
    remove_hints,
    set_traffic_hints,
)
from kubeloop.controllers.endpointslice.metrics import EndpointSliceMetrics, service_size
from kubeloop.controllers.endpointslice.pod_endpoints import ZONE, address_types, desired_endpoints
from kubeloop.controllers.endpointslice.slice_changes import (
    CONTROLLER,
    SliceChanges,
    reuse_deleted,
    slice_changes,
)
from kubeloop.controllers.endpointslice.topology_cache import TopologyCache, cpu_ratios, wants_topology_hints
from kubeloop.controllers.runtime.controller import Controller, ReconcileError, StaleCache
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.endpoint_slices import MANAGED_BY, SERVICE_NAME, service_key
from kubeloop.controllers.runtime.rate_limiter import (
    BucketRateLimiter,
    ItemExponentialFailureRateLimiter,
    MaxOfRateLimiter,
)
from kubeloop.controllers.runtime.service_events import add_service_handlers
from kubeloop.controllers.runtime.service_pods import (
    LAST_CHANGE_TRIGGER_TIME,
    TriggerTimeTracker,
    has_selected_endpoints,
    selects,
)
from kubeloop.controllers.runtime.slice_tracker import EndpointSliceTracker
from kubeloop.informers.shared_informer import ResourceEventHandlerFuncs
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.errors import ApiError, is_namespace_terminating
from kubeloop.kube.objects.api_types import JSONValue, Node, Pod, Service
from kubeloop.kube.objects.object_fields import condition_of
from kubeloop.kube.objects.resources import ENDPOINT_SLICES, NODES, PODS, SERVICES
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

_SLICE_CHANGE_SECONDS = 1.0  # least delay after another writer's change of a slice
_ADDRESS_TYPES = ("IPv4", "IPv6")
_MAX_REQUEUES = 15


class EndpointSliceController:
    """Reconciles the EndpointSlices of Services; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._events = context.events
        self._traces = context.traces
        self._max_endpoints: int = context.options["max_endpoints_per_slice"]
        self._batch_seconds: float = context.options["endpointslice_updates_batch_period"]
        self._prefer_same = context.feature_gates.enabled("PreferSameTrafficDistribution")
        self._services = context.informers.informer(SERVICES).store
        self._pods = context.informers.informer(PODS).store
        nodes, slices = context.informers.informer(NODES), context.informers.informer(ENDPOINT_SLICES)
        self._nodes, self._slices = nodes.store, slices.store
        self._slices.add_index("service", _managed_service)
        self._metrics = EndpointSliceMetrics(context.families)
        self._tracker = EndpointSliceTracker()
        self._trigger_times = TriggerTimeTracker()
        self._topology = TopologyCache()
        self._nodes_version = -1  # of the nodes in the topology cache
        limiter = MaxOfRateLimiter(ItemExponentialFailureRateLimiter(base=1.0), BucketRateLimiter())
        self._queue = context.new_queue("endpoint_slice", limiter)
        self._controller = Controller(
            "endpointslice", self.reconcile, self._queue, context.workers, context, max_requeues=_MAX_REQUEUES
        )
        self._registrations = (
            *add_service_handlers(context.informers, self._queue, self._batch_seconds),
            nodes.add_handler(
                ResourceEventHandlerFuncs(
                    on_add=lambda _node, _initial: self._on_nodes(),
                    on_update=self._on_node_update,
                    on_delete=lambda _node, _unknown: self._on_nodes(),
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

    def _on_node_update(self, old: Node, new: Node) -> None:
        if _is_ready(old) != _is_ready(new) or old.metadata.labels.get(ZONE) != new.metadata.labels.get(ZONE):
            self._on_nodes()

    def _on_nodes(self) -> None:
        for key in self._topology.services():
            self._queue.add(key, "nodes changed")

    def _on_slice(self, endpoint_slice: JSONValue) -> None:
        if _is_managed(endpoint_slice) and self._tracker.is_new(endpoint_slice):
            self._enqueue_service_of(endpoint_slice)

    def _on_slice_update(self, old: JSONValue, new: JSONValue) -> None:
        if service_key(old) != service_key(new):
            self._enqueue_service_of(old)
            self._enqueue_service_of(new)
        elif _is_managed(old) != _is_managed(new):
            self._enqueue_service_of(new)
        else:
            self._on_slice(new)

    def _on_slice_deleted(self, endpoint_slice: JSONValue) -> None:
        if _is_managed(endpoint_slice) and self._tracker.is_unexpected_deletion(endpoint_slice):
            self._enqueue_service_of(endpoint_slice)

    def _enqueue_service_of(self, endpoint_slice: JSONValue) -> None:
        if (endpoint_slice["metadata"].get("labels") or {}).get(SERVICE_NAME):
            self._queue.add_after(service_key(endpoint_slice), max(_SLICE_CHANGE_SECONDS, self._batch_seconds))

    # --- reconcile ----------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        """Bring the EndpointSlices of Service `key` up to date. An exception means: retry with backoff."""
        try:
            await self._reconcile(key)
        except Exception as error:
            self._metrics.synced("stale" if isinstance(error, StaleCache) else "error")
            raise
        self._metrics.synced("success")
        return None

    async def _reconcile(self, key: str) -> None:
        service = self._services.get(key)
        if service is None:  # the garbage collector deletes its slices
            self._trigger_times.forget(key)
            self._tracker.forget(key)
            for address_type in _ADDRESS_TYPES:
                self._topology.forget(key, address_type)
            self._metrics.forget(key, _ADDRESS_TYPES)
            self._queue.pop_reasons(key)
            return
        if not has_selected_endpoints(service):
            return
        pods = [pod for pod in self._pods.view("namespace", service.metadata.namespace) if selects(service, pod)]
        slices = [it for it in self._slices.by_index("service", key) if not it["metadata"].get("deletionTimestamp")]
        if self._tracker.is_stale(key, slices):
            raise StaleCache("EndpointSlice informer cache is out of date", ENDPOINT_SLICES.group_resource)
        with self._traces.reconcile("endpointslice", key, self._queue.pop_reasons(key)) as reconcile:
            try:
                await self._sync(service, pods, slices, reconcile)
            except Exception as error:
                message = f"Error updating Endpoint Slices for Service {key}: {error}"
                self._events.event(service, "Warning", "FailedToUpdateEndpointSlices", message)
                raise

    async def _sync(self, service: Service, pods: list[Pod], slices: list[JSONValue], reconcile: Reconcile) -> None:
        changed_at = self._trigger_times.last_change(service, pods)
        missing_nodes: list[tuple[str, str]] = []
        types = address_types(service)
        for address_type in types:
            desired = desired_endpoints(service, pods, self._nodes.get, address_type)
            existing = [it for it in slices if it["addressType"] == address_type]
            changes = slice_changes(service, existing, desired, address_type, self._max_endpoints)
            self._metrics.endpoints_changed(changes.added, changes.removed)
            group_sizes = [len(group.endpoints) for group in desired.groups.values()]
            slices_after = len(existing) + len(changes.create) - len(changes.delete)
            self._metrics.set_size(
                service.key, address_type, service_size(group_sizes, slices_after, self._max_endpoints)
            )
            self._set_hints(service, address_type, changes)
            reuse_deleted(changes, service)
            await self._apply(service, changes, changed_at, reconcile)
            hints = wants_topology_hints(service.metadata.annotations)
            self._metrics.slices_changed(changes.number, topology_hints=hints, distribution=self._distribution(service))
            missing_nodes = desired.missing_nodes
        for current in slices:
            if current["addressType"] not in types:
                self._topology.forget(service.key, current["addressType"])
                await self._delete(current, reconcile)
        if missing_nodes:
            pod, node = missing_nodes[0]
            raise ReconcileError(f"skipping Pod {pod} for Service {service.key}: Node {node} Not Found")

    def _set_hints(self, service: Service, address_type: str, changes: SliceChanges) -> None:
        distribution = self._distribution(service)
        self._metrics.set_distribution(service.key, distribution)
        if wants_topology_hints(service.metadata.annotations):
            if self._nodes_version != self._nodes.version:
                self._nodes_version = self._nodes.version
                self._topology.ratios = cpu_ratios(self._nodes.values())
            events = self._topology.add_hints(service.key, address_type, changes)
        else:
            events = self._topology.disable(service.key, address_type)
            if distribution:
                set_traffic_hints(changes, distribution)
            else:
                remove_hints(changes)
        for event in events:
            self._events.event(service, event.type, event.reason, event.message)

    def _distribution(self, service: Service) -> str:
        """Return the trafficDistribution of a Service; "" for none, or if it is not valid or replaced by hints."""
        distribution = service.spec.traffic_distribution or ""
        is_valid = is_valid_traffic_distribution(distribution, prefer_same=self._prefer_same)
        return distribution if is_valid and not wants_topology_hints(service.metadata.annotations) else ""

    async def _apply(
        self, service: Service, changes: SliceChanges, changed_at: datetime | None, reconcile: Reconcile
    ) -> None:
        namespace = service.metadata.namespace
        if service.metadata.deletion_timestamp is None:  # else in a race with the garbage collector
            for created in changes.create:
                _set_trigger_time(created, changed_at)
                try:
                    with reconcile.action_span("create EndpointSlice"):
                        self._tracker.written(await self._client.create(ENDPOINT_SLICES, created, namespace))
                    self._metrics.slice_changed("create")
                except ApiError as error:
                    if is_namespace_terminating(error):
                        return
                    raise
        for updated in changes.update:
            _set_trigger_time(updated, changed_at)
            name = updated["metadata"]["name"]
            with reconcile.action_span(f"update EndpointSlice {name}"):
                self._tracker.written(await self._client.update(ENDPOINT_SLICES, name, updated, namespace))
            self._metrics.slice_changed("update")
        for deleted in changes.delete:
            await self._delete(deleted, reconcile)

    async def _delete(self, endpoint_slice: JSONValue, reconcile: Reconcile) -> None:
        metadata = endpoint_slice["metadata"]
        with reconcile.action_span(f"delete EndpointSlice {metadata['name']}"):
            await self._client.delete(
                ENDPOINT_SLICES, metadata["name"], metadata["namespace"], precondition_uid=metadata["uid"]
            )
        self._tracker.deleted(endpoint_slice)
        self._metrics.slice_changed("delete")


def _set_trigger_time(endpoint_slice: JSONValue, changed_at: datetime | None) -> None:
    """Set the annotation with the time of the change that is published, for kube-proxy; remove it without a time."""
    metadata = endpoint_slice["metadata"]
    annotations = dict(metadata.get("annotations") or {})
    if changed_at is None:
        annotations.pop(LAST_CHANGE_TRIGGER_TIME, None)
    else:
        annotations[LAST_CHANGE_TRIGGER_TIME] = rfc3339(changed_at)
    metadata["annotations"] = annotations


def _managed_service(endpoint_slice: JSONValue) -> tuple[str, ...]:
    return (service_key(endpoint_slice),) if _is_managed(endpoint_slice) else ()


def _is_managed(endpoint_slice: JSONValue) -> bool:
    labels = endpoint_slice["metadata"].get("labels") or {}
    return bool(labels.get(MANAGED_BY) == CONTROLLER)


def _is_ready(node: Node) -> bool:
    ready = condition_of(node.status.conditions, "Ready")
    return ready is not None and ready.status == "True"
