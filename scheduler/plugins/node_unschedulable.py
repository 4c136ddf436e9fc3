"""NodeUnschedulable: rejects cordoned nodes (spec.unschedulable). Source: plugins/nodeunschedulable of v1.36."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kubeloop.kube.objects.api_types import Node, Pod, Taint
from kubeloop.kube.objects.taints_and_tolerations import is_tolerated
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import NODE, POD, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extension_points import RowFilterResult, RowStatuses
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import explain_as, explain_rows_as, on_event, select_rows, unresolvable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import NoArgs

_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable:
    name = "NodeUnschedulable"
    row_local = True
    ignores_other_pods = True

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._rejection = unresolvable(self.name, "node(s) were unschedulable")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if node.node is None or not node.node.spec.unschedulable or is_tolerated(_TAINT, pod.pod.spec.tolerations):
            return None
        return self._rejection

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        unschedulable = select_rows(snapshot.columns.unschedulable, rows, snapshot)  # [K]
        if is_tolerated(_TAINT, pod.pod.spec.tolerations):
            return RowFilterResult(np.ones(len(rows), np.bool_), explain_as(self._rejection))
        return RowFilterResult(~unschedulable, explain_as(self._rejection))

    def explain_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowStatuses:
        return explain_rows_as(self._rejection, rows)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            on_event(NODE, ActionType.ADD | ActionType.UPDATE_NODE_TAINT, self._after_node_change),
            on_event(POD, ActionType.UPDATE_POD_TOLERATION, self._after_pod_change),
        )

    def _after_node_change(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        if new is None:
            return Hint.SKIP
        was_unschedulable = old is None or old.spec.unschedulable
        return Hint.QUEUE if was_unschedulable and not new.spec.unschedulable else Hint.SKIP

    def _after_pod_change(self, pod: Pod, old: Any, new: Any) -> Hint:
        if new is not None and new.metadata.uid == pod.metadata.uid and is_tolerated(_TAINT, new.spec.tolerations):
            return Hint.QUEUE
        return Hint.SKIP
