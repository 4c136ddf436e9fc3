"""Conditions of a Job, and which of them a sync sets.

Pure functions. Source: syncJob and its helpers in v1.36 pkg/controller/job/job_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from kubeloop.controllers.job.indexes import IndexSet
from kubeloop.controllers.job.job_fields import is_failed
from kubeloop.controllers.job.policies.pod_failure_policy import match_failure
from kubeloop.controllers.job.policies.success_policy import met_rule
from kubeloop.kube.objects.api_types import Condition, Job, Pod
from kubeloop.kube.objects.object_fields import condition_of, replace_condition
from kubeloop.kube.values.times import go_duration_seconds, seconds_between

SUCCESS = "SuccessCriteriaMet"
FAILURE = "FailureTarget"
FINAL_TYPES = {SUCCESS: "Complete", FAILURE: "Failed"}
"""Condition with which a Job finishes, by the one that precedes it while Pods terminate."""


class Counts(NamedTuple):
    """Finished Pods of a Job, or indexes of an Indexed Job."""

    failed: int
    succeeded_indexes: IndexSet = IndexSet()
    failed_indexes: IndexSet | None = None


def new_condition(type_: str, reason: str, message: str, now: datetime, *, status: str = "True") -> Condition:
    second = now.replace(microsecond=0)
    return Condition(
        type=type_,
        status=status,
        last_probe_time=second,
        last_transition_time=second,
        reason=reason,
        message=message,
    )


def with_condition(conditions: tuple[Condition, ...], condition: Condition) -> tuple[Condition, ...]:
    """Return the conditions with a new one, or the same ones if it changes neither status, reason nor message.

    A condition that is False is not added: that it never was True needs no mention.
    """
    current = condition_of(conditions, condition.type)
    if current is None:
        return conditions if condition.status == "False" else (*conditions, condition)
    if (current.status, current.reason, current.message) == (condition.status, condition.reason, condition.message):
        return conditions
    return replace_condition(conditions, condition)


def true_condition(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """Return the condition of a type if it is True."""
    condition = condition_of(conditions, type_)
    return condition if condition is not None and condition.status == "True" else None


def target_condition(job: Job, pods: Sequence[Pod], counts: Counts, now: datetime) -> Condition | None:
    """Return the condition that ends the Job before its completions are reached, or None.

    SuccessCriteriaMet, FailureTarget, or Failed if an earlier sync has set FailureTarget. What an earlier sync decided
    stands; failures precede the success policy.
    """
    decided = true_condition(job.status.conditions, SUCCESS)
    if decided is not None:
        return decided
    failing = true_condition(job.status.conditions, FAILURE)
    if failing is not None:
        return new_condition(FINAL_TYPES[FAILURE], failing.reason, failing.message, now)
    failure = _failure(job, pods, counts, now)
    if failure is not None:
        return new_condition(FAILURE, *failure, now)
    rule = met_rule(job.spec.success_policy, job.spec.completions or 0, counts.succeeded_indexes)
    if rule is not None:
        return new_condition(SUCCESS, "SuccessPolicy", f"Matched rules at index {rule}", now)
    return None


def final_condition(target: Condition, now: datetime) -> Condition:
    """Return the condition with which the Job finishes once its Pods are counted and gone."""
    return new_condition(FINAL_TYPES.get(target.type, target.type), target.reason, target.message, now)


def seconds_to_deadline(job: Job, now: datetime) -> float | None:
    """Return the seconds until activeDeadlineSeconds have passed, 0 or less afterwards; None without a deadline."""
    seconds, started = job.spec.active_deadline_seconds, job.status.start_time
    if seconds is None or started is None or job.spec.suspend:
        return None
    return go_duration_seconds(seconds) - seconds_between(started, now)


def _failure(job: Job, pods: Sequence[Pod], counts: Counts, now: datetime) -> tuple[str, str] | None:
    """Return reason and message of the failure of the Job."""
    spec = job.spec
    policy_failure = _policy_failure(job, pods)
    if policy_failure is not None:
        return "PodFailurePolicy", policy_failure
    if counts.failed > (spec.backoff_limit or 0) or _restarts_exceed_limit(job, pods):
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    deadline = seconds_to_deadline(job, now)
    if deadline is not None and deadline <= 0:
        return "DeadlineExceeded", "Job was active longer than specified deadline"
    failed = counts.failed_indexes
    if failed is not None:
        if spec.max_failed_indexes is not None and len(failed) > spec.max_failed_indexes:
            return "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"
        if failed and len(failed) + len(counts.succeeded_indexes) >= (spec.completions or 0):
            return "FailedIndexes", "Job has failed indexes"
    return None


def _policy_failure(job: Job, pods: Sequence[Pod]) -> str | None:
    if job.spec.pod_failure_policy is None:
        return None
    for pod in pods:
        if is_failed(pod, job):
            message = match_failure(job.spec.pod_failure_policy, pod).job_failure
            if message is not None:
                return message
    return None


def _restarts_exceed_limit(job: Job, pods: Sequence[Pod]) -> bool:
    """Return True if the containers of Pods with restartPolicy OnFailure were restarted too often."""
    if (job.spec.template.get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(
        status.restart_count
        for pod in pods
        if pod.status.phase in ("Running", "Pending")
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    )
    return restarts > 0 and restarts >= (job.spec.backoff_limit or 0)
