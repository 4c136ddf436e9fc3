"""Pods in an order (queue/pod_heap.py)."""

from __future__ import annotations

import pytest

from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.queue.pod_heap import PodHeap
from support.scheduling.plugin_cluster import make_pod


def queued(name: str, priority: int = 0) -> QueuedPodInfo:
    return QueuedPodInfo(PodInfo(make_pod(name, priority=priority)), 0)


def heap_of(*pods: QueuedPodInfo) -> PodHeap:
    heap = PodHeap(lambda queued: -(queued.pod.spec.priority or 0))
    for pod in pods:
        heap.put(pod)
    return heap


def popped(heap: PodHeap) -> list[str]:
    names = []
    while (pod := heap.pop()) is not None:
        names.append(pod.pod.metadata.name)
    return names


def test_pods_are_popped_by_sort_key_then_in_the_order_added():
    heap = heap_of(queued("low", 1), queued("first", 5), queued("second", 5), queued("high", 9))
    assert [pod.pod.metadata.name for pod in heap.sorted()] == ["high", "first", "second", "low"]
    assert len(heap) == 4
    assert popped(heap) == ["high", "first", "second", "low"]
    assert (len(heap), heap.peek(), list(heap)) == (0, None, [])


def test_pod_with_another_sort_key_moves():
    first, second = queued("first", 5), queued("second", 5)
    heap = heap_of(first, second)
    second.update(make_pod("second", priority=6))
    heap.put(second)
    heap.check()
    assert popped(heap) == ["second", "first"]


def test_pod_with_the_same_sort_key_stays_in_place():
    first, second = queued("first"), queued("second")
    heap = heap_of(first, second)
    heap.put(first)
    assert popped(heap) == ["first", "second"]


def test_another_pod_of_the_same_key_replaces_the_old_one():
    old, new = queued("a"), queued("a")
    heap = heap_of(old, queued("b"))
    heap.put(new)
    heap.check()
    assert heap.get("default/a") is new
    assert popped(heap) == ["b", "a"]


def test_discarded_pod_is_not_in_the_heap():
    first, second = queued("first", 5), queued("second")
    heap = heap_of(first, second)
    assert heap.discard("default/first") is first
    assert heap.discard("default/first") is None
    assert "default/first" not in heap
    assert "default/second" in heap
    assert heap.peek() is second
    heap.check()


@pytest.mark.parametrize("count", [64, 65, 200])
def test_order_survives_the_removal_of_most_pods(count):
    heap = heap_of(*(queued(f"p{number}", priority=number * 7 % count) for number in range(count)))
    by_priority = [pod.pod.metadata.name for pod in heap.sorted()]
    kept = by_priority[::9]
    for name in by_priority:
        if name not in kept:
            assert heap.discard(f"default/{name}") is not None
            heap.check()
    assert popped(heap) == kept


def test_outdated_entries_are_removed_when_they_are_the_most():
    heap = heap_of(*(queued(f"p{number:03}", priority=number) for number in range(100)))
    for number in range(51):
        heap.discard(f"default/p{99 - number:03}")
    assert len(heap._heap) == len(heap) == 49
    heap.discard("default/p000")
    assert len(heap._heap) == 49, "a small heap is not rebuilt"
