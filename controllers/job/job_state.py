"""State of a Job in one sync: its Pods by what they count as, and the condition that ends it.

Pure functions. Source: syncJob in v1.36 pkg/controller/job/job_controller.go, indexed_job_utils.go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from kubeloop.controllers.job.conditions import Counts, target_condition
from kubeloop.controllers.job.indexes import IndexSet, index_set, parse_indexes
from kubeloop.controllers.job.job_fields import (
    has_tracking_finalizer,
    is_failed,
    is_indexed,
    valid_index,
)
from kubeloop.controllers.job.policies.backoff_limit_per_index import fails_index, replaced_pods
from kubeloop.controllers.job.policies.pod_backoff import BackoffRecord, updated_record
from kubeloop.controllers.job.policies.pod_failure_policy import match_failure
from kubeloop.controllers.runtime.pods.pod_availability import is_active, is_terminating
from kubeloop.kube.objects.api_types import Condition, Job, Pod, UncountedTerminatedPods
from kubeloop.kube.objects.object_fields import is_ready


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """Job and Pods as one sync sees them.

    job: as cached, with the start time and empty lists of uncounted Pods if it had none.
    tracked: UIDs of the Pods that still have the finalizer, as far as known: status counts them or will do so.
    succeeded, failed: counts, with the Pods that status does not count yet.
    counted_indexes: of status.completedIndexes. succeeded_indexes: these, and those of new Pods.
    failed_indexes: None without backoffLimitPerIndex.
    replaced: by index, the failed Pod whose finalizer stays until its replacement exists, which takes over its counts.
    target: the condition that ends the Job, or None.
    """

    job: Job
    pods: Sequence[Pod]
    tracked: Collection[str]
    active: Sequence[Pod]
    ready: int
    terminating: int
    succeeded: int
    failed: int
    counted_indexes: IndexSet = IndexSet()
    succeeded_indexes: IndexSet = IndexSet()
    failed_indexes: IndexSet | None = None
    replaced: Mapping[int, Pod] = {}
    backoff: BackoffRecord = BackoffRecord()
    target: Condition | None = None

    @property
    def uncounted(self) -> UncountedTerminatedPods:
        return self.job.status.uncounted_terminated_pods or UncountedTerminatedPods()


def observe(
    job: Job, pods: Sequence[Pod], *, untracked: Collection[str], backoff: BackoffRecord, now: datetime
) -> JobState:
    """Return the state of a Job.

    pods: those that it controls. untracked: UIDs of Pods whose finalizer was removed, which the cache does not show
    yet. backoff: the record of the last sync that wrote the status.
    """
    job = _started(job, now)
    status, indexed = job.status, is_indexed(job)
    uncounted = status.uncounted_terminated_pods or UncountedTerminatedPods()
    tracked = {pod.metadata.uid for pod in pods if has_tracking_finalizer(pod)}.difference(untracked)
    active = [pod for pod in pods if is_active(pod)]
    countable = [pod for pod in pods if pod.metadata.uid in tracked]
    if indexed:
        countable = [pod for pod in countable if valid_index(pod, job) is not None]
    succeeded = [
        pod for pod in countable if pod.status.phase == "Succeeded" and pod.metadata.uid not in uncounted.succeeded
    ]
    failed = [pod for pod in countable if is_failed(pod, job) and pod.metadata.uid not in uncounted.failed]
    policy = job.spec.pod_failure_policy
    failures = sum(match_failure(policy, pod).counts for pod in failed) if policy is not None else len(failed)
    state = JobState(
        job=job,
        pods=pods,
        tracked=tracked,
        active=active,
        ready=sum(map(is_ready, active)),
        terminating=sum(map(is_terminating, pods)),
        succeeded=status.succeeded + len(succeeded) + len(uncounted.succeeded),
        failed=status.failed + failures + len(uncounted.failed),
        backoff=updated_record(backoff, succeeded, failed),
    )
    if indexed:
        state = _with_indexes(state, countable)
    counts = Counts(state.failed, state.succeeded_indexes, state.failed_indexes)
    return replace(state, target=target_condition(job, pods, counts, now))


def _started(job: Job, now: datetime) -> Job:
    status = job.status
    if status.uncounted_terminated_pods is None:
        status = replace(status, uncounted_terminated_pods=UncountedTerminatedPods())
    if status.start_time is None and not job.spec.suspend:
        status = replace(status, start_time=now.replace(microsecond=0))
    return replace(job, status=status)


def _with_indexes(state: JobState, countable: Sequence[Pod]) -> JobState:
    """Return the state of an Indexed Job. Its count of succeeded Pods is that of succeeded indexes.

    The first end of an index is final: the API server rejects a status in which one has succeeded and failed. v1.36
    computes such a status from two Pods of one index, and retries it for ever.
    """
    job = state.job
    completions = job.spec.completions or 0
    counted = parse_indexes(job.status.completed_indexes, completions)
    failed = parse_indexes(job.status.failed_indexes or "", completions)
    indexed = [
        (index, pod)
        for pod in state.pods
        if has_tracking_finalizer(pod) and (index := valid_index(pod, job)) is not None
    ]
    succeeded = counted | index_set(
        {index for index, pod in indexed if pod.status.phase == "Succeeded" and index not in failed}
    )
    state = replace(state, counted_indexes=counted, succeeded_indexes=succeeded, succeeded=len(succeeded))
    if job.spec.backoff_limit_per_index is None:
        return state
    failed |= index_set({index for index, pod in indexed if fails_index(pod, job) and index not in succeeded})
    active_indexes = {valid_index(pod, job) for pod in state.active}
    replaced = replaced_pods(
        countable,
        job,
        lambda index: index not in succeeded and index not in failed and index not in active_indexes,
    )
    return replace(state, failed_indexes=failed, replaced=replaced)
