"""Rejections by the pods nominated to a node, kept between scheduling cycles.

While preemption makes room for a thousand pods, a thousand nodes have nominations, and each pod must also fit with
those. If the filters only read sums of requests, a result is valid until the node or its nominations change.
Axis: N nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kubeloop.scheduler.api.extension_points import RowStatuses
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.status_codes import NO_STATUS, StatusCodes
from kubeloop.scheduler.queue.nominator import Nominator


class NominatedFitCache:
    """Results for pods of one class and priority."""

    __slots__ = ("_generation", "_layout", "_pending", "_statuses", "_version")

    def __init__(self) -> None:
        self._layout = self._generation = self._version = -1
        self._statuses = StatusCodes(0)  # rows that fit have none
        self._pending: set[str] = set()

    def rejections(
        self,
        snapshot: Snapshot,
        nominator: Nominator,
        own_node: str,
        filter_rows: Callable[[Sequence[int]], Sequence[Status | None]],
    ) -> tuple[Rows, RowStatuses]:
        """Return the rows that do not fit with nominated pods, and their statuses.

        filter_rows() is called for changed nodes only; what it raises passes through, and the nodes are tried again
        by the next call. own_node: the node that the pod itself is nominated to; it is not cached, as other pods of
        the class are filtered with this pod.
        """
        names = nominator.changed_since(self._version)
        if self._layout != snapshot.layout or names is None or self._statuses.is_full:
            self._statuses = StatusCodes(len(snapshot))
            self._pending = set(nominator.nodes())
        else:
            infos, nominated = snapshot.node_infos, nominator.nodes()
            changed = snapshot.changed_since(self._generation).tolist() if nominated else []
            self._pending |= names
            self._pending |= {infos[row].name for row in changed} & nominated
        self._layout, self._generation, self._version = snapshot.layout, snapshot.generation, nominator.version
        changed_rows = {row: name for name in self._pending if (row := snapshot.row_of.get(name)) is not None}
        codes = self._statuses.codes
        codes[list(changed_rows)] = NO_STATUS
        to_filter = sorted(row for row, name in changed_rows.items() if name != own_node)
        for row, status in zip(to_filter, filter_rows(to_filter), strict=True):
            if status is not None:
                codes[row] = self._statuses.code(status)
        self._pending &= {own_node}
        rows = np.flatnonzero(codes != NO_STATUS)
        return rows, RowStatuses(codes[rows], self._statuses.statuses)
