"""TTL-after-finished controller: the events that enqueue a finished Job, and its deletion.

Source: v1.36 pkg/controller/ttlafterfinished.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from kubeloop.controllers.runtime.controller import EventDrivenController, ReconcileError
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.kube.errors import NotFound
from kubeloop.kube.objects.api_types import Job
from kubeloop.kube.objects.object_fields import job_finished_condition
from kubeloop.kube.objects.resources import JOBS
from kubeloop.kube.values.times import seconds_between, time_plus


class TTLAfterFinishedController(EventDrivenController):
    """Deletes expired Jobs; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "ttl-after-finished", "ttl_jobs_to_delete")
        self._traces = context.traces
        self._deletion_seconds = context.metrics.histogram(
            "ttl_after_finished_controller_job_deletion_duration_seconds",
            "The time it took to delete the job since it became eligible for deletion",
            buckets=[0.1 * 2**power for power in range(14)],
        ).labels()
        jobs = context.informers.informer(JOBS)
        self._jobs = jobs.store
        self._registrations = (jobs.on_latest(self._enqueue),)

    def _enqueue(self, job: Job) -> None:
        if job.spec.ttl_seconds_after_finished is not None and job_finished_condition(job) is not None:
            self.queue.add(job.key)

    async def reconcile(self, key: str) -> float | None:
        """Delete Job `key` if its TTL has expired. Returns the seconds until it expires.

        Level-based. An exception means: retry with backoff.
        """
        cached = self._jobs.get(key)
        seconds = seconds_to_expiry(cached, self._clock.now()) if cached is not None else None
        if cached is None or seconds is None or seconds > 0:
            return seconds
        name, namespace = cached.metadata.name, cached.metadata.namespace
        with self._traces.reconcile("ttl-after-finished", key) as reconcile, suppress(NotFound):
            job = await self._client.get(JOBS, name, namespace)  # its TTL may have been extended meanwhile
            seconds = seconds_to_expiry(job, self._clock.now())
            if seconds is None or seconds > 0:
                return seconds
            with reconcile.action_span(f"delete job {name}"):
                await self._client.delete(
                    JOBS, name, namespace, propagation_policy="Foreground", precondition_uid=job.metadata.uid
                )
            expired_seconds = seconds_to_expiry(job, self._clock.now()) or 0.0
            self._deletion_seconds.observe(-expired_seconds)
        return None


def seconds_to_expiry(job: Job, now: datetime) -> float | None:
    """Return the seconds until a finished Job expires, 0 or less if it has; None for a Job that does not expire.

    Raises ReconcileError if the time at which it finished is unknown.
    """
    finished = job_finished_condition(job)
    ttl_seconds = job.spec.ttl_seconds_after_finished
    if job.metadata.deletion_timestamp is not None or ttl_seconds is None or finished is None:
        return None
    if finished.last_transition_time is None:
        raise ReconcileError(f"unable to find the time when the Job {job.key} finished")
    return seconds_between(now, time_plus(finished.last_transition_time, ttl_seconds))
