"""Jobs and Pods for the pure decisions of the Job controller."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from kubeloop.controllers.job.job_fields import COMPLETION_INDEX, TRACKING_FINALIZER
from kubeloop.controllers.job.job_state import JobState, observe
from kubeloop.controllers.job.policies.pod_backoff import BackoffRecord
from kubeloop.kube.objects.api_types import Job, Pod, convert

_NO_FAILURES = BackoffRecord()
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> str:
    return (NOW + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def new_job(*, status: dict[str, Any] | None = None, deleted: bool = False, **spec: Any) -> Job:
    """Return a Job as the API server stores it."""
    template = {"metadata": {"labels": {"app": "j"}}, "spec": {"containers": [{"name": "c"}]}}
    metadata = {"name": "j", "namespace": "ns", "uid": "uid-j"} | ({"deletionTimestamp": at(0)} if deleted else {})
    return convert(
        Job,
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {"parallelism": 1, "backoffLimit": 6, "template": template, **spec},
            "status": status or {},
        },
    )


def new_pod(
    name: str,
    phase: str = "Running",
    *,
    index: int | None = None,
    tracked: bool = True,
    deleted: bool = False,
    annotations: dict[str, str] | None = None,
    **status: Any,
) -> Pod:
    """Return a Pod with the UID "uid-NAME". tracked: it has the finalizer."""
    index_annotation = {} if index is None else {COMPLETION_INDEX: str(index)}
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "creationTimestamp": at(-100),
        "annotations": {**index_annotation, **(annotations or {})},
        "finalizers": [TRACKING_FINALIZER] if tracked else [],
    }
    if deleted:
        metadata["deletionTimestamp"] = at(0)
    return convert(Pod, {"metadata": metadata, "status": {"phase": phase, **status}})


def state_of(job: Job, *pods: Pod, untracked: tuple[str, ...] = (), backoff: BackoffRecord = _NO_FAILURES) -> JobState:
    return observe(job, pods, untracked=untracked, backoff=backoff, now=NOW)
