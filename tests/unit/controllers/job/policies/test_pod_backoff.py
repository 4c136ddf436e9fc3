"""Back-off before failed Pods are replaced."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kubeloop.controllers.job.policies.pod_backoff import (
    BackoffRecord,
    finished_time,
    remaining_seconds,
    updated_record,
)
from support.objects.job_objects import NOW, at, new_pod


def ended(name: str, seconds: float):
    return new_pod(
        "p", "Failed", containerStatuses=[{"name": name, "state": {"terminated": {"finishedAt": at(seconds)}}}]
    )


@pytest.mark.parametrize(("failures", "seconds"), [(0, 0), (1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (1000, 600)])
def test_backoff_doubles_up_to_ten_minutes(failures, seconds):
    assert remaining_seconds(BackoffRecord(failures, NOW), NOW) == seconds


def test_backoff_counts_from_the_last_failure():
    record = BackoffRecord(2, NOW)
    assert remaining_seconds(record, NOW + timedelta(seconds=15)) == 5
    assert remaining_seconds(record, NOW + timedelta(seconds=25)) == 0


@pytest.mark.parametrize(
    ("succeeded", "failed", "record"),
    [
        pytest.param([], [], BackoffRecord(2, NOW), id="nothing new"),
        pytest.param([], [5, 3], BackoffRecord(4, NOW + timedelta(seconds=5)), id="more failures"),
        pytest.param([1], [], BackoffRecord(), id="a success resets"),
        pytest.param([4], [5, 3, 6], BackoffRecord(2, NOW + timedelta(seconds=6)), id="failures after a success"),
        pytest.param([4], [3, 4], BackoffRecord(), id="failures before a success"),
    ],
)
def test_updated_record(succeeded, failed, record):
    pods = [[ended("c", seconds) for seconds in group] for group in (succeeded, failed)]
    assert updated_record(BackoffRecord(2, NOW), *pods) == record


def test_finished_time_is_that_of_the_last_container_and_sidecar():
    def status(name, seconds):
        return {"name": name, "state": {"terminated": {"finishedAt": at(seconds)}}}

    pod = new_pod(
        "p", "Failed", containerStatuses=[status("a", 1), status("b", 3)], initContainerStatuses=[status("i", 9)]
    )
    assert finished_time(pod) == NOW + timedelta(seconds=3)


def test_finished_time_without_ended_containers():
    running = {"name": "c", "state": {"running": {}}}
    not_ready = {"type": "Ready", "status": "False", "lastTransitionTime": at(-7)}
    assert finished_time(new_pod("p", containerStatuses=[running], conditions=[not_ready])) == NOW - timedelta(
        seconds=7
    )
    assert finished_time(new_pod("p", containerStatuses=[running], deleted=True)) == NOW
    assert finished_time(new_pod("p")) == NOW - timedelta(seconds=100)
