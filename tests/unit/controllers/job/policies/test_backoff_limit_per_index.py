"""Failed indexes of a Job, and the replacement of their Pods."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kubeloop.controllers.job.policies.backoff_limit_per_index import (
    fails_index,
    failure_annotations,
    replaced_pods,
    seconds_to_replacement,
)
from kubeloop.controllers.job.policies.pod_backoff import finished_time
from kubeloop.kube.objects.api_types import Pod
from support.objects.job_objects import new_job, new_pod

COUNT = "batch.kubernetes.io/job-index-failure-count"
JOB = new_job(completionMode="Indexed", completions=5, parallelism=3, backoffLimitPerIndex=1)


@pytest.mark.parametrize(
    ("phase", "failures", "fails"),
    [("Failed", 0, False), ("Failed", 1, True), ("Failed", 2, True), ("Running", 1, False)],
)
def test_index_fails_above_its_limit(phase, failures, fails):
    assert fails_index(new_pod("p", phase, index=1, annotations={COUNT: str(failures)}), JOB) is fails


def test_only_open_indexes_have_replaced_pods():
    pods = [new_pod("a", "Failed", index=0), new_pod("b", "Failed", index=1), new_pod("c", index=2)]
    assert replaced_pods(pods, JOB, lambda index: index != 0) == {1: pods[1]}


def test_replacement_waits_longer_after_each_failure():
    assert seconds_to_replacement(None, finished_time(new_pod("x", "Failed"))) == 0.0
    waits = []
    for failures in (0, 1, 2):
        pod = new_pod("p", "Failed", index=1, annotations={COUNT: str(failures)})
        finished = finished_time(pod)
        assert finished is not None
        waits.append(seconds_to_replacement(pod, finished))
        assert seconds_to_replacement(pod, finished + timedelta(hours=1)) == 0.0
    assert waits == [10.0, 20.0, 40.0]


def test_failures_of_replaced_pod_are_counted():
    assert failure_annotations(JOB, None) == {COUNT: "0"}
    assert failure_annotations(JOB, new_pod("p", "Failed", index=1, annotations={COUNT: "3"})) == {COUNT: "4"}


def finished_pod(name: str, minute: int, failures: int = 0) -> Pod:
    """Return a failed Pod of index 1 that finished at a minute of the hour."""
    terminated = {"exitCode": 1, "finishedAt": f"2026-01-01T00:{minute:02}:00Z"}
    annotations = {COUNT: str(failures)}
    statuses = [{"name": "c", "state": {"terminated": terminated}}]
    return new_pod(name, "Failed", index=1, annotations=annotations, containerStatuses=statuses)


@pytest.mark.parametrize(
    ("first", "second", "last"),
    [
        pytest.param((1, 0), (2, 0), "second", id="the later one"),
        pytest.param((2, 0), (1, 0), "first", id="the later one comes first"),
        pytest.param((1, 0), (1, 0), "second", id="at the same time"),
        pytest.param((1, 1), (2, 0), "first", id="more failures"),
        pytest.param((1, 0), (2, 1), "second", id="later, and more failures"),
    ],
)
def test_last_failed_pod_of_an_index_is_replaced(first, second, last):
    pods = [finished_pod("first", *first), finished_pod("second", *second)]
    assert replaced_pods(pods, JOB, lambda _index: True)[1].metadata.name == last
