"""Fields of a Job and of its Pods that several decisions read.

Pure functions. Source: v1.36 pkg/controller/job/job_controller.go, indexed_job_utils.go, tracking_utils.go.
"""

from __future__ import annotations

import re
from functools import lru_cache

from kubeloop.kube.objects.api_types import Job, Pod
from kubeloop.kube.values.integers import parse_integer

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"  # annotation and label
INDEX_FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
INDEX_IGNORED_FAILURE_COUNT = "batch.kubernetes.io/job-index-ignored-failure-count"
JOB_CONTROLLER_NAME = "kubernetes.io/job-controller"

_DECIMAL = re.compile(r"[+-]?[0-9]+", re.ASCII)
_MAX_INT32 = 2**31 - 1


def is_indexed(job: Job) -> bool:
    return job.spec.completion_mode == "Indexed"


def external_manager(job: Job) -> str | None:
    """Return the controller that spec.managedBy names, if it is not this one."""
    manager = job.spec.managed_by
    return manager if manager not in (None, JOB_CONTROLLER_NAME) else None


def replaces_only_failed_pods(job: Job) -> bool:
    """Return True if a terminating Pod is replaced only once it has failed."""
    return job.spec.pod_replacement_policy == "Failed" or job.spec.pod_failure_policy is not None


def has_tracking_finalizer(pod: Pod) -> bool:
    return TRACKING_FINALIZER in pod.metadata.finalizers


def is_failed(pod: Pod, job: Job) -> bool:
    """Return True if the Pod counts as failed. A deleted one does, unless only failed Pods are replaced.

    Deleted Pods of a lost node never reach the phase Failed.
    """
    if pod.status.phase == "Failed":
        return True
    if replaces_only_failed_pods(job):
        return False
    return pod.metadata.deletion_timestamp is not None and pod.status.phase != "Succeeded"


def completion_index(pod: Pod) -> int | None:
    """Return the completion index of the annotation; None if there is none, or no valid one."""
    return _parsed_index(pod.metadata.annotations.get(COMPLETION_INDEX, ""))


@lru_cache(maxsize=10_000)  # a sync reads the index of each Pod several times
def _parsed_index(text: str) -> int | None:
    index = parse_integer(text) if _DECIMAL.fullmatch(text) else -1
    return index if index >= 0 else None


def valid_index(pod: Pod, job: Job) -> int | None:
    """Return the completion index if it is below spec.completions."""
    index = completion_index(pod)
    return index if index is not None and index < (job.spec.completions or 0) else None


def index_failure_count(pod: Pod) -> int:
    """Return the number of counted failures of the Pod's index before this Pod."""
    return _count(pod, INDEX_FAILURE_COUNT)


def index_ignored_failure_count(pod: Pod) -> int:
    """Return the number of failures of the Pod's index that the pod failure policy ignored."""
    return _count(pod, INDEX_IGNORED_FAILURE_COUNT)


def _count(pod: Pod, annotation: str) -> int:
    text = pod.metadata.annotations.get(annotation, "")
    count = parse_integer(text) if _DECIMAL.fullmatch(text) else 0
    return count if 0 <= count <= _MAX_INT32 else 0
