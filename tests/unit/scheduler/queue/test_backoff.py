"""BackoffQueue: durations, order and completion of backoff."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.scheduler.queue.backoff import BackoffQueue

SECOND = 1_000_000_000


def backoff_queue(now_ns: int = 0, *, pops_early: bool = True) -> BackoffQueue:
    return BackoffQueue(
        lambda queued: -queued.pod.spec.priority,
        lambda: now_ns,
        initial_backoff_seconds=1.0,
        max_backoff_seconds=10.0,
        pops_early=pops_early,
    )


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        pytest.param({}, 0, id="no failure"),
        pytest.param({"unschedulable_count": 1}, 1, id="initial"),
        pytest.param({"unschedulable_count": 3}, 4, id="doubled"),
        pytest.param({"unschedulable_count": 100}, 10, id="maximum"),
        pytest.param({"unschedulable_count": 9, "consecutive_errors_count": 2}, 2, id="errors take precedence"),
    ],
)
def test_backoff_duration(fields: dict[str, int], seconds: int, queued: Any) -> None:
    assert backoff_queue().backoff_ns(queued("p", **fields)) == seconds * SECOND


def test_pods_of_one_second_are_ordered_by_priority(queued: Any) -> None:
    queue = backoff_queue(now_ns=5 * SECOND)
    rejected = {"unschedulable_plugins": {"X"}, "unschedulable_count": 1}
    queue.put(queued("early", 1, timestamp_ns=100, **rejected))
    queue.put(queued("high", 9, timestamp_ns=900, **rejected))
    queue.put(queued("pending", 99, timestamp_ns=9 * SECOND, **rejected))
    assert [pod.key for pod in queue.pop_completed()] == ["n/high", "n/early"]
    assert "n/pending" in queue


def test_pods_after_errors_are_not_popped_early(queued: Any) -> None:
    queue = backoff_queue()
    queue.put(queued("error", consecutive_errors_count=1))
    assert queue.pop() is None
    queue.put(queued("rejected", unschedulable_plugins={"X"}, unschedulable_count=1))
    popped = queue.pop()
    assert popped is not None
    assert popped.key == "n/rejected"
    assert len(queue) == 1


def test_exact_expiration_is_the_order_without_early_pops(queued: Any) -> None:
    queue = backoff_queue(now_ns=SECOND + 901, pops_early=False)
    rejected = {"unschedulable_plugins": {"X"}, "unschedulable_count": 1}
    queue.put(queued("high", 9, timestamp_ns=900, **rejected))
    queue.put(queued("early", 1, timestamp_ns=100, **rejected))
    queue.put(queued("pending", 99, timestamp_ns=901, **rejected))
    assert [pod.key for pod in queue.pop_completed()] == ["n/early", "n/high"]
