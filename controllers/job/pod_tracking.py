"""Tracking of finished Pods: which are counted in the status, and which may lose the finalizer.

A finished Pod is first listed in status.uncountedTerminatedPods (by its index in status.completedIndexes), then loses
the finalizer batch.kubernetes.io/job-tracking, then is counted and leaves the list. So a Pod is counted once, whichever
write fails. Pure functions. Source: trackJobStatusAndRemoveFinalizers in v1.36 pkg/controller/job/job_controller.go.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import replace

from kubeloop.controllers.job.conditions import SUCCESS
from kubeloop.controllers.job.indexes import index_set
from kubeloop.controllers.job.job_fields import completion_index, is_failed, is_indexed, valid_index
from kubeloop.controllers.job.job_state import JobState
from kubeloop.controllers.job.policies.pod_failure_policy import match_failure
from kubeloop.kube.objects.api_types import Condition, JobStatus, Pod, UncountedTerminatedPods

MAX_UNCOUNTED_PODS = 500
"""Limit of the lists in the status, which then take up to 20 KB."""


class TrackingPlan(msgspec.Struct, frozen=True):
    """status: with Pods that became uncounted. release: Pods to remove the finalizer from, after status is written.

    complete: False if there are more Pods than one sync handles. policy_actions: one for each failed Pod that matches a
    rule of the pod failure policy.
    """

    status: JobStatus
    release: Sequence[Pod]
    complete: bool
    policy_actions: Sequence[str] = ()


def track_pods(state: JobState, status: JobStatus, target: Condition | None) -> TrackingPlan:
    """Return the next status and the Pods to release.

    target: the condition that ends the Job, None while active Pods remain.
    """
    job, indexed = state.job, is_indexed(state.job)
    before = state.uncounted
    status = count_released(status, state.tracked)
    uncounted = _uncounted(status)
    succeeded, failed = list(uncounted.succeeded), list(uncounted.failed)
    new_indexes: list[int] = []
    release: list[Pod] = []
    policy_actions: list[str] = []
    complete = True
    fails_all = target is not None and target.type != SUCCESS  # Pods that have not finished count as failed
    pods = [pod for pod in state.pods if pod.metadata.uid in state.tracked and _can_release(state, pod, target)]
    if indexed:
        pods.sort(key=_by_index)
    for pod in pods:
        uid = pod.metadata.uid
        release.append(pod)
        index = valid_index(pod, job) if indexed else None
        if pod.status.phase == "Succeeded" and uid not in before.failed:
            if not indexed:
                if uid not in before.succeeded:
                    succeeded.append(uid)
            elif index is not None and index in state.succeeded_indexes and index not in state.counted_indexes:
                new_indexes.append(index)
        elif (fails_all or is_failed(pod, job)) and uid not in before.failed:
            has_place = index is not None or not indexed
            if has_place:
                match = match_failure(job.spec.pod_failure_policy, pod)
                if match.action:
                    policy_actions.append(match.action)
                if match.counts:
                    failed.append(uid)
        if len(new_indexes) + len(succeeded) + len(failed) >= MAX_UNCOUNTED_PODS:
            complete = False  # the next sync, which the writes of this one cause, handles the others
            break
    uncounted = UncountedTerminatedPods(succeeded=tuple(succeeded), failed=tuple(failed))
    status = replace(status, uncounted_terminated_pods=uncounted)
    if indexed:
        indexes = state.succeeded_indexes | index_set(new_indexes)
        failed_indexes = None if state.failed_indexes is None else str(state.failed_indexes)
        status = replace(status, succeeded=len(indexes), completed_indexes=str(indexes), failed_indexes=failed_indexes)
    return TrackingPlan(status, release, complete, policy_actions)


def count_released(status: JobStatus, tracked: Collection[str]) -> JobStatus:
    """Return the status with the uncounted Pods counted that have no finalizer any more.

    tracked: UIDs of the Pods with the finalizer.
    """
    uncounted = _uncounted(status)
    succeeded = tuple(uid for uid in uncounted.succeeded if uid in tracked)
    failed = tuple(uid for uid in uncounted.failed if uid in tracked)
    return replace(
        status,
        succeeded=status.succeeded + len(uncounted.succeeded) - len(succeeded),
        failed=status.failed + len(uncounted.failed) - len(failed),
        uncounted_terminated_pods=UncountedTerminatedPods(succeeded=succeeded, failed=failed),
    )


def has_uncounted(status: JobStatus) -> bool:
    uncounted = _uncounted(status)
    return bool(uncounted.succeeded or uncounted.failed)


def _uncounted(status: JobStatus) -> UncountedTerminatedPods:
    return status.uncounted_terminated_pods or UncountedTerminatedPods()


def _by_index(pod: Pod) -> tuple[int, str]:
    index = completion_index(pod)
    return -1 if index is None else index, pod.metadata.uid


def _can_release(state: JobState, pod: Pod, target: Condition | None) -> bool:
    """Return True if the Pod needs the finalizer no more.

    It has finished, or the Job ends. A failed Pod of an index that is tried again waits for its replacement, which
    takes over its failure counts.
    """
    if state.job.metadata.deletion_timestamp is not None or target is not None or pod.status.phase == "Succeeded":
        return True
    if not is_failed(pod, state.job):
        return False
    index = completion_index(pod)
    replaced = state.replaced.get(index) if index is not None else None
    return replaced is None or replaced.metadata.uid != pod.metadata.uid
