"""The active, backoff and unschedulable queues."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubeloop.kube.objects.api_types import PodSchedulingGroup
from kubeloop.scheduler.queue.backoff_queue import BackoffQueue
from kubeloop.scheduler.queue.pod_heap import PodHeap
from kubeloop.scheduler.queue.unschedulable_pods import UnschedulablePods

SECOND = 1_000_000_000


def test_members_of_pod_groups_are_not_popped_early(queued: Any) -> None:
    options: Any = {"initial_backoff_seconds": 1, "max_backoff_seconds": 10}
    for enabled in (True, False):
        backoff = BackoffQueue(by_priority, lambda: 0, **options, pod_groups=enabled)
        member = queued("member", unschedulable_plugins={"NodeName"}, unschedulable_count=1)
        member.update(replace(member.pod, spec=replace(member.pod.spec, scheduling_group=PodSchedulingGroup("g"))))
        backoff.put(member)
        assert (backoff.pop() is member) is not enabled


def by_priority(queued: Any) -> int:
    return -queued.pod.spec.priority


def test_pods_are_popped_in_sort_order(queued: Any) -> None:
    heap = PodHeap(by_priority)
    for name, priority in (("low", 1), ("high", 3), ("first", 2), ("second", 2)):
        heap.put(queued(name, priority))
    assert [pod.key for pod in heap.sorted()] == ["n/high", "n/first", "n/second", "n/low"]
    popped = []
    while (pod := heap.pop()) is not None:
        popped.append(pod.key)
        heap.check()
    assert popped == ["n/high", "n/first", "n/second", "n/low"]


def test_replaced_and_discarded_pods_are_not_popped(queued: Any) -> None:
    heap = PodHeap(by_priority)
    heap.put(queued("a", 3))
    heap.put(queued("b", 2))
    heap.put(queued("a", 1))  # the same key with another priority
    assert len(heap) == 2
    top = heap.peek()
    assert top is not None
    assert top.key == "n/b"
    heap.discard("n/b")
    assert heap.discard("n/b") is None
    assert [pod.key for pod in heap] == ["n/a"]
    heap.check()


def test_outdated_entries_are_removed(queued: Any) -> None:
    heap = PodHeap(by_priority)
    pods = [queued(f"p{number}", number) for number in range(200)]
    for pod in pods:
        heap.put(pod)
    for pod in pods[10:]:
        heap.discard(pod.key)
    assert len(heap._heap) < 100
    assert [pod.key for pod in heap.sorted()] == [f"n/p{number}" for number in reversed(range(10))]


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


def test_pods_are_found_by_rejecting_plugin(queued: Any) -> None:
    pods = UnschedulablePods()
    pods.put(queued("fit", unschedulable_plugins={"NodeResourcesFit"}))
    pods.put(queued("unknown"))
    pods.put(queued("both", unschedulable_plugins={"NodeResourcesFit", "NodeAffinity"}))
    pods.check()
    assert [pod.key for pod in pods.rejected_by(["NodeAffinity"])] == ["n/unknown", "n/both"]
    assert [pod.key for pod in pods.rejected_by(["NodeResourcesFit"])] == ["n/fit", "n/unknown", "n/both"]


def test_plugins_of_a_pod_are_updated(queued: Any) -> None:
    pods, pod = UnschedulablePods(), queued("p", unschedulable_plugins={"NodeResourcesFit"})
    pods.put(pod)
    pod.unschedulable_plugins = {"NodeAffinity"}
    pods.put(pod)
    pods.check()
    assert pods.rejected_by(["NodeResourcesFit"]) == []
    assert pods.rejected_by(["NodeAffinity"]) == [pod]
    assert pods.discard("n/p") is pod
    assert pods.discard("n/p") is None
    pods.check()
