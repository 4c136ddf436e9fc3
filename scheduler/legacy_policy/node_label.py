"""NodeLabel: filters and scores nodes by the presence or absence of labels, for Policy documents.

Source: v1.20, pkg/scheduler/framework/plugins/nodelabel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import NODE, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extension_points import MAX_NODE_SCORE
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import on_event, unresolvable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.config.plugin_args import NodeLabelArgs


class NodeLabel:
    name = "NodeLabel"

    def __init__(self, args: NodeLabelArgs, handle: Handle) -> None:
        self._args = args
        self._rejection = unresolvable(self.name, "node(s) didn't have the requested labels")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if node.node is None or self._is_feasible(node.node.metadata.labels):
            return None
        return self._rejection

    def _is_feasible(self, labels: Mapping[str, str]) -> bool:
        return all(_conditions(labels, self._args.present_labels, self._args.absent_labels))

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the share of the preferences that the node meets, 0 to 100."""
        labels = node.node.metadata.labels if node.node is not None else {}
        args = self._args
        met = list(_conditions(labels, args.present_labels_preference, args.absent_labels_preference))
        return sum(met) * MAX_NODE_SCORE // len(met) if met else 0

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (on_event(NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL, self._after_node_change),)

    def _after_node_change(self, pod: Pod, old: Any, new: Node | None) -> Hint:
        return Hint.QUEUE if new is not None and self._is_feasible(new.metadata.labels) else Hint.SKIP


def _conditions(labels: Mapping[str, str], present: Iterable[str], absent: Iterable[str]) -> Iterable[bool]:
    yield from (label in labels for label in present)
    yield from (label not in labels for label in absent)
