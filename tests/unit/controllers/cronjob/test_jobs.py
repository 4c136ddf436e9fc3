"""Jobs of a CronJob: from the template, and above the history limits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kubeloop.controllers.cronjob.jobs import SCHEDULED_TIMESTAMP, job_from_template, surplus_jobs
from kubeloop.kube.objects.api_types import CronJob, Job, convert


def job(name: str, condition: str = "Complete", started: str | None = "2026-01-01T00:00:00Z") -> Job:
    conditions = [{"type": condition, "status": "True"}] if condition else []
    status = {"conditions": conditions, **({"startTime": started} if started else {})}
    return convert(Job, {"metadata": {"name": name}, "status": status})


def cron_job(**spec: Any) -> CronJob:
    metadata = {"name": "c", "namespace": "ns", "uid": "u"}
    body = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}
    return convert(CronJob, body)


def test_oldest_finished_jobs_are_surplus():
    jobs = [
        job("late", started="2026-01-01T00:02:00Z"),
        job("b", started="2026-01-01T00:01:00Z"),
        job("a", started="2026-01-01T00:01:00Z"),
        job("unstarted", started=None),
        job("failed", "Failed"),
        job("running", ""),
    ]
    limits = {"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0}
    names = [surplus.metadata.name for surplus in surplus_jobs(cron_job(**limits), jobs)]
    assert names == ["a", "b", "late", "failed"]
    assert surplus_jobs(cron_job(), jobs) == []


def test_job_has_labels_owner_and_scheduled_time_of_its_time_zone():
    template = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"parallelism": 2},
    }
    scheduled = datetime(2026, 1, 1, 12, tzinfo=UTC)
    body = job_from_template(cron_job(jobTemplate=template, timeZone="Europe/Berlin"), scheduled)
    metadata = body["metadata"]
    assert metadata["labels"] == {"a": "b"}
    assert metadata["annotations"] == {"c": "d", SCHEDULED_TIMESTAMP: "2026-01-01T13:00:00+01:00"}
    assert metadata["ownerReferences"][0]["kind"] == "CronJob"
    assert body["spec"] == {"parallelism": 2}
    utc = job_from_template(cron_job(jobTemplate=template), scheduled)
    assert utc["metadata"]["annotations"][SCHEDULED_TIMESTAMP] == "2026-01-01T12:00:00Z"
