"""Conditions that end a Job."""

from __future__ import annotations

import pytest

from kubeloop.controllers.job.conditions import (
    Counts,
    final_condition,
    new_condition,
    seconds_to_deadline,
    target_condition,
    with_condition,
)
from kubeloop.controllers.job.indexes import index_set
from support.objects.job_objects import NOW, at, new_job, new_pod

FAILED_INDEXES = Counts(0, index_set({0}), index_set({1, 2}))


@pytest.mark.parametrize(
    ("spec", "counts", "target"),
    [
        pytest.param({}, Counts(6), None, id="within the backoff limit"),
        pytest.param({}, Counts(7), ("FailureTarget", "BackoffLimitExceeded"), id="above the backoff limit"),
        pytest.param({"activeDeadlineSeconds": 10}, Counts(0), ("FailureTarget", "DeadlineExceeded"), id="deadline"),
        pytest.param({"activeDeadlineSeconds": 11}, Counts(0), None, id="before the deadline"),
        pytest.param({"activeDeadlineSeconds": 5, "suspend": True}, Counts(0), None, id="deadline, suspended"),
        pytest.param(
            {"maxFailedIndexes": 1, "completions": 9},
            FAILED_INDEXES,
            ("FailureTarget", "MaxFailedIndexesExceeded"),
            id="failed indexes",
        ),
        pytest.param({"maxFailedIndexes": 2, "completions": 9}, FAILED_INDEXES, None, id="few failed indexes"),
        pytest.param({"completions": 3}, FAILED_INDEXES, ("FailureTarget", "FailedIndexes"), id="all indexes ended"),
        pytest.param(
            {"completions": 9, "successPolicy": {"rules": [{"succeededCount": 1}]}},
            FAILED_INDEXES,
            ("SuccessCriteriaMet", "SuccessPolicy"),
            id="success policy",
        ),
        pytest.param(
            {"completions": 3, "successPolicy": {"rules": [{"succeededCount": 1}]}},
            FAILED_INDEXES,
            ("FailureTarget", "FailedIndexes"),
            id="failure before success policy",
        ),
    ],
)
def test_target_condition(spec, counts, target):
    condition = target_condition(new_job(status={"startTime": at(-10)}, **spec), [], counts, NOW)
    assert (condition and (condition.type, condition.reason)) == target


@pytest.mark.parametrize(
    ("decided", "target"),
    [
        pytest.param("SuccessCriteriaMet", ("SuccessCriteriaMet", "r"), id="success stands"),
        pytest.param("FailureTarget", ("Failed", "r"), id="failure becomes final"),
    ],
)
def test_earlier_decision_stands(decided, target):
    status = {"conditions": [{"type": decided, "status": "True", "reason": "r"}]}
    condition = target_condition(new_job(status=status), [], Counts(99), NOW)
    assert condition is not None
    assert (condition.type, condition.reason) == target


@pytest.mark.parametrize(("policy", "limit", "restarts", "fails"), [
    ("OnFailure", 3, (1, 1), False), ("OnFailure", 3, (1, 2), True), ("OnFailure", 0, (0, 0), False),
    ("OnFailure", 0, (1, 0), True), ("Never", 0, (9, 9), False),
])  # fmt: skip
def test_restarts_count_towards_the_backoff_limit(policy, limit, restarts, fails):
    init, regular = ([{"name": "c", "restartCount": count}] for count in restarts)
    pod = new_pod("p", containerStatuses=regular, initContainerStatuses=init)
    job = new_job(backoffLimit=limit, template={"spec": {"restartPolicy": policy}})
    assert (target_condition(job, [pod], Counts(0), NOW) is not None) == fails


def test_pod_failure_policy_precedes_the_backoff_limit():
    status = {"name": "c", "state": {"terminated": {"exitCode": 3}}}
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}
    pods = [new_pod("a", containerStatuses=[status]), new_pod("b", "Failed", containerStatuses=[status])]
    condition = target_condition(new_job(podFailurePolicy={"rules": [rule]}), pods, Counts(99), NOW)
    assert condition is not None
    assert (condition.reason, "pod ns/b" in condition.message) == ("PodFailurePolicy", True)


@pytest.mark.parametrize(
    ("target", "final"), [("SuccessCriteriaMet", "Complete"), ("FailureTarget", "Failed"), ("Failed", "Failed")]
)
def test_final_condition(target, final):
    condition = final_condition(new_condition(target, "r", "m", NOW), NOW)
    assert (condition.type, condition.reason, condition.message) == (final, "r", "m")


def test_with_condition_ignores_a_new_false_condition_and_equal_ones():
    suspended = new_condition("Suspended", "a", "", NOW)
    resumed = new_condition("Suspended", "b", "", NOW, status="False")
    assert with_condition((), resumed) == ()
    conditions = (new_condition("X", "", "", NOW), suspended)
    assert with_condition(conditions, new_condition("Suspended", "a", "", NOW)) is conditions
    assert with_condition(conditions, resumed) == (conditions[0], resumed)


def test_deadline_counts_from_the_start():
    job = new_job(activeDeadlineSeconds=60, status={"startTime": at(-20)})
    assert seconds_to_deadline(job, NOW) == 40
    assert seconds_to_deadline(new_job(activeDeadlineSeconds=60), NOW) is None
