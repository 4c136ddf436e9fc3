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
from kubeloop.scheduler.queue.nominator import Nominator

_FITS = -1


class NominatedFitCache:
    """Results for pods of one class and priority. codes int [N]: indexes of `_statuses`, or _FITS."""

    __slots__ = ("_code_of", "_codes", "_generation", "_layout", "_pending", "_statuses", "_version")

    def __init__(self) -> None:
        self._layout = self._generation = self._version = -1
        self._codes = np.full(0, _FITS, np.intp)
        self._statuses: list[Status] = []
        self._code_of: dict[int, int] = {}  # by identity of a status in `_statuses`
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
        if self._layout != snapshot.layout or names is None or len(self._statuses) > len(snapshot) + 64:
            self._codes = np.full(len(snapshot), _FITS, np.intp)
            self._statuses, self._code_of = [], {}
            self._pending = set(nominator.nodes())
        else:
            infos, nominated = snapshot.node_infos, nominator.nodes()
            changed = snapshot.changed_since(self._generation).tolist() if nominated else []
            self._pending |= names
            self._pending |= {infos[row].name for row in changed} & nominated
        self._layout, self._generation, self._version = snapshot.layout, snapshot.generation, nominator.version
        changed_rows = {row: name for name in self._pending if (row := snapshot.row_of.get(name)) is not None}
        self._codes[list(changed_rows)] = _FITS
        to_filter = sorted(row for row, name in changed_rows.items() if name != own_node)
        for row, status in zip(to_filter, filter_rows(to_filter), strict=True):
            if status is not None:
                self._codes[row] = self._code(status)
        self._pending &= {own_node}
        rows = np.flatnonzero(self._codes != _FITS)
        return rows, RowStatuses(self._codes[rows], self._statuses)

    def _code(self, status: Status) -> int:
        code = self._code_of.get(id(status))
        if code is None:
            code = self._code_of[id(status)] = len(self._statuses)
            self._statuses.append(status)
        return code
