"""Changes of a Job's status and their patches."""

from __future__ import annotations

import pytest

from kubeloop.controllers.job.conditions import new_condition
from kubeloop.controllers.job.job_status import (
    finished_status,
    needs_write,
    status_changes,
    with_suspension,
    with_target,
)
from kubeloop.kube.objects.api_types import JobStatus, UncountedTerminatedPods
from support.objects.job_objects import NOW, new_job

SUSPENDED = new_condition("Suspended", "JobSuspended", "Job suspended", NOW)


@pytest.mark.parametrize(("resets", "start_time"), [(True, None), (False, NOW)])
def test_suspended_job_has_the_condition_and_no_start_time(resets, start_time):
    status = with_suspension(new_job(suspend=True), JobStatus(start_time=NOW), NOW, resets_start_time=resets)
    assert status == JobStatus(start_time=start_time, conditions=(SUSPENDED,))


def test_resumed_job_starts_again():
    status = with_suspension(new_job(), JobStatus(conditions=(SUSPENDED,)), NOW, resets_start_time=True)
    (condition,) = status.conditions
    assert (condition.status, condition.reason, status.start_time) == ("False", "JobResumed", NOW)


def test_unchanged_suspension_changes_nothing():
    for job, status in ((new_job(), JobStatus()), (new_job(suspend=True), JobStatus(conditions=(SUSPENDED,)))):
        assert with_suspension(job, status, NOW, resets_start_time=True) is status


def test_target_is_added_once():
    target = new_condition("SuccessCriteriaMet", "r", "m", NOW)
    status = with_target(JobStatus(), target)
    assert status.conditions == (target,)
    assert with_target(status, target) is status
    assert with_target(status, new_condition("Failed", "r", "m", NOW)) is status


@pytest.mark.parametrize(("type_", "completion_time"), [("Complete", NOW), ("Failed", None)])
def test_only_completed_jobs_have_a_completion_time(type_, completion_time):
    final = new_condition(type_, "r", "m", NOW)
    assert finished_status(JobStatus(), final) == JobStatus(conditions=(final,), completion_time=completion_time)


@pytest.mark.parametrize(
    ("status", "written"),
    [
        pytest.param(JobStatus(), False, id="unchanged"),
        pytest.param(JobStatus(start_time=NOW), False, id="start time"),
        pytest.param(JobStatus(uncounted_terminated_pods=UncountedTerminatedPods()), False, id="empty lists"),
        pytest.param(JobStatus(ready=0), True, id="ready is known"),
        pytest.param(JobStatus(uncounted_terminated_pods=UncountedTerminatedPods(failed=("a",))), True, id="list"),
    ],
)
def test_needs_write(status, written):
    assert needs_write(JobStatus(), status) == written


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        pytest.param(None, {}, {}, id="empty lists are written"),
        pytest.param({"failed": ("a",)}, {}, {"failed": None}, id="emptied list is removed"),
        pytest.param({"failed": ("a",)}, {"succeeded": ("b",)}, {"failed": None, "succeeded": ["b"]}, id="other list"),
    ],
)
def test_patch_of_uncounted_pods(old, new, patch):
    stored = JobStatus(uncounted_terminated_pods=None if old is None else UncountedTerminatedPods(**old))
    changes = status_changes(stored, JobStatus(uncounted_terminated_pods=UncountedTerminatedPods(**new)))
    assert {
        name: list(value) if value else value for name, value in changes["uncountedTerminatedPods"].items()
    } == patch
