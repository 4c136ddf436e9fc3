"""NodePorts: the host ports that the pod requests must be free on the node. Source: plugins/nodeports of v1.36."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import NODE, POD, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extension_points import PreFilterReturn, RowFilterResult, RowStatuses
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import (
    explain_as,
    explain_rows_as,
    is_bound_or_nominated,
    on_event,
    select_rows,
    skip,
    unschedulable,
)
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.cache.node_info import HostPort, NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import NoArgs

_ALL_ADDRESSES = "0.0.0.0"


class NodePorts:
    name = "NodePorts"
    row_local = True

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._rejection = unschedulable(self.name, "node(s) didn't have free ports for the requested pod ports")

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterReturn:
        return None, None if pod.host_ports else skip(self.name)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return self._rejection if host_ports_conflict(pod.host_ports, node.used_ports) else None

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        requested = pod.host_ports
        used = snapshot.columns.used_ports
        codes = select_rows(used.codes, rows, snapshot)  # [K]
        free = np.zeros(len(used.values), np.bool_)  # one per set of ports
        for code in used.used(codes):
            free[code] = not host_ports_conflict(requested, used.values[code])
        return RowFilterResult(free[codes], explain_as(self._rejection))

    def explain_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowStatuses:
        return explain_rows_as(self._rejection, rows)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            on_event(POD, ActionType.DELETE, self._after_pod_delete),
            on_event(NODE, ActionType.ADD),
        )

    def _after_pod_delete(self, pod: Pod, old: Pod | None, new: Pod | Node | None) -> Hint:
        """Return QUEUE if the deleted pod used a host port that `pod` requests."""
        if old is None or not is_bound_or_nominated(old):
            return Hint.SKIP
        return Hint.QUEUE if host_ports_conflict(PodInfo(pod).host_ports, PodInfo(old).host_ports) else Hint.SKIP


def host_ports_conflict(requested: Collection[HostPort], used: Collection[HostPort]) -> bool:
    """Return True if a port of `requested` collides with one of `used`; the address 0.0.0.0 matches all addresses."""
    if not requested or not used:
        return False
    for address, protocol, port in requested:
        if (address, protocol, port) in used or (_ALL_ADDRESSES, protocol, port) in used:
            return True
        if address == _ALL_ADDRESSES and any(
            used_protocol == protocol and used_port == port for _, used_protocol, used_port in used
        ):
            return True
    return False
