"""Job controller: the events that enqueue a Job, and its reconcile.

Source: v1.36 pkg/controller/job/job_controller.go.
"""

from __future__ import annotations

import asyncio

from kubeloop.controllers.job.job_fields import external_manager, has_tracking_finalizer
from kubeloop.controllers.job.job_records import JobRecords
from kubeloop.controllers.job.job_scheduling import JobScheduling
from kubeloop.controllers.job.job_sync import BATCH_SECONDS, JobSync
from kubeloop.controllers.job.metrics import JobMetrics
from kubeloop.controllers.job.orphan_pods import OrphanPods
from kubeloop.controllers.runtime.cached_reconcile import CachedReconcile
from kubeloop.controllers.runtime.controller import RESYNC_SECONDS, EventDrivenController, ReconcileError
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.owners.owner_queue import OwnerQueue
from kubeloop.controllers.runtime.owners.owner_references import (
    CONTROLLER_INDEX,
    controller_index_key,
    index_by_controller,
    orphan_index_key,
)
from kubeloop.controllers.runtime.pods.pod_control import PodControl
from kubeloop.controllers.runtime.queue.rate_limiter import ItemExponentialFailureRateLimiter
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.informers.shared_informer import ResourceEventHandlerFuncs
from kubeloop.kube.objects.api_types import Job, Pod
from kubeloop.kube.objects.object_fields import controller_of, job_finished_condition
from kubeloop.kube.objects.resources import JOBS, PODS
from kubeloop.kube.selectors.selectors import SelectorError, selector_from
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

_MODES = ("", "NonIndexed", "Indexed")


def _limiter() -> ItemExponentialFailureRateLimiter:
    return ItemExponentialFailureRateLimiter(base=1.0, cap=60.0)


