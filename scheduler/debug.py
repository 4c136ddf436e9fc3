"""For operators: what the scheduler holds, and whether that is what the API server has.

Source of the comparison: pkg/scheduler/backend/cache/debugger of v1.36. Looks only; changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kubeloop.kube.objects import Node, Pod
from kubeloop.scheduler.cache.cache import Cache
from kubeloop.scheduler.event_handlers import is_terminated
from kubeloop.scheduler.queue.queued_pod import QueuedPodInfo
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue


@dataclass(frozen=True, slots=True)
class Differences:
    """missed: known to the API server and not to the scheduler; redundant: the other way round. Sorted names."""

    missed_nodes: tuple[str, ...]
    redundant_nodes: tuple[str, ...]
    missed_pods: tuple[str, ...]
    redundant_pods: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.missed_nodes or self.redundant_nodes or self.missed_pods or self.redundant_pods)

    def persisting(self, later: Differences) -> Differences:
        """Those that a later comparison shows, too."""
        return Differences(
            missed_nodes=_both(self.missed_nodes, later.missed_nodes),
            redundant_nodes=_both(self.redundant_nodes, later.redundant_nodes),
            missed_pods=_both(self.missed_pods, later.missed_pods),
            redundant_pods=_both(self.redundant_pods, later.redundant_pods),
        )

    def to_json(self) -> dict[str, list[str]]:
        return {
            "missedNodes": list(self.missed_nodes),
            "redundantNodes": list(self.redundant_nodes),
            "missedPods": list(self.missed_pods),
            "redundantPods": list(self.redundant_pods),
        }


def _both(some: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({*some} & {*others}))


def compare(cache: Cache, queue: SchedulingQueue, nodes: Iterable[Node], pods: Iterable[Pod]) -> Differences:
    """The cache and queue against what the API server (or an informer) has.

    Pods of other schedulers that are not bound are nobody's here, and not missed.
    """
    known_nodes = {info.name for info in cache.nodes() if info.node is not None}
    there = {node.metadata.name for node in nodes}
    cached = cache.pods()
    waiting = {queued.uid for queued in _all_waiting(queue)}
    in_flight = set(queue.in_flight_keys())
    actual = {pod.metadata.uid: pod for pod in pods if not is_terminated(pod)}
    missed = [
        pod.key
        for uid, pod in actual.items()
        if uid not in cached and uid not in waiting and pod.key not in in_flight and _is_ours(pod, queue)
    ]
    return Differences(
        missed_nodes=tuple(sorted(there - known_nodes)),
        redundant_nodes=tuple(sorted(known_nodes - there)),
        missed_pods=tuple(sorted(missed)),
        redundant_pods=tuple(sorted(pod.key for uid, pod in cached.items() if uid not in actual)),
    )


def _is_ours(pod: Pod, queue: SchedulingQueue) -> bool:
    return bool(pod.spec.node_name) or queue.serves(pod.spec.scheduler_name)


def _all_waiting(queue: SchedulingQueue) -> Iterable[QueuedPodInfo]:
    yield from queue.active_pods()
    yield from queue.backoff_pods()
    yield from queue.error_backoff_pods()
    yield from queue.unschedulable_pods()


def dump(cache: Cache, queue: SchedulingQueue) -> dict[str, Any]:
    """Everything the scheduler holds, as plain JSON."""
    assumed = {pod.metadata.uid for pod in cache.assumed_pods()}
    return {
        "nodes": [
            {
                "name": info.name,
                "exists": info.node is not None,
                "allocatable": dict(info.allocatable),
                "requested": {name: amount for name, amount in info.requested.items() if amount},
                "pods": [
                    {"name": pod.key, "uid": pod.uid, "assumed": pod.uid in assumed, "requests": dict(pod.requests)}
                    for pod in info.pods.values()
                ],
                "nominatedPods": [pod.key for pod in queue.nominator.pods_on(info.name)],
            }
            for info in sorted(cache.nodes(), key=lambda info: info.name)
        ],
        "queue": {
            "active": [_queued(each) for each in queue.active_pods()],
            "backoff": [_queued(each) for each in (*queue.backoff_pods(), *queue.error_backoff_pods())],
            "unschedulable": [_queued(each) for each in queue.unschedulable_pods() if not each.gated],
            "gated": [_queued(each) for each in queue.unschedulable_pods() if each.gated],
            "inFlight": queue.in_flight_keys(),
            "schedulingCycle": queue.scheduling_cycle,
        },
    }


def _queued(queued: QueuedPodInfo) -> dict[str, Any]:
    return {
        "name": queued.key,
        "uid": queued.uid,
        "attempts": queued.attempts,
        "rejectedBy": sorted(queued.rejectors),
        **({"gatedBy": queued.gating_plugin} if queued.gated else {}),
    }


def comparison_text(differences: Differences) -> str:
    """The comparison for a log: one line per kind of difference."""
    if not differences:
        return "The cache agrees with the API server"
    lines = [f"  {name}: {', '.join(found)}" for name, found in differences.to_json().items() if found]
    return "\n".join(["The cache does not agree with the API server", *lines])


def dump_text(cache: Cache, queue: SchedulingQueue) -> str:
    """The dump for a log: one line per node and pod."""
    held = dump(cache, queue)
    lines = ["Dump of cached NodeInfo"]
    for node in held["nodes"]:
        gone = "" if node["exists"] else " (gone)"
        lines.append(
            f"Node name: {node['name']}{gone}, requested {node['requested']}, allocatable {node['allocatable']}"
        )
        lines += [f"  pod {pod['name']} uid {pod['uid']}{' assumed' if pod['assumed'] else ''}" for pod in node["pods"]]
        lines += [f"  nominated {name}" for name in node["nominatedPods"]]
    lines.append("Dump of scheduling queue")
    for name in ("active", "backoff", "unschedulable", "gated"):
        lines += [
            f"{name}: {pod['name']} attempts {pod['attempts']} rejected by {pod['rejectedBy']}"
            for pod in held["queue"][name]
        ]
    lines += [f"in flight: {name}" for name in held["queue"]["inFlight"]]
    return "\n".join(lines)
