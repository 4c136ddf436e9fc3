"""TaintToleration: filters out nodes with untolerated taints; scores nodes by untolerated PreferNoSchedule taints.

Source: plugins/tainttoleration of v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from kubeloop.kube.objects.api_types import Node, Pod, Taint, Toleration
from kubeloop.kube.objects.taints_and_tolerations import PREFER_NO_SCHEDULE, find_untolerated_taint, is_tolerated
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import NODE, POD, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extension_points import RowFilterResult, RowStatuses
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import (
    default_normalize,
    explain_as,
    explain_rows_as,
    on_event,
    select_rows,
    unresolvable,
)
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows, Scores
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import NoArgs


class TaintToleration:
    name = "TaintToleration"
    row_local = True
    ignores_other_pods = True
    no_op_points = ("preScore",)  # kube-scheduler's plugin selects the pod's tolerations there

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._rejection = unresolvable(self.name, "node(s) had untolerated taint(s)")
        comparison_operators = handle.feature_gates.enabled("TaintTolerationComparisonOperators")
        self._find_untolerated_taint = partial(find_untolerated_taint, comparison_operators=comparison_operators)
        self._is_tolerated = partial(is_tolerated, comparison_operators=comparison_operators)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        untolerated = node.node and self._find_untolerated_taint(node.node.spec.taints, pod.pod.spec.tolerations)
        return None if untolerated is None else self._rejection

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        tolerations = pod.pod.spec.tolerations
        taints = snapshot.columns.taints
        codes = select_rows(taints.codes, rows, snapshot)  # [K]
        tolerated = np.zeros(len(taints.values), np.bool_)  # one per set of taints
        for code in taints.used(codes):
            tolerated[code] = self._find_untolerated_taint(taints.values[code], tolerations) is None
        return RowFilterResult(tolerated[codes], explain_as(self._rejection))

    def explain_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowStatuses:
        return explain_rows_as(self._rejection, rows)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the number of PreferNoSchedule taints that the pod does not tolerate."""
        return (
            0
            if node.node is None
            else self._count_untolerated_prefer_no_schedule(node.node.spec.taints, pod.pod.spec.tolerations)
        )

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        tolerations = pod.pod.spec.tolerations
        taints = snapshot.columns.taints
        codes = select_rows(taints.codes, rows, snapshot)  # [K]
        counts = np.zeros(len(taints.values), np.int64)
        for code in taints.used(codes):
            counts[code] = self._count_untolerated_prefer_no_schedule(taints.values[code], tolerations)
        return counts[codes]

    def _count_untolerated_prefer_no_schedule(self, taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> int:
        return sum(
            taint.effect == PREFER_NO_SCHEDULE and not self._is_tolerated(taint, tolerations) for taint in taints
        )

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, scores: Scores
    ) -> Scores:
        return default_normalize(scores, reverse=True)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            on_event(NODE, ActionType.ADD | ActionType.UPDATE_NODE_TAINT, self._after_node_change),
            on_event(POD, ActionType.UPDATE_POD_TOLERATION, self._after_pod_change),
        )

    def _after_node_change(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        if new is None:
            return Hint.SKIP
        tolerations = pod.spec.tolerations
        untolerated_before = old is None or self._find_untolerated_taint(old.spec.taints, tolerations) is not None
        tolerated_now = self._find_untolerated_taint(new.spec.taints, tolerations) is None
        return Hint.QUEUE if untolerated_before and tolerated_now else Hint.SKIP

    def _after_pod_change(self, pod: Pod, old: Any, new: Any) -> Hint:
        """Return QUEUE for a change of this pod's own tolerations; other pods' changes cannot help it."""
        return Hint.QUEUE if new is not None and new.metadata.uid == pod.metadata.uid else Hint.SKIP