class JobController(EventDrivenController):
    """Reconciles Jobs; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "job", limiter=_limiter(), creates_pods=True)
        self._context = context
        self._pod_control = PodControl(context)
        self._metrics = JobMetrics(context.metrics)
        jobs, pods = context.informers.informer(JOBS), context.informers.informer(PODS)
        self._jobs, self._pods = jobs.store, pods.store
        self._pods.add_index(CONTROLLER_INDEX, index_by_controller)
        self._records = JobRecords(
            context.clock,
            ConsistencyStore.of(jobs, pods, enabled=context.feature_gates.enabled("StaleControllerConsistencyJob")),
        )
        self._owners = OwnerQueue[Job](
            self._jobs, JOBS.kind, self.queue, lambda job: job.spec.selector, batch_seconds=BATCH_SECONDS
        )
        self._reconciles = CachedReconcile[Job](
            "job",
            self._jobs,
            self.queue,
            context.traces,
            self._records.forget,
            consistency=self._records.consistency,
        )
        self._scheduling = JobScheduling(context) if context.feature_gates.enabled("WorkloadWithJob") else None
        self._orphans = OrphanPods(context, self._jobs, self._pods, _limiter())
        self._registrations = (
            jobs.add_handler(
                ResourceEventHandlerFuncs(
                    on_add=self._on_job_add, on_update=self._on_job_update, on_delete=self._on_job_delete
                ),
                resync_seconds=RESYNC_SECONDS,
            ),
            pods.on_events(
                added=self._on_pod_add,
                updated=self._on_pod_update,
                deleted=lambda pod: self._on_pod_deletion(pod, final=True),
            ),
        )

    async def run(self) -> None:
        """Reconcile until cancelled, once the caches are synced. The informers are run by their factory."""
        for registration in self._registrations:
            await registration.wait_synced()
        if self._scheduling is not None:
            await self._scheduling.wait_synced()
        async with asyncio.TaskGroup() as workers:
            workers.create_task(self._controller.run(), name="job")
            workers.create_task(self._orphans.run(), name="job-orphan-pod")

    # --- event handlers ----------------------------------------------------------------------------------------------

    def _on_job_add(self, job: Job, initial: bool) -> None:
        self.queue.add(job.key, "initial list" if initial else "Job added")
        manager = external_manager(job)
        if manager is not None:
            self._metrics.managed_externally(manager)

    def _on_job_update(self, old: Job, new: Job) -> None:
        if job_finished_condition(new) is not None:
            self._add_orphans(new)  # a Job finishes when no Pod has a finalizer; this repairs what went wrong
            self.queue.add(new.key, "Job finished")
        elif new.metadata.generation != old.metadata.generation:
            self.queue.add(new.key, "Job changed")
        else:
            self.queue.add_after(new.key, BATCH_SECONDS)

    def _on_job_delete(self, job: Job, _final_state_unknown: bool) -> None:
        self._records.forget(job.key, job.metadata.uid)
        self._add_orphans(job)
        self.queue.add(job.key, "Job deleted")

    def _add_orphans(self, job: Job) -> None:
        for pod in self._pods.by_index(CONTROLLER_INDEX, controller_index_key(job)):
            self._orphans.add(pod)

    def _on_pod_add(self, pod: Pod) -> None:
        self._metrics.pod_changed(None, pod)
        if pod.metadata.deletion_timestamp is not None:
            # First seen while terminating, after a restart: counts as a deletion, never as an expected creation.
            self._on_pod_deletion(pod, final=False)
            return
        job = self._owners.add_after_creation(pod, "pod")
        if job is not None:
            self._records.expectations.creation_observed(job.key)
        elif controller_of(pod.metadata) is None:
            self._orphans.add(pod)

    def _on_pod_update(self, old: Pod, new: Pod) -> None:
        if old.metadata.resource_version == new.metadata.resource_version:
            return  # a resync
        self._metrics.pod_changed(old, new)
        if new.metadata.deletion_timestamp is not None:
            # A Pod stops being active when it is marked for deletion, not when the kubelet has terminated it.
            self._on_pod_deletion(new, final=False)
            return
        if not has_tracking_finalizer(new):
            for job in map(self._owners.owner, (old, new)):
                if job is not None:
                    self._records.released.observed(job.key, new.metadata.uid)
        self._owners.add_after_change(old, new, "pod")
        if controller_of(new.metadata) is None:
            self._orphans.add(new)

    def _on_pod_deletion(self, pod: Pod, *, final: bool) -> None:
        """Handle a Pod that terminates, or is deleted (`final`)."""
        if final:
            self._metrics.pod_changed(pod, None)
        if controller_of(pod.metadata) is None:
            self._orphans.add(pod)  # the garbage collector may have removed the reference to its Job
            return
        job = self._owners.owner(pod)
        if job is None or job_finished_condition(job) is not None:
            self._orphans.add(pod)  # no sync removes its finalizer
            return
        self._records.expectations.deletion_observed(job.key, pod.key)
        if final or not has_tracking_finalizer(pod):
            self._records.released.observed(job.key, pod.metadata.uid)
        self.queue.add_after(job.key, BATCH_SECONDS)

    # --- reconcile ---------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        """Bring the Pods and the status of Job `key` up to date.

        Level-based: reads the caches, never the event that enqueued the key; may be cancelled and run again. Returns
        the seconds after which time alone may change the result, else None. An exception means: retry with backoff;
        StaleCache: the caches are older than our last writes.
        """
        return await self._reconciles.run(key, self._sync)

    async def _sync(self, job: Job, reconcile: Reconcile) -> float | None:
        if external_manager(job) is not None:
            return None
        if job_finished_condition(job) is not None:
            self._records.forget(job.key, job.metadata.uid)
            return None
        if self._records.finished.get(job.key) == job.metadata.uid:
            return None  # the cache does not show yet that it is finished
        if job.spec.completion_mode not in _MODES:
            message = "Skipped Job sync because completion mode is unknown"
            self._events.event(job, "Warning", "UnknownCompletionMode", message)
            return None
        try:
            selector = selector_from(job.spec.selector)
        except SelectorError as error:
            raise ReconcileError(f"couldn't convert Job selector: {error}") from error
        index_keys = controller_index_key(job), orphan_index_key(job.metadata.namespace)
        candidates = [pod for index_key in index_keys for pod in self._pods.by_index(CONTROLLER_INDEX, index_key)]
        sync = JobSync(job, self._context, self._pod_control, self._records, reconcile, self._metrics, self._scheduling)
        started_at, failed = self._context.seconds(), True
        try:
            seconds = await sync.run(candidates, selector)
            failed = False
        finally:
            duration = max(0.0, self._context.seconds() - started_at)
            self._metrics.synced(job, sync.action, duration, failed=failed)
        return seconds
