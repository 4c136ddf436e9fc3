"""Spread scores from a table, for constraints on hosts and on one kind of larger domain: the default ones.

As nodes have few pods of a class and there are few domains, few different scores occur. Each is computed once, in an
array [pods on the node, domain], and every node knows its place in it. Between two pods of a class few nodes change
theirs. Axes: N nodes, K rows, D domains, T places of the table: the pods on a node times D + 1 (the last domain stands
for nodes without the label).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kubeloop.scheduler.cache.arrays import Mask, Rows
from kubeloop.scheduler.cache.columns import ABSENT, LabelColumn

if TYPE_CHECKING:
    from kubeloop.scheduler.cache.snapshot import Snapshot

Int64 = npt.NDArray[np.int64]
PlaceNumbers = npt.NDArray[np.int16]

MAX_PLACES = 2048
_KEPT_BYTES, _KEPT_CLASSES = 32 << 20, 4096  # of places: those of 3,000 classes at 5,000 nodes
_FEW_ROWS = 32  # looked at faster one by one


class Places:
    """Where each node stands in the table of one class of pods.

    of_node int16 [N], as there are many classes; nodes int64 [T]: how many stand there; width: D + 1; highest: the
    most pods on one node that the table has room for.
    """

    __slots__ = ("generation", "highest", "nodes", "of_node", "stamp", "width")

    def __init__(self, stamp: Hashable, column: LabelColumn, pods: Int64, most: int, generation: int) -> None:
        self.stamp = stamp
        self.generation = generation
        self.width = len(column.values) + 1
        self.highest = most
        codes = column.wide_codes
        places = pods * self.width
        places += codes if column.everywhere else np.where(codes == ABSENT, self.width - 1, codes)
        self.of_node: PlaceNumbers = places.astype(np.int16)
        self.nodes: Int64 = np.bincount(places, minlength=(most + 1) * self.width)

    def follow(self, snapshot: Snapshot, column: LabelColumn, pods: Int64) -> bool:
        """Take over what changed since the last time. False: the table is too small now."""
        rows = snapshot.changed_since(self.generation)
        self.generation = snapshot.generation
        if len(rows) > _FEW_ROWS:
            now = pods[rows]
            if int(now.max()) > self.highest:
                return False
            codes = column.wide_codes[rows]
            places = now * self.width + np.where(codes == ABSENT, self.width - 1, codes)
            before = self.of_node[rows]
            moved = np.flatnonzero(places != before)
            self.of_node[rows] = places
            np.subtract.at(self.nodes, before[moved], 1)
            np.add.at(self.nodes, places[moved], 1)
            return True
        for row in rows.tolist():
            number = int(pods[row])
            if number > self.highest:
                return False
            code = int(column.wide_codes[row])
            place = number * self.width + (self.width - 1 if code == ABSENT else code)
            old = int(self.of_node[row])
            if place != old:
                self.of_node[row] = place
                self.nodes[old] -= 1
                self.nodes[place] += 1
        return True

    def pods_per_domain(self) -> Int64:
        """[D]"""
        pods: Int64 = np.arange(self.highest + 1) @ self.nodes.reshape(-1, self.width)
        return pods[:-1]

    def occurring(self, rows: Rows, snapshot: Snapshot) -> tuple[PlaceNumbers, Mask]:
        """(places of `rows` [K], which places of the table those are [T])"""
        if rows is snapshot.all_rows:
            return self.of_node, self.nodes > 0
        places = self.of_node[rows]
        return places, np.bincount(places, minlength=len(self.nodes)) > 0


class PlacesByClass:
    """The places for the classes seen last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, Places] = OrderedDict()

    def of(self, number: int, what: Hashable, snapshot: Snapshot, column: LabelColumn, pods: Int64) -> Places | None:
        """Those of class `number`, whose pods on each node are `pods` [N]; None: the table would be too large.

        `what` tells apart what may be counted as the pods of a class: it changes with services and controllers.
        """
        stamp = (what, column.key, snapshot.layout, snapshot.columns.node_generation)
        kept = self._kept.get(number)
        if kept is not None and kept.stamp == stamp and kept.follow(snapshot, column, pods):
            self._kept.move_to_end(number)
            return kept
        most = int(pods.max(initial=0)) + 1  # the next pod finds room
        if (most + 1) * (len(column.values) + 1) > MAX_PLACES:
            self._kept.pop(number, None)
            return None
        while len(self._kept) >= min(_KEPT_CLASSES, max(16, _KEPT_BYTES // (2 * len(pods) + 1))):
            self._kept.popitem(last=False)
        made = self._kept[number] = Places(stamp, column, pods, most, snapshot.generation)
        self._kept.move_to_end(number)
        return made
