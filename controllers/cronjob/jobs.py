"""Jobs of a CronJob: the Job that its template describes, and Jobs above its history limits. Pure functions.

Source: pkg/controller/cronjob/utils.go, cronjob_controllerv2.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from kubeloop.controllers.cronjob.schedule_times import job_name
from kubeloop.kube.objects.api_types import CronJob, Job, JSONValue
from kubeloop.kube.objects.object_fields import controller_reference, job_finished_condition

SCHEDULED_TIMESTAMP = "batch.kubernetes.io/cronjob-scheduled-timestamp"


def surplus_jobs(cron_job: CronJob, jobs: Iterable[Job]) -> list[Job]:
    """Return the finished Jobs above the history limits: the successful ones first, each group oldest first."""
    jobs_by_condition: dict[str, list[Job]] = {"Complete": [], "Failed": []}
    for job in jobs:
        condition = job_finished_condition(job)
        if condition is not None:
            jobs_by_condition[condition.type].append(job)
    surplus: list[Job] = []
    for type_, limit in (
        ("Complete", cron_job.spec.successful_jobs_history_limit),
        ("Failed", cron_job.spec.failed_jobs_history_limit),
    ):
        finished = sorted(jobs_by_condition[type_], key=_start_order)
        if limit is not None and len(finished) > limit:
            surplus += finished[: len(finished) - limit]
    return surplus


def _start_order(job: Job) -> tuple[bool, datetime, str]:
    started = job.status.start_time
    return started is None, started or datetime.min.replace(tzinfo=UTC), job.metadata.name


def job_from_template(cron_job: CronJob, scheduled: datetime) -> dict[str, JSONValue]:
    """Return the Job to create for a scheduled time, as JSON."""
    template = cron_job.spec.job_template
    metadata = template.get("metadata") or {}
    zone = cron_job.spec.time_zone
    local = scheduled.astimezone(ZoneInfo(zone) if zone else UTC)
    timestamp = local.isoformat(timespec="seconds").replace("+00:00", "Z")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(cron_job, scheduled),
            "namespace": cron_job.metadata.namespace,
            "labels": metadata.get("labels") or {},
            "annotations": {**(metadata.get("annotations") or {}), SCHEDULED_TIMESTAMP: timestamp},
            "ownerReferences": [controller_reference(cron_job)],
        },
        "spec": template.get("spec") or {},
    }
