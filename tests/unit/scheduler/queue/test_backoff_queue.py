"""Backoff of pods after a failed attempt (queue/backoff_queue.py)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.queue.backoff_queue import BackoffQueue
from support.scheduling.plugin_cluster import make_pod

SECOND = 1_000_000_000


class Backoff(BackoffQueue):
    """A queue with a settable time whose pods back off for 1 to 10 seconds."""

    def __init__(self, **options: Any) -> None:
        self.now_ns = 100 * SECOND
        super().__init__(
            lambda queued: (-(queued.pod.spec.priority or 0), queued.key),
            lambda: self.now_ns,
            initial_backoff_seconds=1.0,
            max_backoff_seconds=10.0,
            **options,
        )


def failed(
    name: str = "p", *, errors: int = 0, rejections: int = 0, at_seconds: float = 100.0, **spec: Any
) -> QueuedPodInfo:
    queued = QueuedPodInfo(PodInfo(make_pod(name, **spec)), round(at_seconds * SECOND))
    queued.consecutive_errors_count, queued.unschedulable_count = errors, rejections
    if rejections and not errors:
        queued.unschedulable_plugins = {"NodeResourcesFit"}
    return queued


@pytest.mark.parametrize(
    ("errors", "rejections", "seconds"),
    [
        pytest.param(0, 0, 0, id="never failed"),
        pytest.param(0, 1, 1, id="first rejection"),
        pytest.param(0, 2, 2, id="second rejection"),
        pytest.param(0, 4, 8, id="fourth rejection"),
        pytest.param(0, 5, 10, id="at most the maximum"),
        pytest.param(0, 1000, 10, id="many rejections"),
        pytest.param(1, 4, 1, id="errors count before rejections"),
        pytest.param(3, 0, 4, id="third error"),
    ],
)
def test_backoff_by_failures(errors, rejections, seconds):
    assert Backoff().backoff_ns(failed(errors=errors, rejections=rejections)) == seconds * SECOND


@pytest.mark.parametrize(
    ("pops_early", "at_seconds", "expiration"),
    [
        pytest.param(True, 100.0, 101.0, id="whole seconds"),
        pytest.param(True, 100.9, 101.0, id="truncated to a second"),
        pytest.param(False, 100.9, 101.9, id="exact if no pod is popped early"),
    ],
)
def test_expiration_is_truncated_if_pods_are_popped_early(pops_early, at_seconds, expiration):
    queue, pod = Backoff(pops_early=pops_early), failed(rejections=1, at_seconds=at_seconds)
    assert queue.expiration_ns(pod) == round(expiration * SECOND)
    assert pod.backoff_expiration_ns == round(expiration * SECOND)
    assert queue.expiration_ns(failed()) == 0


@pytest.mark.parametrize(
    ("pops_early", "now_seconds", "completed"),
    [
        pytest.param(True, 101.0, False, id="the second in which it expires"),
        pytest.param(True, 101.999, False, id="the end of that second"),
        pytest.param(True, 102.0, True, id="the next second"),
        pytest.param(False, 101.5, False, id="exact: at that time"),
        pytest.param(False, 101.500000001, True, id="exact: after that time"),
    ],
)
def test_backoff_is_completed_after_its_window(pops_early, now_seconds, completed):
    queue, pod = Backoff(pops_early=pops_early), failed(rejections=1, at_seconds=100.5)
    queue.put(pod)
    queue.now_ns = round(now_seconds * SECOND)
    assert queue.is_backing_off(pod) is not completed
    assert queue.pop_completed() == ([pod] if completed else [])
    assert len(queue) == (0 if completed else 1)


def test_pod_without_failures_does_not_back_off():
    queue, pod = Backoff(), failed()
    assert not queue.is_backing_off(pod)
    queue.put(pod)
    assert queue.pop_completed() == [pod]


@pytest.mark.parametrize(
    ("pod_groups", "fields", "early"),
    [
        pytest.param(False, {"rejections": 1}, True, id="rejected"),
        pytest.param(False, {"errors": 1, "rejections": 1}, False, id="error"),
        pytest.param(True, {"rejections": 1, "schedulingGroup": {"podGroupName": "g"}}, False, id="member of a group"),
        pytest.param(False, {"rejections": 1, "schedulingGroup": {"podGroupName": "g"}}, True, id="the gate is off"),
        pytest.param(True, {"rejections": 1}, True, id="no member"),
    ],
)
def test_only_rejected_pods_are_popped_early(pod_groups, fields, early):
    queue, pod = Backoff(pod_groups=pod_groups), failed(**fields)
    queue.put(pod)
    assert queue.get(pod.key) is pod
    assert pod.key in queue
    assert list(queue) == [pod]
    assert (queue.pop() is pod) is early
    assert len(queue) == (0 if early else 1)


def test_pod_is_in_one_part_of_the_queue():
    queue, pod = Backoff(), failed(rejections=1)
    queue.put(pod)
    pod.unschedulable_plugins = set()
    queue.put(pod)
    assert (len(queue), queue.pop()) == (1, None)
    pod.pending_plugins = {"DynamicResources"}
    queue.put(pod)
    assert (len(queue), len(queue.failed)) == (1, 0)
    assert queue.discard(pod.key) is pod
    assert queue.discard(pod.key) is None


def test_pods_that_expire_in_the_same_second_leave_by_priority():
    late, low, high = (
        failed("late", rejections=1, at_seconds=101.0, priority=9),
        failed("low", rejections=1, at_seconds=100.1),
        failed("high", rejections=1, at_seconds=100.8, priority=5),
    )
    by_window, by_time = Backoff(), Backoff(pops_early=False)
    for queue, expected in ((by_window, [high, low, late]), (by_time, [low, high, late])):
        for pod in (late, low, high):
            pod.backoff_expiration_ns = 0
            queue.put(pod)
        queue.now_ns += 10 * SECOND
        assert queue.pop_completed() == expected
