"""TTL-after-finished controller: the events that enqueue a finished Job, and its deletion.

Source: v1.36 pkg/controller/ttlafterfinished.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from kubeloop.controllers.api.controller import Controller, ControllerHandle, Result
from kubeloop.controllers.api.objects import Request
from kubeloop.controllers.api.watches import For
from kubeloop.controllers.runtime.controller import ReconcileError
from kubeloop.kube.errors import NotFound
from kubeloop.kube.objects.api_types import Job
from kubeloop.kube.objects.object_fields import job_finished_condition
from kubeloop.kube.objects.resources import JOBS
from kubeloop.kube.values.times import seconds_between, time_plus


def _expires(old: Job | None, new: Job | None) -> bool:
    return (
        new is not None and new.spec.ttl_seconds_after_finished is not None and job_finished_condition(new) is not None
    )


class TTLAfterFinishedController(Controller):
    """Deletes expired Jobs."""

    name = "ttl-after-finished"
    queue_name = "ttl_jobs_to_delete"
    watches = (For(JOBS, predicates=[_expires]),)

    def __init__(self, handle: ControllerHandle) -> None:
        super().__init__(handle)
        self._deletion_seconds = handle.metrics.histogram(
            "ttl_after_finished_controller_job_deletion_duration_seconds",
            "The time it took to delete the job since it became eligible for deletion",
            buckets=[0.1 * 2**power for power in range(14)],
        ).labels()

    async def reconcile(self, request: Request) -> Result:
        """Delete a Job if its TTL has expired. Returns the seconds until it expires."""
        job = self.cache.get(JOBS, request)
        seconds = seconds_to_expiry(job, self.clock.now()) if job is not None else None
        if job is None or seconds is None or seconds > 0:
            return seconds
        with suppress(NotFound):
            job = await self.client.get(JOBS, request)  # its TTL may have been extended meanwhile
            seconds = seconds_to_expiry(job, self.clock.now())
            if seconds is None or seconds > 0:
                return seconds
            await self.client.delete(job, propagation_policy="Foreground")
            self._deletion_seconds.observe(-(seconds_to_expiry(job, self.clock.now()) or 0.0))
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
