"""PodHeap: order, replacement and removal by key."""

from __future__ import annotations

from typing import Any

from kubeloop.scheduler.queue.heap import PodHeap


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
