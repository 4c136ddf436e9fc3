"""NodeName: spec.nodeName of a pending pod names the only node. Source: plugins/nodename of v1.36."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import NODE, ActionType, ClusterEventWithHint
from kubeloop.scheduler.api.extension_points import RowReasons, RowVerdicts
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import FEW_ROWS, always, on, same_reason, unresolvable, verdicts_one_by_one
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.config.plugin_args import NoArgs

if TYPE_CHECKING:
    from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
    from kubeloop.scheduler.cache.snapshot import Snapshot


class NodeName:
    name = "NodeName"
    row_local = True
    sees_no_pods = True

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._rejection = unresolvable(self.name, "node(s) didn't match the requested node name")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        wanted = pod.pod.spec.node_name
        return None if not wanted or wanted == node.name else self._rejection

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowVerdicts:
        if len(rows) <= FEW_ROWS:
            return verdicts_one_by_one(self.filter, state, pod, snapshot, rows)
        wanted = pod.pod.spec.node_name
        if not wanted:
            return RowVerdicts(np.ones(len(rows), np.bool_), always(self._rejection))
        return RowVerdicts(rows == snapshot.row_of.get(wanted, -1), always(self._rejection))

    def explain_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowReasons:
        return same_reason(self._rejection, rows)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (on(NODE, ActionType.ADD),)
