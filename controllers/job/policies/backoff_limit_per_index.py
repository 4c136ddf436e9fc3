"""backoffLimitPerIndex: which indexes of a Job have failed, and the replacement of their failed Pods.

Pure functions. Source: v1.36 pkg/controller/job/indexed_job_utils.go and backoff_utils.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from kubeloop.controllers.job.job_fields import (
    INDEX_FAILURE_COUNT,
    INDEX_IGNORED_FAILURE_COUNT,
    index_failure_count,
    index_ignored_failure_count,
    is_failed,
    valid_index,
)
from kubeloop.controllers.job.policies.pod_backoff import BackoffRecord, finished_time, remaining_seconds
from kubeloop.controllers.job.policies.pod_failure_policy import match_failure
from kubeloop.kube.objects.api_types import Job, Pod

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def fails_index(pod: Pod, job: Job) -> bool:
    """Return True if the index of the Pod is not tried again."""
    if not is_failed(pod, job):
        return False
    match = match_failure(job.spec.pod_failure_policy, pod)
    if match.action == "FailIndex":
        return True
    return match.counts and index_failure_count(pod) >= (job.spec.backoff_limit_per_index or 0)


def replaced_pods(pods: Iterable[Pod], job: Job, is_open: Callable[[int], bool]) -> dict[int, Pod]:
    """Return the last failed Pod by index. is_open: returns True for an index that gets a replacement."""
    replaced: dict[int, Pod] = {}
    for pod in pods:
        index = valid_index(pod, job)
        if index is None or not is_failed(pod, job) or not is_open(index):
            continue
        replaced[index] = _last_failed(replaced.get(index), pod)
    return replaced


def _last_failed(last: Pod | None, pod: Pod) -> Pod:
    if last is None:
        return pod
    later = (finished_time(pod) or _LONG_AGO) >= (finished_time(last) or _LONG_AGO)
    return pod if later and _all_failures(last) <= _all_failures(pod) else last


def _all_failures(pod: Pod) -> int:
    return index_failure_count(pod) + index_ignored_failure_count(pod)


def seconds_to_replacement(failed: Pod | None, now: datetime) -> float:
    """Return the seconds until a failed Pod of an index may be replaced; 0 if there is none."""
    if failed is None:
        return 0.0
    return remaining_seconds(BackoffRecord(_all_failures(failed) + 1, finished_time(failed)), now)


def failure_annotations(job: Job, replaced: Pod | None) -> dict[str, str]:
    """Return the annotations with the failures of an index, after those of the Pod that is replaced."""
    counted = ignored = 0
    if replaced is not None:
        counts = match_failure(job.spec.pod_failure_policy, replaced).counts
        counted = index_failure_count(replaced) + (1 if counts else 0)
        ignored = index_ignored_failure_count(replaced) + (0 if counts else 1)
    annotations = {INDEX_FAILURE_COUNT: str(counted)}
    if ignored:
        annotations[INDEX_IGNORED_FAILURE_COUNT] = str(ignored)
    return annotations
