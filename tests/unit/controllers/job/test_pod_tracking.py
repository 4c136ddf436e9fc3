"""Which Pods are counted, and which lose the finalizer."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubeloop.controllers.job.conditions import new_condition
from kubeloop.controllers.job.pod_tracking import MAX_UNCOUNTED_PODS, TrackingPlan, count_released, track_pods
from kubeloop.kube.objects.api_types import JobStatus, UncountedTerminatedPods
from support.objects.job_objects import NOW, new_job, new_pod, state_of

FAILURE = new_condition("FailureTarget", "r", "m", NOW)
SUCCESS = new_condition("SuccessCriteriaMet", "r", "m", NOW)


def track(job, *pods, target=None) -> TrackingPlan:
    state = state_of(job, *pods)
    return track_pods(state, state.job.status, target)


def released(plan: TrackingPlan) -> list[str]:
    return [pod.metadata.name for pod in plan.release]


def uncounted(plan: TrackingPlan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    lists = plan.status.uncounted_terminated_pods
    assert lists is not None
    return lists.succeeded, lists.failed


def test_finished_pods_are_listed_before_they_are_released():
    plan = track(new_job(), new_pod("a", "Succeeded"), new_pod("b", "Failed"), new_pod("c"))
    assert released(plan) == ["a", "b"]
    assert uncounted(plan) == (("uid-a",), ("uid-b",))
    assert (plan.status.succeeded, plan.status.failed) == (0, 0)


def test_pods_without_the_finalizer_are_counted():
    lists = UncountedTerminatedPods(succeeded=("a", "b"), failed=("c", "d"))
    status = JobStatus(succeeded=3, failed=1, uncounted_terminated_pods=lists)
    counted = count_released(status, {"b", "d"})
    assert (counted.succeeded, counted.failed) == (4, 2)
    assert counted.uncounted_terminated_pods == UncountedTerminatedPods(succeeded=("b",), failed=("d",))


@pytest.mark.parametrize(
    ("target", "failed"),
    [pytest.param(FAILURE, ("uid-a",), id="failed job"), pytest.param(SUCCESS, (), id="succeeded job")],
)
def test_running_pods_of_an_ended_job_are_released(target, failed):
    plan = track(new_job(podReplacementPolicy="Failed"), new_pod("a"), target=target)
    assert released(plan) == ["a"]
    assert uncounted(plan) == ((), failed)


def test_pods_of_a_deleted_job_are_released_uncounted():
    plan = track(new_job(deleted=True), new_pod("a"))
    assert released(plan) == ["a"]
    assert uncounted(plan) == ((), ())


def test_succeeded_indexes_are_counted_at_once():
    job = new_job(completionMode="Indexed", completions=9, status={"completedIndexes": "0", "succeeded": 1})
    pods = [new_pod("b", "Succeeded", index=3), new_pod("a", "Succeeded", index=1), new_pod("c", "Succeeded")]
    plan = track(job, *pods)
    assert released(plan) == ["c", "a", "b"]
    assert (plan.status.completed_indexes, plan.status.succeeded) == ("0,1,3", 3)
    assert uncounted(plan) == ((), ())


def test_replaced_pod_stays_until_its_replacement_exists():
    job = new_job(completionMode="Indexed", completions=9, backoffLimitPerIndex=2)
    failed = new_pod("a", "Failed", index=1)
    assert released(track(job, failed)) == []
    plan = track(job, failed, new_pod("b", index=1))
    assert released(plan) == ["a"]
    assert uncounted(plan) == ((), ("uid-a",))
    assert plan.status.failed_indexes == ""


def test_ignored_failures_are_released_uncounted():
    rule = {"action": "Ignore", "onPodConditions": [{"type": "X", "status": "True"}]}
    pod = new_pod("a", "Failed", conditions=[{"type": "X", "status": "True"}])
    plan = track(new_job(podFailurePolicy={"rules": [rule]}), pod)
    assert released(plan) == ["a"]
    assert uncounted(plan) == ((), ())


def test_one_sync_lists_a_limited_number_of_pods():
    pods = [new_pod(f"p{number}", "Succeeded") for number in range(MAX_UNCOUNTED_PODS + 1)]
    plan = track(new_job(), *pods)
    assert len(plan.release) == MAX_UNCOUNTED_PODS
    assert not plan.complete
    assert track(new_job(), *pods[:3]).complete


def test_pod_counted_as_failed_does_not_succeed_later():
    status = {"uncountedTerminatedPods": {"failed": ["uid-a"]}}
    plan = track(new_job(status=status), new_pod("a", "Succeeded"))
    assert uncounted(plan) == ((), ("uid-a",))


def test_every_pod_is_counted_once_whatever_finalizers_remain():
    plan = track(new_job(), *(new_pod(f"p{number}", "Succeeded") for number in range(4)))
    half = count_released(plan.status, {"uid-p0", "uid-p1"})
    assert half.succeeded == 2
    assert count_released(replace(half), ()).succeeded == 4


@pytest.mark.parametrize(
    ("completed", "index", "indexes"),
    [
        pytest.param("", 8, "8", id="last index"),
        pytest.param("", 9, "", id="index beyond completions"),
        pytest.param("1", 1, "1", id="index counted before"),
        pytest.param("", None, "", id="without index"),
    ],
)
def test_success_counts_for_a_valid_new_index(completed, index, indexes):
    status = {"completedIndexes": completed, "succeeded": len(completed)}
    job = new_job(completionMode="Indexed", completions=9, status=status)
    plan = track(job, new_pod("a", "Succeeded", index=index))
    assert released(plan) == ["a"]
    assert plan.status.completed_indexes or indexes == ""
    assert plan.status.succeeded == (1 if indexes else 0)
    assert uncounted(plan) == ((), ())
