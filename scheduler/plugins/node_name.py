"""NodeName: if spec.nodeName of a pending pod is set, only that node passes. Source: plugins/nodename of v1.36."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import NODE, ActionType, ClusterEventWithHint
from kubeloop.scheduler.api.extension_points import RowFilterResult, RowStatuses
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import explain_as, explain_rows_as, on_event, unresolvable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import NoArgs


class NodeName:
    name = "NodeName"
    row_local = True
    ignores_other_pods = True

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._rejection = unresolvable(self.name, "node(s) didn't match the requested node name")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        node_name = pod.pod.spec.node_name
        return None if not node_name or node_name == node.name else self._rejection

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        node_name = pod.pod.spec.node_name
        if not node_name:
            return RowFilterResult(np.ones(len(rows), np.bool_), explain_as(self._rejection))
        return RowFilterResult(rows == snapshot.row_of.get(node_name, -1), explain_as(self._rejection))

    def explain_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowStatuses:
        return explain_rows_as(self._rejection, rows)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (on_event(NODE, ActionType.ADD),)
