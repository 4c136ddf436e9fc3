"""The scheduler's view of the cluster during one cycle: nodes as rows, in the order of the node tree.

The cache gives NodeInfos (copies that change no more); the snapshot keeps them in row order, and as columns for the
plugins' array forms. Only rows that changed are rewritten. Axes: N nodes, K rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from kubeloop.scheduler.cache.columns import Columns

from kubeloop.scheduler.framework.interface import Rows

if TYPE_CHECKING:
    from kubeloop.scheduler.cache.node_info import NodeInfo


class Snapshot:
    """All nodes as of the last `update`.

    generation: grows with every update that changed anything; a result that depends on a row is valid until
    `row_generation[row]` exceeds the generation it was computed at. layout: grows when rows are added, removed or
    reordered, after which row numbers mean other nodes.
    """

    def __init__(self) -> None:
        self.node_infos: list[NodeInfo] = []
        self.row_of: dict[str, int] = {}
        self.generation = 0
        self.layout = 0
        self.row_generation = np.zeros(0, np.int64)  # [N] generation at which the row changed last
        self.all_rows: Rows = np.arange(0)  # [N] 0..N-1, shared: do not write to it
        self.columns = Columns(self)

    def __len__(self) -> int:
        return len(self.node_infos)

    def get(self, node_name: str) -> NodeInfo | None:
        row = self.row_of.get(node_name)
        return None if row is None else self.node_infos[row]

    def update(self, node_infos: list[NodeInfo] | None, changed: Iterable[NodeInfo]) -> None:
        """Take over `changed` nodes; `node_infos` is the whole list when nodes came, went or changed places."""
        changed_rows: list[int] = []
        self.generation += 1
        if node_infos is not None:
            self._lay_out(node_infos)
        for info in changed:
            row = self.row_of.get(info.name)
            if row is not None:  # a node can change and go before the snapshot is taken
                self.node_infos[row] = info
                changed_rows.append(row)
        self.row_generation[changed_rows] = self.generation
        self.columns.refresh(changed_rows)

    def _lay_out(self, node_infos: list[NodeInfo]) -> None:
        old_rows = np.array([self.row_of.get(info.name, -1) for info in node_infos], np.intp)  # [N] -1: a new node
        self.node_infos = list(node_infos)
        self.row_of = {info.name: row for row, info in enumerate(node_infos)}
        self.layout += 1
        self.all_rows = np.arange(len(node_infos))
        self.all_rows.flags.writeable = False
        self.row_generation = np.full(len(node_infos), self.generation, np.int64)
        self.columns.lay_out(old_rows)

    def changed_since(self, generation: int) -> Rows:
        """Rows [K] that changed after `generation` of the same layout."""
        return np.flatnonzero(self.row_generation > generation)
