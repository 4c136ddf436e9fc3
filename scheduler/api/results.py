"""Helpers for what plugins return: statuses, filter results, scores, event registrations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import (
    ActionType,
    ClusterEventWithHint,
    HintFunction,
    PodInfoHintFunction,
    cluster_event,
)
from kubeloop.scheduler.api.extension_points import MAX_NODE_SCORE, RowFilterResult, RowStatuses
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.arrays import Mask, Rows, Scores
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot

Number = TypeVar("Number", bound=np.generic)


def unschedulable(plugin: str, *reasons: str) -> Status:
    return Status(Code.UNSCHEDULABLE, reasons, plugin)


def unresolvable(plugin: str, *reasons: str) -> Status:
    """Return a rejection that preemption cannot resolve."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons, plugin)


def failed(plugin: str, error: BaseException | str) -> Status:
    """Return an error status: the plugin could not decide."""
    return Status(Code.ERROR, (str(error),), plugin, error if isinstance(error, BaseException) else None)


@cache
def skip(plugin: str) -> Status:
    return Status(Code.SKIP, (), plugin)


def explain_rows_as(status: Status, rows: Rows) -> RowStatuses:
    """Return the explain_rows result of a plugin whose only rejection is `status`."""
    return RowStatuses(np.zeros(len(rows), np.intp), (status,))


def explain_as(status: Status) -> Callable[[int], Status]:
    """Return an explain function that always returns `status`."""
    return lambda _index: status


def explained_per_node(
    passed: Mask,
    rows: Rows,
    snapshot: Snapshot,
    filter_: Callable[[CycleState, PodInfo, NodeInfo], Status | None],
    state: CycleState,
    pod: PodInfo,
) -> RowFilterResult:
    """Return a filter result whose statuses are computed on demand by the per-node filter."""

    def explain(index: int) -> Status:
        status = filter_(state, pod, snapshot.node_infos[rows[index]])
        assert status is not None, "the array form rejected a node which the per-node form accepts"
        return status

    return RowFilterResult(passed, explain)


def row_filter_result(statuses: Sequence[Status | None]) -> RowFilterResult:
    """Return a filter result of K rows from the status of each; None: the row passed."""

    def explain(index: int) -> Status:
        status = statuses[index]
        assert status is not None
        return status

    return RowFilterResult(np.array([status is None for status in statuses], np.bool_), explain)


def select_rows(array: npt.NDArray[Number], rows: Rows, snapshot: Snapshot) -> npt.NDArray[Number]:
    """Return array [N] at `rows` [K], read only; the array itself if `rows` are all rows."""
    return array if rows is snapshot.all_rows else array[rows]


def default_normalize(scores: Scores, *, reverse: bool = False) -> Scores:
    """Return scores [K] scaled so that the highest becomes 100 (reverse: 0). Source: DefaultNormalizeScore."""
    highest = int(scores.max(initial=0))
    if highest == 0:
        return np.full_like(scores, MAX_NODE_SCORE) if reverse else scores
    # Go divides towards zero; scores are not negative here.
    proportional = scores * MAX_NODE_SCORE // highest
    return MAX_NODE_SCORE - proportional if reverse else proportional


def on_event(
    resource: str,
    action: ActionType,
    hint: HintFunction | None = None,
    pod_info_hint: PodInfoHintFunction | None = None,
) -> ClusterEventWithHint:
    """Return an entry of events_to_register."""
    return ClusterEventWithHint(cluster_event(resource, action), hint, pod_info_hint)


def is_bound_or_nominated(pod: Pod) -> bool:
    """Return True if the pod takes up room on a node, or room is reserved for it by a nomination."""
    return bool(pod.spec.node_name or pod.status.nominated_node_name)
