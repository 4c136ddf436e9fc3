"""Table of topology spread scores, for one constraint on hosts and one on a larger domain, as the default constraints.

Nodes have few pods of a class and there are few domains, so that few different scores occur. Each is computed once, in
an array [pods on the node, domain]; each node has the index of its cell. Few nodes change their cell between two pods
of a class. Axes: N nodes, K rows, D domains, T cells of the table. The cell of a node is pods * (D + 1) + domain, where
the last domain is that of nodes without the label.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

import numpy as np
import numpy.typing as npt

from kubeloop.scheduler.cache.arrays import Mask, Rows
from kubeloop.scheduler.cache.columns import ABSENT, LabelColumn
from kubeloop.scheduler.cache.snapshot import Snapshot

Int64 = npt.NDArray[np.int64]
CellIndexes = npt.NDArray[np.int16]

MAX_CELLS = 2048
_CACHE_BYTES, _CACHED_CLASSES = 32 << 20, 2048  # of cell indexes; classes, as many as in the class cache
_FEW_ROWS = 32  # at most this many rows are updated one by one, which is faster


class ScoreTableCells:
    """The table cell of each node, for one class of pods.

    cells_of_nodes: int16 [N], small because there are many classes. nodes_per_cell: int64 [T]. width: D + 1. max_pods:
    the most pods on one node that the table has cells for.
    """

    __slots__ = ("cells_of_nodes", "generation", "max_pods", "nodes_per_cell", "stamp", "width")

    def __init__(self, stamp: Hashable, column: LabelColumn, pods: Int64, max_pods: int, generation: int) -> None:
        self.stamp = stamp
        self.generation = generation
        self.width = len(column.values) + 1
        self.max_pods = max_pods
        codes = column.wide_codes
        cells = pods * self.width
        cells += codes if column.on_all_nodes else np.where(codes == ABSENT, self.width - 1, codes)
        self.cells_of_nodes: CellIndexes = cells.astype(np.int16)
        self.nodes_per_cell: Int64 = np.bincount(cells, minlength=(max_pods + 1) * self.width)

    def update(self, snapshot: Snapshot, column: LabelColumn, pods: Int64) -> bool:
        """Update the rows that changed since the last call. Returns False if the table has become too small."""
        rows = snapshot.changed_since(self.generation)
        self.generation = snapshot.generation
        if len(rows) > _FEW_ROWS:
            new_pods = pods[rows]
            if int(new_pods.max()) > self.max_pods:
                return False
            codes = column.wide_codes[rows]
            cells = new_pods * self.width + np.where(codes == ABSENT, self.width - 1, codes)
            before = self.cells_of_nodes[rows]
            moved = np.flatnonzero(cells != before)
            self.cells_of_nodes[rows] = cells
            np.subtract.at(self.nodes_per_cell, before[moved], 1)
            np.add.at(self.nodes_per_cell, cells[moved], 1)
            return True
        for row in rows.tolist():
            row_pods = int(pods[row])
            if row_pods > self.max_pods:
                return False
            code = int(column.wide_codes[row])
            cell = row_pods * self.width + (self.width - 1 if code == ABSENT else code)
            previous = int(self.cells_of_nodes[row])
            if cell != previous:
                self.cells_of_nodes[row] = cell
                self.nodes_per_cell[previous] -= 1
                self.nodes_per_cell[cell] += 1
        return True

    def pods_per_domain(self) -> Int64:
        """Return the pods per domain: int64 [D]."""
        pods: Int64 = np.arange(self.max_pods + 1) @ self.nodes_per_cell.reshape(-1, self.width)
        return pods[:-1]

    def cells_of(self, rows: Rows, snapshot: Snapshot) -> tuple[CellIndexes, Mask]:
        """Return the cells of `rows` [K] and a mask of the cells that occur among them [T]."""
        if rows is snapshot.all_rows:
            return self.cells_of_nodes, self.nodes_per_cell > 0
        cells = self.cells_of_nodes[rows]
        return cells, np.bincount(cells, minlength=len(self.nodes_per_cell)) > 0


class ScoreTableCellsByClass:
    """The table cells of recently seen pod classes."""

    def __init__(self) -> None:
        self._cached: OrderedDict[int, ScoreTableCells] = OrderedDict()

    def of(
        self, class_number: int, selector: Hashable, snapshot: Snapshot, column: LabelColumn, pods: Int64
    ) -> ScoreTableCells | None:
        """Return the cells of class `class_number` with `pods` [N] on the nodes; None if the table would be too large.

        A cached entry is reused only for the same `selector`, which changes with services and controllers.
        """
        stamp = (selector, column.key, snapshot.layout, snapshot.columns.node_generation)
        cached = self._cached.get(class_number)
        if cached is not None and cached.stamp == stamp and cached.update(snapshot, column, pods):
            self._cached.move_to_end(class_number)
            return cached
        max_pods = int(pods.max(initial=0)) + 1  # with room for the next pod
        if (max_pods + 1) * (len(column.values) + 1) > MAX_CELLS:
            self._cached.pop(class_number, None)
            return None
        while len(self._cached) >= min(_CACHED_CLASSES, max(16, _CACHE_BYTES // (2 * len(pods) + 1))):
            self._cached.popitem(last=False)
        created = self._cached[class_number] = ScoreTableCells(stamp, column, pods, max_pods, snapshot.generation)
        self._cached.move_to_end(class_number)
        return created
