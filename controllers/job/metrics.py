"""job_controller_* metrics. Source: v1.36 pkg/controller/job/metrics/metrics.go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from kubeloop.controllers.job.indexes import parse_indexes
from kubeloop.controllers.job.job_fields import has_tracking_finalizer, is_indexed
from kubeloop.controllers.job.job_state import JobState
from kubeloop.kube.metric_families import MetricFamilies
from kubeloop.kube.objects.api_types import Condition, Job, JobStatus, Pod
from kubeloop.kube.objects.object_fields import is_finished

SyncAction = Literal["reconciling", "tracking", "pods_created", "pods_deleted"]


class JobMetrics:
    def __init__(self, families: MetricFamilies) -> None:
        sync_labels = ("completion_mode", "result", "action")
        self._sync_seconds = families.histogram(
            "job_controller_job_sync_duration_seconds",
            "The time it took to sync a job",
            sync_labels,
            buckets=[0.004 * 2**power for power in range(15)],
        )
        self._syncs = families.counter("job_controller_job_syncs_total", "The number of job syncs", sync_labels)
        self._finished = families.counter(
            "job_controller_jobs_finished_total",
            "The number of finished jobs",
            ("completion_mode", "result", "reason"),
        )
        self._external = families.counter(
            "job_controller_jobs_by_external_controller_total",
            "The number of Jobs managed by an external controller",
            ("controller_name",),
        )
        self._pods_finished = families.counter(
            "job_controller_job_pods_finished_total",
            "The number of finished Pods that are fully tracked",
            ("completion_mode", "result"),
        )
        self._policy_actions = families.counter(
            "job_controller_pod_failures_handled_by_failure_policy_total",
            "The number of failed Pods handled by failure policy, by the action of the matched rule.",
            ("action",),
        )
        self._terminated_pods = families.counter(
            "job_controller_terminated_pods_tracking_finalizer_total",
            "The number of terminated pods that got (event add) or lost (event delete) the finalizer"
            " batch.kubernetes.io/job-tracking.",
            ("event",),
        )
        self._finished_indexes = families.counter(
            "job_controller_job_finished_indexes_total",
            "The number of finished indexes.",
            ("status", "backoffLimit"),
        )
        self._pods_created = families.counter(
            "job_controller_job_pods_creation_total",
            "The number of Pods created by the Job controller, by the reason for their creation.",
            ("reason", "status"),
        )

    def synced(self, job: Job, action: SyncAction, seconds: float, *, failed: bool) -> None:
        labels = _mode(job), "error" if failed else "success", action
        self._sync_seconds.labels(*labels).observe(seconds)
        self._syncs.labels(*labels).inc()

    def job_finished(self, job: Job, final: Condition) -> None:
        result = "succeeded" if final.type == "Complete" else "failed"
        self._finished.labels(_mode(job), result, final.reason).inc()

    def managed_externally(self, controller_name: str) -> None:
        self._external.labels(controller_name).inc()

    def status_written(self, job: Job, before: JobStatus) -> None:
        """Count the Pods and indexes that the status of `job` counts, and that of `before` did not."""
        status, succeeded = job.status, max(0, job.status.succeeded - before.succeeded)
        if is_indexed(job):
            limit = "global" if job.spec.backoff_limit_per_index is None else "perIndex"
            self._finished_indexes.labels("succeeded", limit).inc(succeeded)
            if status.failed_indexes != before.failed_indexes:
                failed_indexes = _index_count(job, status) - _index_count(job, before)
                if failed_indexes > 0:
                    self._finished_indexes.labels("failed", limit).inc(failed_indexes)
        self._pods_finished.labels(_mode(job), "succeeded").inc(succeeded)
        self._pods_finished.labels(_mode(job), "failed").inc(max(0, status.failed - before.failed))

    def failures_handled(self, actions: Iterable[str]) -> None:
        """Count failed Pods by the action of the pod failure policy."""
        for action in actions:
            self._policy_actions.labels(action).inc()

    def pods_created(self, state: JobState, succeeded: int, failed: int) -> None:
        reason = "new"
        if state.job.spec.pod_replacement_policy == "Failed" and state.failed:
            reason = "recreate_failed"
        elif state.failed or state.terminating:
            reason = "recreate_terminating_or_failed"
        if succeeded:
            self._pods_created.labels(reason, "succeeded").inc(succeeded)
        if failed:
            self._pods_created.labels(reason, "failed").inc(failed)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Count a Pod that is terminated and tracked in one of the two versions only; None: it does not exist."""
        was, is_tracked = _is_terminated_and_tracked(old), _is_terminated_and_tracked(new)
        if was != is_tracked:
            self._terminated_pods.labels("add" if is_tracked else "delete").inc()


def _mode(job: Job) -> str:
    return "Indexed" if is_indexed(job) else "NonIndexed"


def _index_count(job: Job, status: JobStatus) -> int:
    return len(parse_indexes(status.failed_indexes or "", job.spec.completions or 0))


def _is_terminated_and_tracked(pod: Pod | None) -> bool:
    return pod is not None and is_finished(pod) and has_tracking_finalizer(pod)
