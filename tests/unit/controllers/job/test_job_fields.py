"""Fields of Jobs and their Pods."""

from __future__ import annotations

import pytest

from kubeloop.controllers.job.job_fields import (
    completion_index,
    external_manager,
    index_failure_count,
    is_failed,
    replaces_only_failed_pods,
    valid_index,
)
from support.objects.job_objects import new_job, new_pod

INDEX = "batch.kubernetes.io/job-completion-index"
COUNT = "batch.kubernetes.io/job-index-failure-count"


@pytest.mark.parametrize(("text", "index"), [("3", 3), ("+3", 3), ("-1", None), ("x", None), ("", None), ("1_0", None)])
def test_completion_index(text, index):
    assert completion_index(new_pod("p", annotations={INDEX: text})) == index


def test_index_above_completions_is_not_valid():
    job = new_job(completions=3, completionMode="Indexed")
    assert [valid_index(new_pod("p", index=index), job) for index in (2, 3)] == [2, None]


@pytest.mark.parametrize(("text", "count"), [("2", 2), ("-2", 0), ("9999999999", 0), ("x", 0)])
def test_index_failure_count(text, count):
    assert index_failure_count(new_pod("p", annotations={COUNT: text})) == count


@pytest.mark.parametrize(
    ("spec", "phase", "failed"),
    [
        pytest.param({}, "Failed", True, id="failed"),
        pytest.param({}, "Running", True, id="deleted"),
        pytest.param({}, "Succeeded", False, id="deleted after its success"),
        pytest.param({"podReplacementPolicy": "Failed"}, "Running", False, id="deleted, only failed are replaced"),
        pytest.param({"podFailurePolicy": {"rules": []}}, "Running", False, id="deleted, with a failure policy"),
    ],
)
def test_deleted_pod_counts_as_failed(spec, phase, failed):
    assert is_failed(new_pod("p", phase, deleted=True), new_job(**spec)) == failed


def test_failure_policy_implies_replacement_of_failed_pods_only():
    assert replaces_only_failed_pods(new_job(podFailurePolicy={"rules": []}, podReplacementPolicy="Failed"))
    assert not replaces_only_failed_pods(new_job(podReplacementPolicy="TerminatingOrFailed"))


@pytest.mark.parametrize(
    ("manager", "external"), [(None, None), ("kubernetes.io/job-controller", None), ("a.io/b", "a.io/b")]
)
def test_external_manager(manager, external):
    assert external_manager(new_job(managedBy=manager)) == external
