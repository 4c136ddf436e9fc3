"""Cache debugger: dump the cache and queue, and compare them with the API server. Read only.

Source: pkg/scheduler/backend/cache/debugger of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.cache.cache import SchedulerCache
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue


@dataclass(frozen=True, slots=True)
class Differences:
    """missed: in the API server, but not in the scheduler; redundant: in the scheduler only. Sorted names."""

    missed_nodes: tuple[str, ...]
    redundant_nodes: tuple[str, ...]
    missed_pods: tuple[str, ...]
    redundant_pods: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.missed_nodes or self.redundant_nodes or self.missed_pods or self.redundant_pods)

    def persisting(self, later: Differences) -> Differences:
        """Return the differences that a later comparison shows, too."""
        return Differences(
            missed_nodes=_common(self.missed_nodes, later.missed_nodes),
            redundant_nodes=_common(self.redundant_nodes, later.redundant_nodes),
            missed_pods=_common(self.missed_pods, later.missed_pods),
            redundant_pods=_common(self.redundant_pods, later.redundant_pods),
        )

    def to_json(self) -> dict[str, list[str]]:
        return {
            "missedNodes": list(self.missed_nodes),
            "redundantNodes": list(self.redundant_nodes),
            "missedPods": list(self.missed_pods),
            "redundantPods": list(self.redundant_pods),
        }


def _common(some: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({*some} & {*others}))


def compare(cache: SchedulerCache, queue: SchedulingQueue, nodes: Set[str], pods: Mapping[str, Pod]) -> Differences:
    """Compare with the names of the nodes and the pods by UID, without terminated ones."""
    cached_nodes = {info.name for info in cache.nodes() if info.node is not None}
    cached = cache.pod_uids()
    redundant = [pod.key for uid in cached - pods.keys() if (pod := cache.get_pod(uid)) is not None]
    missed: list[str] = []
    unknown = pods.keys() - cached
    if unknown:
        queued_uids = {queued.uid for queued in chain.from_iterable(queue.pending_pods())}
        in_flight = set(queue.in_flight.keys())
        missed = [
            pods[uid].key
            for uid in unknown - queued_uids
            if pods[uid].key not in in_flight
            and (pods[uid].spec.node_name or queue.has_profile(pods[uid].spec.scheduler_name))
        ]
    return Differences(
        missed_nodes=tuple(sorted(nodes - cached_nodes)),
        redundant_nodes=tuple(sorted(cached_nodes - nodes)),
        missed_pods=tuple(sorted(missed)),
        redundant_pods=tuple(sorted(redundant)),
    )


@dataclass(frozen=True, slots=True)
class _DumpedNode:
    name: str
    exists: bool
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]
    pods: Sequence[PodInfo]
    nominated: Sequence[str]


class CacheDump:
    """A copy of the cache and queue at one point in time, to be formatted later, in parts."""

    def __init__(self, cache: SchedulerCache, queue: SchedulingQueue) -> None:
        self._assumed = {pod.metadata.uid for pod in cache.assumed_pods()}
        nominated_to = set(queue.nominator.nodes())
        self._nodes = [
            _DumpedNode(
                info.name,
                info.node is not None,
                info.allocatable,  # replaced, never changed, when the node changes
                info.requested.copy(),
                tuple(info.pods.values()),
                [pod.key for pod in queue.nominator.pods_on(info.name)] if info.name in nominated_to else (),
            )
            for info in cache.nodes()
        ]
        pending = queue.pending_pods()
        self._queue = {
            "active": pending.active,
            "backoff": [*pending.backoff, *pending.error_backoff],
            "unschedulable": [queued for queued in pending.unschedulable if not queued.gated],
            "gated": [queued for queued in pending.unschedulable if queued.gated],
        }
        self._in_flight = queue.in_flight.keys()
        self._scheduling_cycle = queue.scheduling_cycle

    def nodes(self) -> Iterator[dict[str, Any]]:
        """Yield the nodes as plain JSON, sorted by name."""
        for node in sorted(self._nodes, key=lambda node: node.name):
            yield {
                "name": node.name,
                "exists": node.exists,
                "allocatable": dict(node.allocatable),
                "requested": {name: amount for name, amount in node.requested.items() if amount},
                "pods": [
                    {
                        "name": pod.key,
                        "uid": pod.uid,
                        "assumed": pod.uid in self._assumed,
                        "requests": dict(pod.requests),
                    }
                    for pod in node.pods
                ],
                "nominatedPods": list(node.nominated),
            }

    def queued(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (queue, pod as plain JSON), in the order the pods of each queue will be popped."""
        for name, pods in self._queue.items():
            for queued in pods:
                yield name, _queued(queued)

    def queue_document(self, queued: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
        """Return the result of queued() as one document, with the pods in flight."""
        document: dict[str, Any] = {name: [] for name in self._queue}
        for name, pod in queued:
            document[name].append(pod)
        return document | {"inFlight": self._in_flight, "schedulingCycle": self._scheduling_cycle}

    def lines(self) -> Iterator[str]:
        """Yield the dump for a log: one line per node and pod."""
        yield "Dump of cached NodeInfo"
        for node in self.nodes():
            gone = "" if node["exists"] else " (gone)"
            yield f"Node name: {node['name']}{gone}, requested {node['requested']}, allocatable {node['allocatable']}"
            for pod in node["pods"]:
                yield f"  pod {pod['name']} uid {pod['uid']}{' assumed' if pod['assumed'] else ''}"
            for name in node["nominatedPods"]:
                yield f"  nominated {name}"
        yield "Dump of scheduling queue"
        for name, pod in self.queued():
            yield f"{name}: {pod['name']} attempts {pod['attempts']} rejected by {pod['rejectedBy']}"
        for name in self._in_flight:
            yield f"in flight: {name}"


def _queued(queued: QueuedPodInfo) -> dict[str, Any]:
    return {
        "name": queued.key,
        "uid": queued.uid,
        "attempts": queued.attempts,
        "rejectedBy": sorted(queued.rejectors),
        **({"gatedBy": queued.gating_plugin} if queued.gated else {}),
    }


def comparison_text(differences: Differences) -> str:
    """Return the comparison for a log: one line per kind of difference."""
    if not differences:
        return "The cache agrees with the API server"
    lines = [f"  {field}: {', '.join(names)}" for field, names in differences.to_json().items() if names]
    return "\n".join(["The cache does not agree with the API server", *lines])
