"""Jobs and CronJobs for tests, and the end of a Job as the Job controller writes it."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.resources import CRON_JOBS, JOBS
from support.apiserver.fake_apiserver import FakeApiServer

_POD_SPEC = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}


def job_body(name: str, *owners: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "ns", "ownerReferences": list(owners)},
        "spec": {"template": {"spec": _POD_SPEC}, **spec},
    }


def create_job(api: FakeApiServer, name: str, *owners: dict[str, Any], **spec: Any) -> None:
    api.api.create(JOBS.path("ns"), job_body(name, *owners, **spec))


def create_cron_job(
    api: FakeApiServer, name: str, schedule: str, *, annotations: dict[str, str] | None = None, **spec: Any
) -> None:
    """Create a CronJob in UTC."""
    body = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "schedule": schedule,
            "timeZone": "UTC",
            "jobTemplate": {"spec": {"template": {"spec": _POD_SPEC}}},
            **spec,
        },
    }
    api.api.create(CRON_JOBS.path("ns"), body)


def finish_job(api: FakeApiServer, name: str, condition: str = "Complete") -> None:
    """condition: Complete or Failed."""
    now = rfc3339(api.clock.now())
    criterion = "SuccessCriteriaMet" if condition == "Complete" else "FailureTarget"
    conditions = [{"type": type_, "status": "True", "lastTransitionTime": now} for type_ in (criterion, condition)]
    status: dict[str, Any] = {"startTime": now, "conditions": conditions}
    if condition == "Complete":
        status["completionTime"] = now
    path = JOBS.path("ns", name, "status")
    api.api.succeed("PATCH", path, {"status": status}, content_type="application/merge-patch+json")
