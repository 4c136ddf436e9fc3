"""Resource quota controller: keeps status.used of ResourceQuotas equal to the actual usage.

Admission increases the used amounts when objects are created; only this controller decreases them. It computes usage
from informers, and writes differences only. Source: kube-controller-manager v1.36, pkg/controller/resourcequota.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from kubeloop.controllers.runtime.controller import ReconcileError, ReconcileLoop
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.controllers.runtime.writes.object_patch import patch_object
from kubeloop.informers.shared_informer import ResourceEventHandler, ResourceEventHandlerFuncs
from kubeloop.kube.clock import pause
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import ResourceQuota
from kubeloop.kube.objects.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_QUOTAS
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

if TYPE_CHECKING:
    from kubeloop.controllers.resourcequota.quota_monitor import QuotaMonitor
    from kubeloop.kube.objects.quota_usage import Amounts, DeviceQuota

log = logging.getLogger(__name__)

_RESYNC_SECONDS = 300.0  # interval at which all quotas are recounted, for changes without an event (a lost node)
_SYNC_TIMEOUT_SECONDS = 30.0  # for the first list of a kind
_SECONDS_PER_OBJECT = 1e-4  # delay per counted object, several times its cost, for namespaces with many deletions
# Usage computed from stale caches may undo what admission has counted, without a later event that would correct it. So
# every write is followed by a recount after a delay, and for a while after a write new objects cause a recount too.
# Such recounts, which v1.36 does not have, only increase usage: their caches may be stale as well.
_RECOUNT_DELAY_SECONDS, _RECOUNT_WINDOW_SECONDS = 1.0, 60.0


class ResourceQuotaController:
    """Resource quota controller; `run()` works until cancelled.

    The modules for counting are imported, and the counted kinds watched, when the first quota exists.

    A quota whose status lacks usage goes to a queue of its own, so that recounts of other quotas do not delay it.
    """

    name = "resourcequota-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._informers = context.informers
        self._clock = context.clock
        self._traces = context.traces
        self._extended_resources = context.feature_gates.enabled("DRAExtendedResource")
        self._quota_monitor: QuotaMonitor | None = None  # not None once a quota exists
        self._quota_exists = asyncio.Event()
        self._object_counts: dict[str, int] = {}  # quota key -> objects in its last count
        self._written_at: dict[str, float] = {}  # quota key -> loop time of our last write
        self._may_decrease: set[str] = set()  # keys of quotas whose usage may be lower than their status
        self._primary_queue = context.new_queue("resourcequota_primary")
        self._missing_usage_queue = context.new_queue("resourcequota_priority")
        self._controllers = {
            queue.name: ReconcileLoop("resourcequota", self.reconcile, queue, context.workers, context)
            for queue in (self._primary_queue, self._missing_usage_queue)
        }
        quotas = context.informers.informer(RESOURCE_QUOTAS)
        self._quotas = quotas.store
        self._consistency = ConsistencyStore.of(quotas)
        self._registration = quotas.on_events(
            added=self._on_quota_added, updated=self._on_quota_updated, deleted=self._on_quota_deleted
        )

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for name, controller in self._controllers.items():
                tasks.create_task(controller.run((self._registration,)), name=f"{self.name}/{name}")
            tasks.create_task(self._resync(), name=f"{self.name}/resync")
            await self._quota_exists.wait()
            tasks.create_task(self._get_quota_monitor().run(), name=f"{self.name}/monitors")

    async def _resync(self) -> None:
        while True:
            await pause(_RESYNC_SECONDS)
            for key in self._quotas:
                self._may_decrease.add(key)
                self._primary_queue.add(key)

    # --- events of quotas ------------------------------------------------------------------------------------------

    def _get_quota_monitor(self) -> QuotaMonitor:
        if self._quota_monitor is None:
            from kubeloop.controllers.resourcequota.quota_monitor import QuotaMonitor

            self._quota_monitor = QuotaMonitor(
                self._client,
                self._informers,
                event_handler=self._event_handler,
                on_kind_served=self._on_kind_served,
            )
            self._quota_exists.set()
        return self._quota_monitor

    def _on_quota_added(self, quota: ResourceQuota) -> None:
        self._get_quota_monitor().add_names(quota.spec.hard)
        self._enqueue(quota)

    def _on_quota_updated(self, old: ResourceQuota, new: ResourceQuota) -> None:
        """Enqueue a quota whose spec changed. status.used is written by admission and this controller: no recount."""
        if old.spec != new.spec:
            self._get_quota_monitor().add_names(new.spec.hard)
            self._get_quota_monitor().remove_names(old.spec.hard)
            self._enqueue(new)
        elif _status_names(old) != _status_names(new) and _is_incomplete(new):
            self._enqueue(new)

    def _on_quota_deleted(self, quota: ResourceQuota) -> None:
        self._forget(quota.key)
        self._get_quota_monitor().remove_names(quota.spec.hard)

    def _forget(self, key: str) -> None:
        self._object_counts.pop(key, None)
        self._written_at.pop(key, None)
        self._consistency.forget(key)
        self._may_decrease.discard(key)

    def _enqueue(self, quota: ResourceQuota) -> None:
        self._may_decrease.add(quota.key)
        (self._missing_usage_queue if _is_incomplete(quota) else self._primary_queue).add(quota.key)

    # --- events of counted objects ---------------------------------------------------------------------------------

    def _event_handler(self, kind: str) -> ResourceEventHandler[Any]:
        return ResourceEventHandlerFuncs(
            on_add=lambda obj, initial: None if initial else self._on_object_added(kind, _namespace(obj)),
            on_update=lambda old, new: self._on_object_updated(kind, old, new),
            on_delete=lambda obj, _unknown: self._replenish(kind, _namespace(obj)),
        )

    def _on_object_added(self, kind: str, namespace: str) -> None:
        """Recount quotas written recently: the write may have undone what admission counted for the object."""
        if not self._written_at:
            return
        window_start = asyncio.get_running_loop().time() - _RECOUNT_WINDOW_SECONDS
        for quota in self._quotas.view("namespace", namespace):
            if self._written_at.get(quota.key, window_start) > window_start:
                self._enqueue_after(kind, quota, _RECOUNT_DELAY_SECONDS)

    def _on_object_updated(self, kind: str, old: Any, new: Any) -> None:
        namespace = _namespace(new)
        if not self._quotas.count("namespace", namespace):
            return
        from kubeloop.controllers.resourcequota.usage_calculation import can_free_usage

        if can_free_usage(kind, old, new, self._clock.now()):
            self._replenish(kind, namespace)

    def _replenish(self, kind: str, namespace: str) -> None:
        """Recount the quotas for which a deleted or finished object may have counted."""
        for quota in self._quotas.view("namespace", namespace):
            self._may_decrease.add(quota.key)
            self._enqueue_after(kind, quota, 0.0)

    def _enqueue_after(self, kind: str, quota: ResourceQuota, seconds: float) -> None:
        from kubeloop.kube.objects.quota_usage import matching_resources

        if matching_resources(kind, quota.spec.hard):
            objects = self._object_counts.get(quota.key, 0)
            self._primary_queue.add_after(quota.key, max(seconds, objects * _SECONDS_PER_OBJECT))

    def _on_kind_served(self, kind: str) -> None:
        for quota in self._quotas.values():
            if f"count/{kind}" in quota.spec.hard:
                self._missing_usage_queue.add(quota.key)

    # --- reconcile -------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        """Write status.hard and status.used of quota `key` if they differ from spec.hard and the actual usage.

        Level-based. Returns the seconds until the recount that follows a write. An exception means: retry with backoff;
        amounts that could be computed are written first. Raises Conflict if admission has updated the status since, and
        StaleCache, before anything else, if the cache does not show our last write.
        """
        quota = self._quotas.get(key)
        if quota is None:
            return None  # deleted
        self._consistency.ensure_ready(key)
        trace = self._traces.reconcile("resourcequota", key)
        changed, failure = False, None
        may_decrease = key in self._may_decrease
        self._may_decrease.discard(key)
        try:
            changed = await self._sync(quota, trace, may_decrease=may_decrease)
        except NotFound:
            return None  # deleted in the meantime
        except Exception as error:
            failure = str(error)
            if may_decrease and quota.status.used:  # a first count decreases nothing, but its answer may be lost
                self._may_decrease.add(key)
            raise
        finally:
            trace.finish(changed, failure)
            if key not in self._quotas:  # deleted in the meantime: drop what this reconcile stored
                self._forget(key)
        return _RECOUNT_DELAY_SECONDS if changed else None

    async def _sync(self, quota: ResourceQuota, trace: Reconcile, *, may_decrease: bool) -> bool:
        """Compute usage and write it if it changed. Returns True if it was written."""
        from kubeloop.controllers.resourcequota.usage_calculation import status_patch

        usage, errors = await self._calculate_usage(quota)
        patch = status_patch(quota, usage, may_decrease=may_decrease)
        if patch is not None:
            metadata = quota.metadata
            body = {"metadata": {"resourceVersion": metadata.resource_version, "uid": metadata.uid}, "status": patch}
            with trace.action_span(f"update ResourceQuota {metadata.name}"):
                written = await patch_object(self._client, RESOURCE_QUOTAS, quota, body, subresource="status")
            self._consistency.wrote(quota, RESOURCE_QUOTAS, written)
            self._written_at[quota.key] = asyncio.get_running_loop().time()
        if errors:
            raise ReconcileError("; ".join(errors))
        return patch is not None

    async def _calculate_usage(self, quota: ResourceQuota) -> tuple[Amounts, list[str]]:
        """Return the usage by quota name, and error messages for kinds that could not be counted.

        Names for which such a kind counts are left out, also if other kinds count for them.
        """
        from kubeloop.controllers.resourcequota.quota_monitor import kinds_for_quota_names
        from kubeloop.controllers.resourcequota.usage_calculation import calculate_usage
        from kubeloop.kube.objects.quota_usage import matching_resources

        usage: Amounts = {}
        incomplete: set[str] = set()  # quota names
        errors: list[str] = []
        total_objects = 0
        for kind in sorted(kinds_for_quota_names(quota.spec.hard)):
            names = matching_resources(kind, quota.spec.hard)
            devices = None
            try:
                informer = await self._get_quota_monitor().informer(kind)
                if informer is None:
                    continue
                async with asyncio.timeout(_SYNC_TIMEOUT_SECONDS):
                    await informer.wait_synced()
                    if kind == RESOURCE_CLAIMS.group_resource and self._extended_resources:
                        devices = await self._device_quota(quota.metadata.namespace)
            except (TimeoutError, ApiError, ServerUnreachable, msgspec.DecodeError) as error:
                not_synced = isinstance(error, TimeoutError)
                errors.append(f"{kind} could not be listed yet" if not_synced else f"{kind}: {error}")
                incomplete.update(names)
                continue
            used, object_count = await calculate_usage(quota, kind, names, informer, self._clock.now(), devices)
            total_objects += object_count
            for name, amount in used.items():
                usage[name] = usage[name] + amount if name in usage else amount
        self._object_counts[quota.key] = total_objects
        return {name: amount for name, amount in usage.items() if name not in incomplete}, errors

    async def _device_quota(self, namespace: str) -> DeviceQuota:
        from kubeloop.controllers.resourcequota.usage_calculation import device_quota

        await self._informers.informer(DEVICE_CLASSES).wait_synced()
        return device_quota(namespace, self._informers)


def _status_names(quota: ResourceQuota) -> tuple[object, object]:
    return quota.status.hard, quota.status.used.keys()


def _is_incomplete(quota: ResourceQuota) -> bool:
    """Return True if the status lacks something that the spec limits."""
    return quota.spec.hard != quota.status.hard or not quota.status.hard.keys() <= quota.status.used.keys()


def _namespace(obj: Any) -> str:
    """Return the namespace of a Struct or dict; the object type depends on who created the shared informer first."""
    if isinstance(obj, dict):
        return str((obj.get("metadata") or {}).get("namespace", ""))
    namespace: str = obj.metadata.namespace
    return namespace
