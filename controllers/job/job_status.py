"""Changes of a Job's status, and the patch that writes them.

Pure functions. Source: syncJob and enactJobFinished in v1.36 pkg/controller/job/job_controller.go.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from kubeloop.controllers.job.conditions import SUCCESS, new_condition, true_condition, with_condition
from kubeloop.controllers.runtime.writes.object_patch import changed_fields
from kubeloop.kube.objects.api_types import Condition, Job, JobStatus, JSONValue, UncountedTerminatedPods


def with_suspension(job: Job, status: JobStatus, now: datetime, *, resets_start_time: bool) -> JobStatus:
    """Return the status with the condition Suspended, and the start time of a Job that is suspended or resumed.

    resets_start_time: True if a suspended Job has none.
    """
    if job.spec.suspend:
        suspended = new_condition("Suspended", "JobSuspended", "Job suspended", now)
        started = None if resets_start_time else status.start_time
    else:
        suspended = new_condition("Suspended", "JobResumed", "Job resumed", now, status="False")
        started = now.replace(microsecond=0)  # the active deadline counts from here
    conditions = with_condition(status.conditions, suspended)
    if conditions is status.conditions:
        return status
    return replace(status, conditions=conditions, start_time=started)


def with_target(status: JobStatus, target: Condition) -> JobStatus:
    """Return the status with the condition SuccessCriteriaMet or FailureTarget, unless an earlier sync has set it."""
    if target.type == "Failed" or (target.type == SUCCESS and true_condition(status.conditions, SUCCESS) is not None):
        return status
    return replace(status, conditions=(*status.conditions, target))


def finished_status(status: JobStatus, final: Condition) -> JobStatus:
    """Return the status with the condition Complete or Failed."""
    completed = final.last_transition_time if final.type == "Complete" else status.completion_time
    return replace(status, conditions=with_condition(status.conditions, final), completion_time=completed)


def needs_write(stored: JobStatus, status: JobStatus) -> bool:
    """Return True if the status has changed. The start time alone is no reason for a write."""
    new = replace(
        status,
        start_time=stored.start_time,
        uncounted_terminated_pods=status.uncounted_terminated_pods or UncountedTerminatedPods(),
    )
    return new != replace(
        stored, uncounted_terminated_pods=stored.uncounted_terminated_pods or UncountedTerminatedPods()
    )


def status_changes(stored: JobStatus, status: JobStatus) -> dict[str, JSONValue]:
    """Return the merge patch members that turn `stored` into `status`."""
    changes = changed_fields(stored, status)
    old, new = stored.uncounted_terminated_pods, status.uncounted_terminated_pods
    if "uncountedTerminatedPods" in changes and old is not None and new is not None:
        changes["uncountedTerminatedPods"] = changed_fields(old, new)  # a merge patch merges maps
    return changes
