"""Filters of older schedulers by a pressure condition of the node, per node.

Source: v1.12, pkg/scheduler/algorithm/predicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import NODE, POD, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import on_event, unschedulable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.config.plugin_args import NoArgs


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
