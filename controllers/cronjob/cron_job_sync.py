"""One sync of a CronJob: deletes surplus Jobs, records the state of the others, and creates the Job that is due.

Source: syncCronJob and cleanupFinishedJobs in pkg/controller/cronjob/cronjob_controllerv2.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from kubeloop.controllers.cronjob.jobs import job_from_template, surplus_jobs
from kubeloop.controllers.cronjob.schedule_times import (
    cron_job_schedule,
    job_name,
    schedule_times,
    seconds_until,
)
from kubeloop.controllers.runtime.controller import ReconcileError
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.kube.errors import AlreadyExists, ApiError, NotFound, ServerUnreachable, is_namespace_terminating
from kubeloop.kube.events.event_recorder import EventType
from kubeloop.kube.metric_families import HistogramMetric
from kubeloop.kube.objects.api_types import CronJob, CronJobStatus, Job, JSONValue, ObjectReference
from kubeloop.kube.objects.object_fields import controller_of, job_finished_condition
from kubeloop.kube.objects.resources import CRON_JOBS, JOBS
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.values.cron_schedule import InvalidSchedule, is_time_zone
from kubeloop.kube.values.times import seconds_between
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

_SKEW_BUCKETS = tuple(2.0**power for power in range(10))


def creation_skew(context: ControllerContext) -> HistogramMetric:
    """Return the metric of the delays of Jobs."""
    return context.metrics.histogram(
        "cronjob_controller_job_creation_skew_duration_seconds",
        "Time between when a cronjob is scheduled to be run, and when the corresponding job is created",
        buckets=_SKEW_BUCKETS,
    ).labels()


class CronJobSync:
    """One sync. Write `status` to `cron_job` afterwards, also if run() has failed.

    is_settled: a repetition before the next scheduled time would do nothing, not even report a problem again.
    """

    def __init__(
        self, cron_job: CronJob, jobs: Sequence[Job], context: ControllerContext, reconcile: Reconcile
    ) -> None:
        self.cron_job = cron_job
        self.status: CronJobStatus = cron_job.status
        self.is_settled = True
        self._jobs = jobs
        self._client = context.client
        self._clock = context.clock
        self._events = context.events
        self._creation_skew = creation_skew(context)
        self._reconcile = reconcile

    async def run(self) -> float | None:
        """Sync once. Returns the seconds to the next scheduled time, or None if only a change can lead to a run.

        Raises ApiError, ServerUnreachable and ReconcileError.
        """
        for job in surplus_jobs(self.cron_job, self._jobs):
            await self._delete(job)
        await self._record_jobs()
        await self._remove_missing_jobs()
        return await self._start_due_job()

    # --- status ----------------------------------------------------------------------------------------------------

    async def _record_jobs(self) -> None:
        """Remove finished Jobs from the active ones, and record the last success."""
        for job in self._jobs:
            name, uid = job.metadata.name, job.metadata.uid
            finished = job_finished_condition(job)
            if finished is None:
                if not self._is_active(uid):
                    await self._check_unexpected(job)
                continue
            if self._is_active(uid):
                self._remove_active(uid)
                self._event("Normal", "SawCompletedJob", f"Saw completed job: {name}, condition: {finished.type}")
            completed, last = job.status.completion_time, self.status.last_successful_time
            if finished.type == "Complete" and completed is not None and (last is None or completed > last):
                self.status = replace(self.status, last_successful_time=completed)

    async def _check_unexpected(self, job: Job) -> None:
        """Report a running Job that the status does not list, unless only the cached status is outdated."""
        metadata = self.cron_job.metadata
        latest = await self._client.get(CRON_JOBS, metadata.name, metadata.namespace)
        if any(active.uid == job.metadata.uid for active in latest.status.active):
            self.cron_job, self.status = latest, latest.status
            return
        message = f"Saw a job that the controller did not create or forgot: {job.metadata.name}"
        self._event("Warning", "UnexpectedJob", message)

    async def _remove_missing_jobs(self) -> None:
        """Remove Jobs from the active ones that neither the cache nor the API server has."""
        cached = {job.metadata.uid for job in self._jobs}
        for active in self.status.active:
            if active.uid in cached:
                continue
            try:
                await self._client.get(JOBS, active.name, active.namespace)
            except NotFound:
                self._event("Normal", "MissingJob", f"Active job went missing: {active.name}")
                self._remove_active(active.uid)

    def _is_active(self, uid: str) -> bool:
        return any(active.uid == uid for active in self.status.active)

    def _remove_active(self, uid: str) -> None:
        remaining = tuple(active for active in self.status.active if active.uid != uid)
        self.status = replace(self.status, active=remaining)

    # --- schedule --------------------------------------------------------------------------------------------------

    async def _start_due_job(self) -> float | None:
        """Create the Job of the last scheduled time, if it is due and the policy allows it."""
        cron_job, spec = self.cron_job, self.cron_job.spec
        if cron_job.metadata.deletion_timestamp is not None:
            return None
        if spec.time_zone is not None and not is_time_zone(spec.time_zone):
            message = f"invalid timeZone: {quoted(spec.time_zone)}: unknown time zone {spec.time_zone}"
            self._event("Warning", "UnknownTimeZone", message)
            return None
        if spec.suspend:
            return None
        if "TZ" in spec.schedule:
            message = (
                f"CRON_TZ or TZ used in schedule {quoted(spec.schedule)} is not officially supported, see "
                "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
            )
            self._event("Warning", "UnsupportedSchedule", message)
        try:
            schedule = cron_job_schedule(cron_job)
        except InvalidSchedule as error:
            self._event("Warning", "UnparseableSchedule", f"unparseable schedule: {quoted(spec.schedule)} : {error}")
            return None
        now = self._clock.now()
        try:
            times = schedule_times(cron_job, schedule, now, within_deadline=True)
        except InvalidSchedule as error:
            self._event("Warning", "InvalidSchedule", f"invalid schedule: {spec.schedule} : {error}")
            return None
        if times.latest is not None:
            if times.missed == "many":
                message = (
                    "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
                )
                self._event("Warning", "TooManyMissedTimes", message)
            if not self._is_started(times.latest):
                await self._start_unless_forbidden(times.latest)
        return None if times.following is None else seconds_until(times.following, now)

    def _is_started(self, scheduled: datetime) -> bool:
        """Return True if the Job of this time was started before."""
        name = job_name(self.cron_job, scheduled)
        return self.status.last_schedule_time == scheduled or any(active.name == name for active in self.status.active)

    async def _start_unless_forbidden(self, scheduled: datetime) -> None:
        """Create the Job of a scheduled time; report it with an event if concurrencyPolicy forbids that."""
        if self.cron_job.spec.concurrency_policy == "Forbid" and self.status.active:
            self.is_settled = False  # each sync reports it
            message = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._event("Normal", "JobAlreadyActive", message)
        else:
            await self._start(scheduled)

    async def _start(self, scheduled: datetime) -> None:
        """Create the Job of a scheduled time and record it in the status, unless another client has created it."""
        if self.cron_job.spec.concurrency_policy == "Replace":
            await self._delete_active()
        job = await self._create(job_from_template(self.cron_job, scheduled), scheduled)
        if job is None:
            self.is_settled = False
            return
        reference = ObjectReference(
            kind="Job",
            namespace=job.metadata.namespace,
            name=job.metadata.name,
            uid=job.metadata.uid,
            api_version="batch/v1",
            resource_version=job.metadata.resource_version,
        )
        self.status = replace(self.status, active=(*self.status.active, reference), last_schedule_time=scheduled)

    async def _create(self, body: dict[str, JSONValue], scheduled: datetime) -> Job | None:
        """Create a Job. Returns None if a Job of this name exists that the status needs not to list."""
        namespace, name = self.cron_job.metadata.namespace, body["metadata"]["name"]
        self._reconcile.will_trigger("job", f"{namespace}/{name}")
        try:
            with self._reconcile.action_span(f"create job {name}"):
                job = await self._client.create(JOBS, self._reconcile.annotated(body), namespace)
        except AlreadyExists:
            job = await self._client.get(JOBS, name, namespace)
            owner = controller_of(job.metadata)
            is_own = owner is not None and owner.uid == self.cron_job.metadata.uid
            return job if is_own and not self._is_active(job.metadata.uid) else None
        except (ApiError, ServerUnreachable) as error:
            if not is_namespace_terminating(error):
                self._event("Warning", "FailedCreate", f"Error creating job: {error}")
            raise
        created = job.metadata.creation_timestamp
        if created is not None:
            self._creation_skew.observe(seconds_between(scheduled, created))
        self._event("Normal", "SuccessfulCreate", f"Created job {name}")
        return job

    # --- deletion --------------------------------------------------------------------------------------------------

    async def _delete_active(self) -> None:
        """Delete the Jobs that still run, for concurrencyPolicy Replace."""
        for active in self.status.active:
            try:
                job = await self._client.get(JOBS, active.name, active.namespace)
            except (ApiError, ServerUnreachable) as error:
                self._event("Warning", "FailedGet", f"Get job: {error}")
                raise
            if not await self._delete(job):
                raise ReconcileError(f"could not replace job {job.key}")

    async def _delete(self, job: Job) -> bool:
        """Delete a Job and its Pods. Returns False after an error, which is reported as an event."""
        name, namespace, uid = job.metadata.name, job.metadata.namespace, job.metadata.uid
        try:
            with self._reconcile.action_span(f"delete job {name}"):
                await self._client.delete(JOBS, name, namespace, propagation_policy="Background", precondition_uid=uid)
        except (ApiError, ServerUnreachable) as error:
            self._event("Warning", "FailedDelete", f"Deleted job: {error}")
            return False
        self._remove_active(uid)
        self._event("Normal", "SuccessfulDelete", f"Deleted job {name}")
        return True

    def _event(self, type_: EventType, reason: str, message: str) -> None:
        self.is_settled = self.is_settled and type_ == "Normal"
        self._events.event(self.cron_job, type_, reason, message)
