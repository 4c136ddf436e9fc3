"""The resource quota controller: keeps what a ResourceQuota says is used true, and gives back what is used no more.

Admission counts up when objects come; nobody but this controller counts down. It counts afresh, from what informers
show, and writes only what differs. Source: kube-controller-manager v1.36, pkg/controller/resourcequota.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from kubeloop.controllers.runtime.controller import Controller, ReconcileError, clock_seconds
from kubeloop.controllers.runtime.metrics_interface import ControllerMetrics
from kubeloop.controllers.runtime.work_queue import WorkQueue
from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.shared_informer import ResourceEventHandler, ResourceEventHandlerFuncs
from kubeloop.kube.client.api_client import Client, PatchType
from kubeloop.kube.clock import Clock
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import ResourceQuota
from kubeloop.kube.objects.resources import RESOURCE_QUOTAS
from kubeloop.tracing.recording.reconcile_recorder import Reconcile, ReconcileTraces

if TYPE_CHECKING:
    from kubeloop.controllers.resourcequota.quota_monitor import QuotaMonitor
    from kubeloop.kube.objects.quota_usage import Amounts

log = logging.getLogger(__name__)

_SECONDS_PER_OBJECT = 1e-4  # several times what counting takes: a crowded namespace that empties is not counted nonstop
# A count from caches that lag behind may undo what admission has counted, and no deletion would tell. So what was
# written is counted once more after a moment, and for a while after a write also when something new comes into sight.
_VERIFY_SECONDS, _DOUBTFUL_SECONDS = 1.0, 60.0


class ResourceQuotaController:
    """`run()` works until cancelled. What it needs to count is imported, and watched, when the first quota comes.

    resync_seconds: all quotas are counted again that often, for what no event tells (a pod whose node is lost).
    refresh_seconds: how often the server is asked for its kinds while a quota limits the number of others than the
    usual ones. sync_timeout_seconds: how long a count waits for the first list of a kind.

    A quota whose status lacks something has a queue of its own: it is not held up by those that are merely counted
    again.
    """

    name = "resourcequota-controller"

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        *,
        clock: Clock,
        traces: ReconcileTraces,
        metrics: ControllerMetrics | None = None,
        workers: int = 5,
        resync_seconds: float = 300.0,
        refresh_seconds: float = 30.0,
        sync_timeout_seconds: float = 30.0,
    ) -> None:
        self._client = client
        self._informers = informers
        self._clock = clock
        self._traces = traces
        self._resync_seconds = resync_seconds
        self._refresh_seconds = refresh_seconds
        self._sync_timeout_seconds = sync_timeout_seconds
        self._monitors: QuotaMonitor | None = None  # from the first quota on
        self._first_quota = asyncio.Event()
        self._objects: dict[str, int] = {}  # by quota: how many were looked at when it was last counted
        self._written_at: dict[str, float] = {}  # by quota: loop time of our last write
        self._recount = self._queue("resourcequota_primary", metrics)
        self._missing = self._queue("resourcequota_priority", metrics)
        seconds = clock_seconds(clock)
        self._controllers = [
            Controller("resourcequota", self.reconcile, queue, workers, metrics=metrics, seconds=seconds)
            for queue in (self._recount, self._missing)
        ]
        self._quotas = informers.informer(RESOURCE_QUOTAS)
        self._registration = self._quotas.add_handler(
            ResourceEventHandlerFuncs(
                on_add=lambda quota, _initial: self._seen(quota),
                on_update=self._updated,
                on_delete=lambda quota, _unknown: self._gone(quota),
            )
        )

    def _queue(self, name: str, metrics: ControllerMetrics | None) -> WorkQueue:
        return WorkQueue(name, metrics=metrics.queue(name) if metrics else None, seconds=clock_seconds(self._clock))

    async def run(self) -> None:
        """Count until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            await self._registration.wait_synced()
            for controller, queue in zip(self._controllers, (self._recount, self._missing), strict=True):
                tasks.create_task(controller.run(), name=f"{self.name}/{queue.name}")
            tasks.create_task(self._resync(), name=f"{self.name}/resync")
            await self._first_quota.wait()
            tasks.create_task(self._counting().run(), name=f"{self.name}/monitors")

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(self._resync_seconds)
            for key in self._quotas.store:
                self._recount.add(key)

    # --- quotas ----------------------------------------------------------------------------------------------------

    def _counting(self) -> QuotaMonitor:
        if self._monitors is None:
            from kubeloop.controllers.resourcequota.quota_monitor import QuotaMonitor

            self._monitors = QuotaMonitor(
                self._client,
                self._informers,
                events=self._events,
                appeared=self._appeared,
                refresh_seconds=self._refresh_seconds,
            )
            self._first_quota.set()
        return self._monitors

    def _seen(self, quota: ResourceQuota) -> None:
        self._counting().named(quota.spec.hard)
        self._enqueue(quota)

    def _updated(self, old: ResourceQuota, new: ResourceQuota) -> None:
        """How much is used is written by admission and by ourselves; a change of that is no reason to count."""
        if old.spec != new.spec:
            self._counting().named(new.spec.hard)
            self._counting().forget(old.spec.hard)
            self._enqueue(new)
        elif _told_names(old) != _told_names(new) and _is_incomplete(new):
            self._enqueue(new)

    def _gone(self, quota: ResourceQuota) -> None:
        self._forget(quota.key)
        self._counting().forget(quota.spec.hard)

    def _forget(self, key: str) -> None:
        self._objects.pop(key, None)
        self._written_at.pop(key, None)

    def _enqueue(self, quota: ResourceQuota) -> None:
        (self._missing if _is_incomplete(quota) else self._recount).add(quota.key)

    # --- what they count -------------------------------------------------------------------------------------------

    def _events(self, kind: str) -> ResourceEventHandler[Any]:
        return ResourceEventHandlerFuncs(
            on_add=lambda obj, initial: None if initial else self._object_added(kind, _namespace(obj)),
            on_update=lambda old, new: self._object_changed(kind, old, new),
            on_delete=lambda obj, _unknown: self._replenish(kind, _namespace(obj)),
        )

    def _object_added(self, kind: str, namespace: str) -> None:
        """Admission has counted it. If we have written since, then perhaps without it."""
        if not self._written_at:
            return
        doubtful_since = asyncio.get_running_loop().time() - _DOUBTFUL_SECONDS
        for quota in self._quotas.store.view("namespace", namespace):
            if self._written_at.get(quota.key, doubtful_since) > doubtful_since:
                self._recount_later(kind, quota, _VERIFY_SECONDS)

    def _object_changed(self, kind: str, old: Any, new: Any) -> None:
        namespace = _namespace(new)
        if not self._quotas.store.count("namespace", namespace):
            return
        from kubeloop.controllers.resourcequota.usage_calculation import can_free_usage

        if can_free_usage(kind, old, new, self._clock.now()):
            self._replenish(kind, namespace)

    def _replenish(self, kind: str, namespace: str) -> None:
        """Something that counted is gone: count again the quotas that it may have counted for."""
        for quota in self._quotas.store.view("namespace", namespace):
            self._recount_later(kind, quota, 0.0)

    def _recount_later(self, kind: str, quota: ResourceQuota, seconds: float) -> None:
        from kubeloop.kube.objects.quota_usage import concerned

        if concerned(kind, quota.spec.hard):
            objects = self._objects.get(quota.key, 0)
            self._recount.add_after(quota.key, max(seconds, objects * _SECONDS_PER_OBJECT))

    def _appeared(self, kind: str) -> None:
        for quota in self._quotas.store.values():
            if f"count/{kind}" in quota.spec.hard:
                self._missing.add(quota.key)

    # --- counting --------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        """Write what is used of quota `key`, if its status does not say so.

        Level-based. After a write it returns when to count once more. Raising means: retry with backoff; what could be
        counted is written all the same. Raises Conflict when admission has counted something since.
        """
        quota = self._quotas.store.get(key)
        if quota is None:
            return None  # it is gone
        trace = self._traces.reconcile("resourcequota", key)
        changed, failure = False, None
        try:
            changed = await self._sync(quota, trace)
        except NotFound:
            return None  # it has gone meanwhile
        except Exception as error:
            failure = str(error)
            raise
        finally:
            trace.finish(changed, failure)
            if key not in self._quotas.store:  # deleted meanwhile: what we noted since would stay for good
                self._forget(key)
        return _VERIFY_SECONDS if changed else None

    async def _sync(self, quota: ResourceQuota, trace: Reconcile) -> bool:
        """Returns whether there was something to write."""
        from kubeloop.controllers.resourcequota.usage_calculation import status_patch

        counted, problems = await self._count(quota)
        patch = status_patch(quota, counted)
        if patch is not None:
            metadata = quota.metadata
            body = {"metadata": {"resourceVersion": metadata.resource_version, "uid": metadata.uid}, "status": patch}
            with trace.acting(f"update ResourceQuota {metadata.name}"):
                await self._client.patch(
                    RESOURCE_QUOTAS, metadata.name, body, PatchType.MERGE, metadata.namespace, subresource="status"
                )
            self._written_at[quota.key] = asyncio.get_running_loop().time()
        if problems:
            raise ReconcileError("; ".join(problems))
        return patch is not None

    async def _count(self, quota: ResourceQuota) -> tuple[Amounts, list[str]]:
        """What is used by name, and why some of it could not be counted."""
        from kubeloop.controllers.resourcequota.quota_monitor import kinds_for_quota_names
        from kubeloop.controllers.resourcequota.usage_calculation import calculate_usage
        from kubeloop.kube.objects.quota_usage import concerned

        counted: Amounts = {}
        problems: list[str] = []
        objects = 0
        for kind in sorted(kinds_for_quota_names(quota.spec.hard)):
            try:
                informer = await self._counting().informer(kind)
                if informer is None:
                    continue
                async with asyncio.timeout(self._sync_timeout_seconds):
                    await informer.wait_synced()
            except TimeoutError:
                problems.append(f"{kind} could not be listed yet")
                continue
            except (ApiError, ServerUnreachable, msgspec.DecodeError) as error:
                problems.append(f"{kind}: {error}")
                continue
            names = concerned(kind, quota.spec.hard)
            used, looked_at = await calculate_usage(quota, kind, names, informer, self._clock.now())
            objects += looked_at
            for name, amount in used.items():
                counted[name] = counted[name] + amount if name in counted else amount
        self._objects[quota.key] = objects
        return counted, problems


def _told_names(quota: ResourceQuota) -> tuple[object, object]:
    return quota.status.hard, quota.status.used.keys()


def _is_incomplete(quota: ResourceQuota) -> bool:
    """Whether its status does not tell of all that it limits."""
    return quota.spec.hard != quota.status.hard or not quota.status.hard.keys() <= quota.status.used.keys()


def _namespace(obj: Any) -> str:
    """Of a Struct or of plain JSON: informers are shared, and others choose how objects are read."""
    if isinstance(obj, dict):
        return str((obj.get("metadata") or {}).get("namespace", ""))
    namespace: str = obj.metadata.namespace
    return namespace
