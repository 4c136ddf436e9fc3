"""State of a Job in one sync."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kubeloop.controllers.job.indexes import index_set
from kubeloop.controllers.job.job_state import observe
from kubeloop.controllers.job.pod_tracking import track_pods
from kubeloop.controllers.job.policies.pod_backoff import BackoffRecord
from support.objects.job_objects import NOW, at, new_job, new_pod, state_of

READY = [{"type": "Ready", "status": "True"}]
COUNT = "batch.kubernetes.io/job-index-failure-count"


def test_pods_are_counted_by_phase():
    state = state_of(
        new_job(),
        new_pod("a", "Pending"),
        new_pod("b", conditions=READY),
        new_pod("c", deleted=True, conditions=READY),
        new_pod("d", "Succeeded"),
        new_pod("e", "Failed"),
    )
    assert (len(state.active), state.ready, state.terminating, state.succeeded, state.failed) == (2, 1, 1, 1, 2)


def test_pods_are_not_counted_twice():
    status = {"succeeded": 4, "failed": 2, "uncountedTerminatedPods": {"succeeded": ["uid-a"], "failed": ["uid-b"]}}
    pods = (
        new_pod("a", "Succeeded"),
        new_pod("b", "Failed"),
        new_pod("c", "Succeeded", tracked=False),
        new_pod("d", "Failed"),
    )
    state = state_of(new_job(status=status), *pods, untracked=("uid-d",))
    assert (state.succeeded, state.failed) == (5, 3)
    assert state.tracked == {"uid-a", "uid-b"}


def test_ignored_failures_do_not_count_but_delay():
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    disrupted = new_pod("a", "Failed", conditions=[{"type": "DisruptionTarget", "status": "True"}])
    state = state_of(new_job(podFailurePolicy={"rules": [rule]}), disrupted, new_pod("b", "Failed"))
    assert state.failed == 1
    assert state.backoff.failures == 2


def test_start_time_is_set_unless_suspended():
    assert state_of(new_job()).job.status.start_time == NOW
    assert state_of(new_job(suspend=True)).job.status.start_time is None
    assert state_of(new_job(status={"startTime": at(-5)})).job.status.start_time != NOW


def test_backoff_continues_the_last_record():
    assert state_of(new_job(), new_pod("a", "Failed"), backoff=BackoffRecord(2, NOW)).backoff.failures == 3


def test_succeeded_indexes_count_once():
    job = new_job(completionMode="Indexed", completions=5, status={"completedIndexes": "0", "succeeded": 1})
    pods = [new_pod(f"p{number}", "Succeeded", index=index) for number, index in enumerate((0, 2, 2, 7))]
    state = state_of(job, *pods, new_pod("none", "Succeeded"))
    assert state.counted_indexes == index_set({0})
    assert state.succeeded_indexes == index_set({0, 2})
    assert state.succeeded == 2
    assert state.failed_indexes is None


@pytest.mark.parametrize(
    ("failures", "failed", "replaced"),
    [pytest.param(0, set(), {1}, id="is tried again"), pytest.param(1, {1}, set(), id="has failed")],
)
def test_index_fails_at_its_backoff_limit(failures, failed, replaced):
    job = new_job(completionMode="Indexed", completions=5, backoffLimitPerIndex=1)
    pod = new_pod("p", "Failed", index=1, annotations={COUNT: str(failures)})
    state = state_of(job, pod)
    assert state.failed_indexes == index_set(failed)
    assert state.replaced.keys() == replaced


@pytest.mark.parametrize(
    ("status", "succeeded", "failed"),
    [
        pytest.param({}, {1}, set(), id="neither: success wins"),
        pytest.param({"completedIndexes": "1"}, {1}, set(), id="succeeded"),
        pytest.param({"failedIndexes": "1"}, set(), {1}, id="failed"),
    ],
)
def test_first_end_of_an_index_is_final(status, succeeded, failed):
    job = new_job(completionMode="Indexed", completions=5, backoffLimitPerIndex=0, status=status)
    state = state_of(job, new_pod("a", "Succeeded", index=1), new_pod("b", "Failed", index=1))
    assert state.succeeded_indexes == index_set(succeeded)
    assert state.failed_indexes == index_set(failed)
    plan = track_pods(state, state.job.status, None)
    assert plan.status.completed_indexes == str(state.succeeded_indexes)


def test_last_failed_pod_of_an_index_is_replaced():
    job = new_job(completionMode="Indexed", completions=5, backoffLimitPerIndex=9)
    pods = [new_pod(f"p{count}", "Failed", index=1, annotations={COUNT: str(count)}) for count in (0, 2, 1)]
    assert state_of(job, *pods).replaced == {1: pods[1]}
    assert state_of(job, *pods, new_pod("active", index=1)).replaced == {}


def test_fail_index_action_fails_the_index_at_once():
    rule = {"action": "FailIndex", "onPodConditions": [{"type": "X", "status": "True"}]}
    job = new_job(completionMode="Indexed", completions=5, backoffLimitPerIndex=9, podFailurePolicy={"rules": [rule]})
    state = state_of(job, new_pod("p", "Failed", index=3, conditions=[{"type": "X", "status": "True"}]))
    assert state.failed_indexes == index_set({3})


@pytest.mark.parametrize(("seconds", "reason"), [(9, None), (10, "DeadlineExceeded")])
def test_time_alone_ends_a_job_at_its_deadline(seconds, reason):
    job = new_job(activeDeadlineSeconds=10, status={"startTime": at(0)})
    state = observe(job, (), untracked=(), backoff=BackoffRecord(), now=NOW + timedelta(seconds=seconds))
    assert (state.target and state.target.reason) == reason
