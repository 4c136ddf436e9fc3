"""CronJob controller: the events that enqueue a CronJob, and its reconcile.

Source: v1.36 pkg/controller/cronjob/cronjob_controllerv2.go.
"""

from __future__ import annotations

from kubeloop.controllers.cronjob.cron_job_sync import CronJobSync, creation_skew
from kubeloop.controllers.cronjob.schedule_times import cron_job_schedule, seconds_to_next_schedule
from kubeloop.controllers.runtime.cached_reconcile import CachedReconcile
from kubeloop.controllers.runtime.controller import EventDrivenController, ReconcileError
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.owners.owner_references import cached_controller
from kubeloop.controllers.runtime.writes.object_patch import changed_fields, patch_status
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.api_types import CronJob, Job
from kubeloop.kube.objects.object_fields import controller_of, job_finished_condition
from kubeloop.kube.objects.resources import CRON_JOBS, JOBS
from kubeloop.kube.values.cron_schedule import InvalidSchedule
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

_CONTROLLER_NAME_INDEX = "controller-name"


class CronJobController(EventDrivenController):
    """Reconciles CronJobs; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "cronjob", "cronjob")
        creation_skew(context)  # exposed before the first Job
        self._context = context
        cron_jobs, jobs = context.informers.informer(CRON_JOBS), context.informers.informer(JOBS)
        self._cron_jobs, self._jobs = cron_jobs.store, jobs.store
        self._jobs.add_index(_CONTROLLER_NAME_INDEX, _controller_name)
        # by key, as written by a sync that would do nothing if it were repeated before the next scheduled time
        self._settled: dict[str, CronJob] = {}
        self._reconciles = CachedReconcile[CronJob](
            "cronjob", self._cron_jobs, self.queue, context.traces, self._forget
        )
        self._registrations = (
            cron_jobs.on_events(
                added=lambda cron_job: self.queue.add(cron_job.key, "CronJob added"),
                updated=self._on_cron_job_update,
                deleted=lambda cron_job: self.queue.add(cron_job.key, "CronJob deleted"),
            ),
            jobs.on_events(
                added=lambda job: self._enqueue_owner(job, "Job added"),
                updated=self._on_job_update,
                deleted=self._on_job_deletion,
            ),
        )

    def _on_cron_job_update(self, old: CronJob, new: CronJob) -> None:
        """Enqueue a changed CronJob: at its next time if its schedule has changed, else at once.

        What a settled sync has written itself is not enqueued.
        """
        if (old.spec.schedule, old.spec.time_zone) == (new.spec.schedule, new.spec.time_zone):
            settled = self._settled.get(new.key)
            if settled is None or settled.metadata.resource_version != new.metadata.resource_version:
                self.queue.add(new.key, "CronJob changed")
            return
        try:
            schedule = cron_job_schedule(new)
        except InvalidSchedule:
            message = f"unparseable schedule for cronjob: {new.spec.schedule}"
            self._events.event(new, "Warning", "UnParseableCronJobSchedule", message)
            return
        seconds = seconds_to_next_schedule(new, schedule, self._clock.now())
        if seconds is not None:
            self.queue.add_after(new.key, seconds)

    def _on_job_update(self, old: Job, new: Job) -> None:
        if controller_of(old.metadata) != controller_of(new.metadata):
            self._enqueue_owner(old, "Job released")
        elif (
            job_finished_condition(old) is None
            and job_finished_condition(new) is None
            and self._settled_owner(new) is not None
        ):
            return  # a sync reads nothing else of a running Job
        self._enqueue_owner(new, "Job changed")

    def _on_job_deletion(self, job: Job) -> None:
        owner, uid = self._settled_owner(job), job.metadata.uid
        is_recorded = owner is not None and all(active.uid != uid for active in owner.status.active)
        if not is_recorded or job_finished_condition(job) is None:
            self._enqueue_owner(job, "Job deleted")

    def _enqueue_owner(self, job: Job, reason: str) -> None:
        cron_job = cached_controller(self._cron_jobs, CRON_JOBS.kind, job)
        if cron_job is not None:
            self.queue.add(cron_job.key, reason)

    def _settled_owner(self, job: Job) -> CronJob | None:
        """Return the CronJob of a Job as its last sync left it, if it is settled."""
        owner = controller_of(job.metadata)
        return None if owner is None else self._settled.get(f"{job.metadata.namespace}/{owner.name}")

    def _forget(self, key: str) -> None:
        self._settled.pop(key, None)

    async def reconcile(self, key: str) -> float | None:
        """Bring the Jobs and the status of CronJob `key` up to date.

        Level-based. Returns the seconds to the next scheduled time. An exception means: retry with backoff.
        """
        return await self._reconciles.run(key, self._sync)

    async def _sync(self, cron_job: CronJob, reconcile: Reconcile) -> float | None:
        self._forget(cron_job.key)  # what changes meanwhile is not part of this sync
        jobs = self._jobs.by_index(_CONTROLLER_NAME_INDEX, cron_job.key)
        sync = CronJobSync(cron_job, jobs, self._context, reconcile)
        try:
            seconds = await sync.run()
        except (ApiError, ServerUnreachable, ReconcileError):
            await self._write_status(sync, reconcile)
            raise
        written = await self._write_status(sync, reconcile)
        if sync.is_settled:
            self._settled[cron_job.key] = written
        return seconds

    async def _write_status(self, sync: CronJobSync, reconcile: Reconcile) -> CronJob:
        if sync.status == sync.cron_job.status:
            return sync.cron_job
        changes = changed_fields(sync.cron_job.status, sync.status)
        with reconcile.action_span("update status"):
            return await patch_status(self._client, CRON_JOBS, sync.cron_job, changes)


def _controller_name(job: Job) -> tuple[str, ...]:
    """Return "namespace/name" of a Job's controller, whatever its UID: as upstream, for a CronJob created again."""
    owner = controller_of(job.metadata)
    return (f"{job.metadata.namespace}/{owner.name}",) if owner is not None else ()
