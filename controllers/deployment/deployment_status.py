"""Status of a Deployment: replica counts, conditions and rollout progress.

Pure functions of objects and the time. Source: pkg/controller/deployment/{progress,sync}.go and
util/deployment_util.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from kubeloop.controllers.deployment.rolling_update import max_unavailable
from kubeloop.controllers.runtime.integers import MAX_INT32
from kubeloop.kube.objects.api_types import Condition, Deployment, DeploymentStatus, ReplicaSet
from kubeloop.kube.objects.object_fields import condition_of, replicas_of
from kubeloop.kube.values.times import seconds_between, time_plus

AVAILABLE = "Available"
PROGRESSING = "Progressing"
REPLICA_FAILURE = "ReplicaFailure"

NEW_RS_CREATED = "NewReplicaSetCreated"
NEW_RS_CREATE_ERROR = "ReplicaSetCreateError"
NEW_RS_FOUND = "FoundNewReplicaSet"
NEW_RS_AVAILABLE = "NewReplicaSetAvailable"
RS_UPDATED = "ReplicaSetUpdated"
TIMED_OUT = "ProgressDeadlineExceeded"
PAUSED = "DeploymentPaused"
RESUMED = "DeploymentResumed"


def new_condition(type_: str, status: str, reason: str, message: str, now: datetime) -> Condition:
    """Return a condition with the times set to `now`, truncated to seconds as in the API."""
    now = now.replace(microsecond=0)
    return Condition(
        type=type_, status=status, reason=reason, message=message, last_update_time=now, last_transition_time=now
    )


def with_condition(status: DeploymentStatus, condition: Condition) -> DeploymentStatus:
    """Return `status` with this condition at the end.

    An existing condition with the same status and reason is left unchanged. lastTransitionTime is kept while the
    status stays the same.
    """
    current = condition_of(status.conditions, condition.type)
    if current is not None and current.status == condition.status:
        if current.reason == condition.reason:
            return status
        condition = replace(condition, last_transition_time=current.last_transition_time)
    others = without_condition(status, condition.type).conditions
    return replace(status, conditions=(*others, condition))


def with_progressing(deployment: Deployment, status: str, reason: str, message: str, now: datetime) -> Deployment:
    """Return the Deployment with this Progressing condition; itself if it has no progress deadline."""
    if not has_progress_deadline(deployment):
        return deployment
    condition = new_condition(PROGRESSING, status, reason, message, now)
    return replace(deployment, status=with_condition(deployment.status, condition))


def with_new_rs_found(deployment: Deployment, new_rs: ReplicaSet, now: datetime) -> Deployment:
    """Return the Deployment with the Progressing condition that it lacks if progressDeadlineSeconds was added later.

    Progress is measured from the first sync with a deadline. Returns itself if it has the condition or no deadline.
    """
    if condition_of(deployment.status.conditions, PROGRESSING) is not None:
        return deployment
    return with_progressing(deployment, "True", NEW_RS_FOUND, f'Found new replica set "{new_rs.metadata.name}"', now)


def without_condition(status: DeploymentStatus, type_: str) -> DeploymentStatus:
    others = tuple(condition for condition in status.conditions if condition.type != type_)
    return status if len(others) == len(status.conditions) else replace(status, conditions=others)


def has_progress_deadline(deployment: Deployment) -> bool:
    deadline = deployment.spec.progress_deadline_seconds
    return deadline is not None and deadline != MAX_INT32


def is_complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    """Return True if all replicas are updated and available, no old Pod is left, and the last spec was observed."""
    desired = replicas_of(deployment)
    return (
        status.updated_replicas == desired
        and status.replicas == desired
        and status.available_replicas == desired
        and status.observed_generation >= deployment.metadata.generation
    )


def is_progressing(deployment: Deployment, new_status: DeploymentStatus) -> bool:
    """Return True if more Pods are updated, ready or available than before, or fewer are old."""
    old_status = deployment.status
    return (
        new_status.updated_replicas > old_status.updated_replicas
        or new_status.replicas - new_status.updated_replicas < old_status.replicas - old_status.updated_replicas
        or new_status.ready_replicas > old_status.ready_replicas
        or new_status.available_replicas > old_status.available_replicas
    )


def is_timed_out(deployment: Deployment, new_status: DeploymentStatus, now: datetime) -> bool:
    """Return True if there was no progress for progressDeadlineSeconds; a complete rollout never times out."""
    condition = condition_of(new_status.conditions, PROGRESSING)
    if not has_progress_deadline(deployment) or condition is None or condition.reason == NEW_RS_AVAILABLE:
        return False
    if condition.reason == TIMED_OUT:
        return True
    since = condition.last_update_time
    return since is None or time_plus(since, deployment.spec.progress_deadline_seconds or 0) < now


def seconds_until_progress_deadline(
    deployment: Deployment, new_status: DeploymentStatus, now: datetime
) -> float | None:
    """Return the seconds until the progress deadline of an unfinished rollout; None if no deadline applies."""
    condition = condition_of(deployment.status.conditions, PROGRESSING)
    if not has_progress_deadline(deployment) or condition is None:
        return None
    if is_complete(deployment, new_status) or condition.reason == TIMED_OUT:
        return None
    if condition.last_update_time is None:
        return 0.0  # no update time: the deadline has passed
    deadline = time_plus(condition.last_update_time, deployment.spec.progress_deadline_seconds or 0)
    return seconds_between(now, deadline)


def with_paused_condition(deployment: Deployment, now: datetime) -> DeploymentStatus:
    """Return the status with the Progressing condition of a Deployment that was paused or resumed since; else as it is.

    The time during which it is paused must not count towards the progress deadline. A rollout that has timed out
    already keeps its condition.
    """
    status = deployment.status
    current = condition_of(status.conditions, PROGRESSING)
    if not has_progress_deadline(deployment) or (current is not None and current.reason == TIMED_OUT):
        return status
    was_paused = current is not None and current.reason == PAUSED
    if deployment.spec.paused and not was_paused:
        return with_condition(status, new_condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now))
    if not deployment.spec.paused and was_paused:
        return with_condition(status, new_condition(PROGRESSING, "Unknown", RESUMED, "Deployment is resumed", now))
    return status


def replica_failures(all_rss: Sequence[ReplicaSet], new_rs: ReplicaSet | None) -> list[Condition]:
    """Return the ReplicaFailure conditions of the new ReplicaSet, or else of all, as conditions of the Deployment."""
    if new_rs is not None and (failures := _failures(new_rs)):
        return failures
    return [condition for rs in all_rss for condition in _failures(rs)]


def _failures(rs: ReplicaSet) -> list[Condition]:
    return [
        replace(condition, last_update_time=condition.last_transition_time)
        for condition in rs.status.conditions
        if condition.type == REPLICA_FAILURE
    ]


def calculate_status(
    deployment: Deployment,
    all_rss: Sequence[ReplicaSet],
    new_rs: ReplicaSet | None,
    now: datetime,
    *,
    counts_terminating: bool = True,
) -> DeploymentStatus:
    """Return the status with counts and the Available condition computed; other conditions are unchanged.

    counts_terminating: False to leave out terminatingReplicas.
    """
    available = sum(rs.status.available_replicas for rs in all_rss)
    status = DeploymentStatus(
        observed_generation=deployment.metadata.generation,
        replicas=sum(rs.status.replicas for rs in all_rss),
        updated_replicas=0 if new_rs is None else new_rs.status.replicas,
        ready_replicas=sum(rs.status.ready_replicas for rs in all_rss),
        available_replicas=available,
        # negative while more Pods than spec.replicas are available
        unavailable_replicas=max(0, sum(map(replicas_of, all_rss)) - available),
        terminating_replicas=_terminating_replicas(all_rss) if counts_terminating else None,
        conditions=deployment.status.conditions,
        collision_count=deployment.status.collision_count,
    )
    if available >= replicas_of(deployment) - max_unavailable(deployment):
        state, reason, message = "True", "MinimumReplicasAvailable", "Deployment has minimum availability."
    else:
        state, reason, message = "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."
    return with_condition(status, new_condition(AVAILABLE, state, reason, message, now))


def _terminating_replicas(all_rss: Sequence[ReplicaSet]) -> int | None:
    """Return the sum; None if a ReplicaSet was synced by a controller without support for terminatingReplicas."""
    total = 0
    for rs in all_rss:
        if rs.status.terminating_replicas is not None:
            total += rs.status.terminating_replicas
        elif rs.status.observed_generation != 0:
            return None
    return total


def rollout_status(
    deployment: Deployment,
    all_rss: Sequence[ReplicaSet],
    new_rs: ReplicaSet | None,
    now: datetime,
    *,
    counts_terminating: bool = True,
) -> DeploymentStatus:
    """Return calculate_status() with the conditions Progressing and ReplicaFailure of the rollout."""
    status = calculate_status(deployment, all_rss, new_rs, now, counts_terminating=counts_terminating)
    current = condition_of(deployment.status.conditions, PROGRESSING)
    if not has_progress_deadline(deployment):
        status = without_condition(status, PROGRESSING)
    else:
        # After a complete rollout, Pods that are replaced (failed node, scaling) do not start a new rollout.
        finished = status.replicas == status.updated_replicas and current is not None
        if not (finished and current is not None and current.reason == NEW_RS_AVAILABLE):
            status = _with_progress(deployment, status, new_rs, current, now)
    failures = replica_failures(all_rss, new_rs)
    return with_condition(status, failures[0]) if failures else without_condition(status, REPLICA_FAILURE)


def _with_progress(
    deployment: Deployment,
    status: DeploymentStatus,
    new_rs: ReplicaSet | None,
    current: Condition | None,
    now: datetime,
) -> DeploymentStatus:
    subject = f'Deployment "{deployment.metadata.name}"' if new_rs is None else f'ReplicaSet "{new_rs.metadata.name}"'
    if is_complete(deployment, status):
        message = f"{subject} has successfully progressed."
        return with_condition(status, new_condition(PROGRESSING, "True", NEW_RS_AVAILABLE, message, now))
    if is_progressing(deployment, status):
        condition = new_condition(PROGRESSING, "True", RS_UPDATED, f"{subject} is progressing.", now)
        if current is not None:
            # Replaced even if status and reason are the same: the new lastUpdateTime restarts the progress deadline.
            if current.status == "True":
                condition = replace(condition, last_transition_time=current.last_transition_time)
            status = without_condition(status, PROGRESSING)
        return with_condition(status, condition)
    if is_timed_out(deployment, status, now):
        message = f"{subject} has timed out progressing."
        return with_condition(status, new_condition(PROGRESSING, "False", TIMED_OUT, message, now))
    return status
