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
from kubeloop.controllers.runtime.controller import EventDrivenController, ReconcileError, StaleCache
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.queue.rate_limiter import controller_rate_limiter
from kubeloop.controllers.runtime.services.managed_slices import ManagedSlices
from kubeloop.controllers.runtime.services.service_events import add_service_handlers
from kubeloop.controllers.runtime.services.service_pods import (
    LAST_CHANGE_TRIGGER_TIME,
    TriggerTimeTracker,
    has_selected_endpoints,
    selected_pods,
)
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.api_types import JSONValue, Node, Pod, Service
from kubeloop.kube.objects.object_fields import condition_of
from kubeloop.kube.objects.resources import ENDPOINT_SLICES, NODES, PODS, SERVICES
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

_SLICE_CHANGE_SECONDS = 1.0  # least delay after another writer's change of a slice
_ADDRESS_TYPES = ("IPv4", "IPv6")
_MAX_REQUEUES = 15


class EndpointSliceController(EventDrivenController):
    """Reconciles the EndpointSlices of Services; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(
            context, "endpointslice", "endpoint_slice", controller_rate_limiter(base=1.0), max_requeues=_MAX_REQUEUES
        )
        self._traces = context.traces
        self._max_endpoints: int = context.options["max_endpoints_per_slice"]
        self._batch_seconds: float = context.options["endpointslice_updates_batch_period"]
        self._prefer_same = context.feature_gates.enabled("PreferSameTrafficDistribution")
        self._services = context.informers.informer(SERVICES).store
        self._pods = context.informers.informer(PODS).store
        nodes = context.informers.informer(NODES)
        self._nodes = nodes.store
        self._metrics = EndpointSliceMetrics(context.metrics)
        self._trigger_times = TriggerTimeTracker()
        self._topology = TopologyCache()
        self._nodes_version = -1  # of the nodes in the topology cache
        slice_seconds = max(_SLICE_CHANGE_SECONDS, self._batch_seconds)
        self._slices = ManagedSlices(
            context,
            CONTROLLER,
            lambda key: self.queue.add_after(key, slice_seconds),
            self._metrics.slice_changed,
        )
        self._registrations = (
            *add_service_handlers(context.informers, self.queue, self._batch_seconds),
            nodes.on_events(
                added=lambda _node: self._on_nodes(),
                updated=self._on_node_update,
                deleted=lambda _node: self._on_nodes(),
            ),
            self._slices.registration,
        )

    # --- events -------------------------------------------------------------------------------------

    def _on_node_update(self, old: Node, new: Node) -> None:
        if _is_ready(old) != _is_ready(new) or old.metadata.labels.get(ZONE) != new.metadata.labels.get(ZONE):
            self._on_nodes()

    def _on_nodes(self) -> None:
        for key in self._topology.services():
            self.queue.add(key, "nodes changed")

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
            self._slices.tracker.forget(key)
            for address_type in _ADDRESS_TYPES:
                self._topology.forget(key, address_type)
            self._metrics.forget(key, _ADDRESS_TYPES)
            self.queue.pop_reasons(key)
            return
        if not has_selected_endpoints(service):
            return
        pods = selected_pods(self._pods, service)
        slices = [it for it in self._slices.of_service(key) if not it["metadata"].get("deletionTimestamp")]
        if self._slices.tracker.is_stale(key, slices):
            raise StaleCache("EndpointSlice informer cache is out of date", ENDPOINT_SLICES.group_resource)
        with self._traces.reconcile("endpointslice", key, self.queue.pop_reasons(key)) as reconcile:
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
                await self._slices.delete(current, reconcile)
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
        for changed in (*changes.create, *changes.update):
            _set_trigger_time(changed, changed_at)
        # in a race with the garbage collector, a deleted Service gets no new slices
        created = changes.create if service.metadata.deletion_timestamp is None else []
        await self._slices.write(created, changes.update, changes.delete, reconcile)


def _set_trigger_time(endpoint_slice: JSONValue, changed_at: datetime | None) -> None:
    """Set the annotation with the time of the change that is published, for kube-proxy; remove it without a time."""
    metadata = endpoint_slice["metadata"]
    annotations = dict(metadata.get("annotations") or {})
    if changed_at is None:
        annotations.pop(LAST_CHANGE_TRIGGER_TIME, None)
    else:
        annotations[LAST_CHANGE_TRIGGER_TIME] = rfc3339(changed_at)
    metadata["annotations"] = annotations


def _is_ready(node: Node) -> bool:
    ready = condition_of(node.status.conditions, "Ready")
    return ready is not None and ready.status == "True"
