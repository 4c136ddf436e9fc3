"""Plugins of older schedulers that Policy documents still name: SelectorSpread, NodePreferAvoidPods, node pressure.

Most have only the per-node form: Policy documents come with clusters of a size for which that is fast enough.
Sources: v1.20, pkg/scheduler/framework/plugins/{selectorspread,nodepreferavoidpods}; v1.12,
pkg/scheduler/algorithm/predicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.kube.objects.object_fields import controller_of, zone_key
from kubeloop.kube.selectors import Selector
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import NODE, POD, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extension_points import MAX_NODE_SCORE
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import on_event, unschedulable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows, Scores
from kubeloop.scheduler.config.plugin_args import NoArgs
from kubeloop.scheduler.plugins.topology_spread_constraints import default_selector

if TYPE_CHECKING:
    from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
    from kubeloop.scheduler.cache.snapshot import Snapshot

_SELECTOR = "PreScoreSelectorSpread"
_ZONE_WEIGHT = 2.0 / 3.0  # if nodes have zones, spreading over zones counts twice as much as over nodes
_AVOID = "scheduler.alpha.kubernetes.io/preferAvoidPods"


class SelectorSpread:
    """Prefers nodes and zones with few pods of the same services and controller.

    Pods with topology spread constraints of their own are left to PodTopologySpread.
    """

    name = "SelectorSpread"

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._handle = handle

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Status | None:
        state.write(_SELECTOR, default_selector(pod.pod, self._handle.listers))
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the number of matching pods on the node; normalize_scores turns fewer pods into a higher score."""
        if pod.pod.spec.topology_spread_constraints:
            return 0
        selector: Selector = state.read(_SELECTOR)
        if selector.empty:
            return 0
        namespace = pod.pod.metadata.namespace
        return sum(
            other.pod.metadata.namespace == namespace
            and other.pod.metadata.deletion_timestamp is None
            and selector.matches(other.pod.metadata.labels)
            for other in node.pods.values()
        )

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, scores: Scores
    ) -> Scores:
        if pod.pod.spec.topology_spread_constraints:
            return scores
        zones = [_zone(snapshot.node_infos[row]) for row in rows.tolist()]
        counts = scores.tolist()
        in_zone: dict[str, int] = {}
        for zone, count in zip(zones, counts, strict=True):
            if zone:
                in_zone[zone] = in_zone.get(zone, 0) + count
        most, most_in_zone = max(counts, default=0), max(in_zone.values(), default=0)
        normalized = []
        for zone, count in zip(zones, counts, strict=True):
            score = float(MAX_NODE_SCORE)
            if most > 0:
                score = MAX_NODE_SCORE * ((most - count) / most)
            if zone:
                zone_score = float(MAX_NODE_SCORE)
                if most_in_zone > 0:
                    zone_score = MAX_NODE_SCORE * ((most_in_zone - in_zone[zone]) / most_in_zone)
                score = score * (1.0 - _ZONE_WEIGHT) + _ZONE_WEIGHT * zone_score
            normalized.append(int(score))
        return np.array(normalized, np.int64)


def _zone(info: NodeInfo) -> str:
    return zone_key(info.node.metadata.labels) if info.node is not None else ""


class NodePreferAvoidPods:
    """Scores 0 for nodes whose preferAvoidPods annotation lists the pod's controller, 100 for all others."""

    name = "NodePreferAvoidPods"

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        pass

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        owner = controller_of(pod.pod.metadata)
        annotation = node.node.metadata.annotations.get(_AVOID) if node.node is not None else None
        if owner is None or owner.kind not in ("ReplicationController", "ReplicaSet") or annotation is None:
            return MAX_NODE_SCORE
        try:
            entries = msgspec.json.decode(annotation)["preferAvoidPods"]
            controllers = [(avoided_pods["podSignature"].get("podController") or {}) for avoided_pods in entries]
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):  # a malformed annotation is ignored
            return MAX_NODE_SCORE
        avoids = any(
            controller.get("kind") == owner.kind and controller.get("uid") == owner.uid for controller in controllers
        )
        return 0 if avoids else MAX_NODE_SCORE


class _NodePressure:
    """Filters out nodes with a pressure condition; memory pressure only for BestEffort pods."""

    name = ""
    condition = ""
    reason = ""

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._rejection = unschedulable(self.name, self.reason)

    def applies_to(self, pod: Pod) -> bool:
        return True

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if node.node is None or not self._has_pressure(node.node) or not self.applies_to(pod.pod):
            return None
        return self._rejection

    def _has_pressure(self, node: Node) -> bool:
        return any(
            condition.type == self.condition and condition.status == "True" for condition in node.status.conditions
        )

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            on_event(NODE, ActionType.ADD | ActionType.UPDATE_NODE_CONDITION, self._after_node_change),
            on_event(POD, ActionType.UPDATE_POD_SCALE_DOWN),
        )

    def _after_node_change(self, pod: Pod, old: Any, new: Node | None) -> Hint:
        return Hint.QUEUE if new is not None and not self._has_pressure(new) else Hint.SKIP


class NodeMemoryPressure(_NodePressure):
    name = "NodeMemoryPressure"
    condition = "MemoryPressure"
    reason = "node(s) had memory pressure"

    def applies_to(self, pod: Pod) -> bool:
        return is_best_effort(pod)


class NodeDiskPressure(_NodePressure):
    name = "NodeDiskPressure"
    condition = "DiskPressure"
    reason = "node(s) had disk pressure"


class NodePIDPressure(_NodePressure):
    name = "NodePIDPressure"
    condition = "PIDPressure"
    reason = "node(s) had pid pressure"


def is_best_effort(pod: Pod) -> bool:
    """Return True for QoS class BestEffort: no container has CPU or memory requests or limits."""
    return not any(
        name in ("cpu", "memory")
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for name in (*container.resources.requests, *container.resources.limits)
    )
