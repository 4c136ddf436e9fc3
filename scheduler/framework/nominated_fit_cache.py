"""Where a pod does not fit beside the pods that are nominated to a node, kept from cycle to cycle.

While room is made for a thousand pods, a thousand nodes have nominations, and every pod must be judged beside them.
Where filters only sum up what pods request, a verdict holds until the node or its nominations change. Axis: N nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kubeloop.scheduler.api.extension_points import RowStatuses
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.cache.node_info import NodeInfo

if TYPE_CHECKING:
    from kubeloop.scheduler.cache.snapshot import Snapshot
    from kubeloop.scheduler.queue.nominator import Nominator

_FITS = -1


class NominatedFitCache:
    """For the pods of one class and priority. codes int [N]: places in `statuses`, or _FITS."""

    __slots__ = ("_code_of", "_codes", "_generation", "_layout", "_seen", "_statuses", "_unjudged")

    def __init__(self) -> None:
        self._layout = self._generation = self._seen = -1
        self._codes = np.full(0, _FITS, np.intp)
        self._statuses: list[Status] = []
        self._code_of: dict[int, int] = {}  # by identity of the status, which `_statuses` keeps
        self._unjudged: set[str] = set()

    def rejections(
        self,
        snapshot: Snapshot,
        nominator: Nominator,
        own_node: str,
        judge: Callable[[NodeInfo], Status | None],
    ) -> tuple[Rows, RowStatuses]:
        """The rows where the pod does not fit, and why. judge(node) is asked where anything has changed.

        own_node: the one the pod itself is nominated to, which is not judged here: for other pods it is another case.
        What `judge` raises passes through, and is asked again the next time.
        """
        names = nominator.changed_since(self._seen)
        if self._layout != snapshot.layout or names is None or len(self._statuses) > len(snapshot) + 64:
            self._codes = np.full(len(snapshot), _FITS, np.intp)
            self._statuses, self._code_of = [], {}
            self._unjudged = set(nominator.nodes())
        else:
            infos, nominated = snapshot.node_infos, nominator.nodes()
            changed = snapshot.changed_since(self._generation).tolist() if nominated else []
            self._unjudged |= names
            self._unjudged |= {infos[row].name for row in changed} & nominated
        self._layout, self._generation, self._seen = snapshot.layout, snapshot.generation, nominator.version
        for name in sorted(self._unjudged):
            row = snapshot.row_of.get(name)
            if row is None:
                self._unjudged.discard(name)
                continue
            self._codes[row] = _FITS
            if name != own_node:
                status = judge(snapshot.node_infos[row])
                if status is not None:
                    self._codes[row] = self._code(status)
                self._unjudged.discard(name)
        rows = np.flatnonzero(self._codes != _FITS)
        return rows, RowStatuses(self._codes[rows], self._statuses)

    def _code(self, status: Status) -> int:
        code = self._code_of.get(id(status))
        if code is None:
            code = self._code_of[id(status)] = len(self._statuses)
            self._statuses.append(status)
        return code
