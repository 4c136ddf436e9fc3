"""ServiceAffinity: keeps the pods of a service on nodes with equal labels, or spreads them, for Policy documents.

Source: v1.20, pkg/scheduler/framework/plugins/serviceaffinity.
"""

from __future__ import annotations

import numpy as np

from kubeloop.kube.objects.api_types import Pod, Service
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import MAX_NODE_SCORE, PreFilterReturn
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import unschedulable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows, Scores
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import ServiceAffinityArgs

_PRE_FILTER = "PreFilterServiceAffinity"
_SERVICE = "PreScoreServiceAffinity"


class _MatchingPods:
    """Pods in the incoming pod's namespace with all of its labels, by UID, with their node; in the order of nodes."""

    def __init__(self, node_of: dict[str, str]) -> None:
        self.node_of = node_of

    def clone(self) -> _MatchingPods:
        return _MatchingPods(dict(self.node_of))


class ServiceAffinity:
    """A plugin without events_to_register: any event may make a rejected pod schedulable."""

    name = "ServiceAffinity"

    def __init__(self, args: ServiceAffinityArgs, handle: Handle) -> None:
        self._labels = args.affinity_labels
        self._spread_over = args.anti_affinity_labels_preference
        self._handle = handle
        self._rejection = unschedulable(self.name, "node(s) didn't match service affinity")

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterReturn:
        matching: dict[str, str] = {}
        if not pod.pod.spec.node_selector.keys() >= set(self._labels) and self._services(pod.pod):
            matching = {
                other.uid: info.name
                for info in snapshot.node_infos
                for other in info.pods.values()
                if _has_labels_of(other.pod, pod.pod)
            }
        state.write(_PRE_FILTER, _MatchingPods(matching))
        return None, None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        if _has_labels_of(added.pod, pod.pod):
            state.read(_PRE_FILTER).node_of[added.pod.metadata.uid] = node.name
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        state.read(_PRE_FILTER).node_of.pop(removed.pod.metadata.uid, None)
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Compare the node's labels with the pod's node selector, and else with the node of the first matching pod."""
        if node.node is None:
            return None
        selector = pod.pod.spec.node_selector
        required = {label: selector[label] for label in self._labels if label in selector}
        if len(required) < len(self._labels):
            first = next(iter(state.read(_PRE_FILTER).node_of.values()), "")
            first_info = self._handle.snapshot.get(first) if first else None
            if first_info is not None and first_info.node is not None:
                there = first_info.node.metadata.labels
                required = {label: there[label] for label in self._labels if label in there} | required
        return None if required.items() <= node.node.metadata.labels.items() else self._rejection

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Status | None:
        state.write(_SERVICE, next(iter(self._services(pod.pod)), None))
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the number of pods of the service on the node; normalize_scores turns fewer into a higher score."""
        service: Service | None = state.read(_SERVICE)
        if service is None:
            return 0
        return sum(
            other.pod.metadata.namespace == pod.pod.metadata.namespace
            and other.pod.metadata.deletion_timestamp is None
            and service.spec.selector.items() <= other.pod.metadata.labels.items()
            for other in node.pods.values()
        )

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, scores: Scores
    ) -> Scores:
        """Return the mean over the labels: 100 for a value without pods of the service, 0 for nodes without it."""
        counts, total = scores.tolist(), int(scores.sum())
        means = [0.0] * len(counts)
        for label in self._spread_over:
            values = [_label(snapshot.node_infos[row], label) for row in rows.tolist()]
            of_value: dict[str | None, int] = {}
            for value, count in zip(values, counts, strict=True):
                of_value[value] = of_value.get(value, 0) + count
            for index, value in enumerate(values):
                if value is not None:
                    share = (total - of_value[value]) / total if total else 1.0
                    means[index] += MAX_NODE_SCORE * share / len(self._spread_over)
        return np.array([int(mean) for mean in means], np.int64)

    def _services(self, pod: Pod) -> list[Service]:
        """Return the services that select the pod, by name."""
        matching = [
            service
            for service in self._handle.listers.services.list()
            if service.metadata.namespace == pod.metadata.namespace
            and service.spec.selector
            and service.spec.selector.items() <= pod.metadata.labels.items()
        ]
        return sorted(matching, key=lambda service: service.metadata.name)


def _has_labels_of(other: Pod, pod: Pod) -> bool:
    return (
        other.metadata.namespace == pod.metadata.namespace
        and pod.metadata.labels.items() <= other.metadata.labels.items()
    )


def _label(info: NodeInfo, label: str) -> str | None:
    return info.node.metadata.labels.get(label) if info.node is not None else None
