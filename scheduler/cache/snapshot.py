"""The snapshot: all nodes as rows, in the order of the node tree, as of the start of a scheduling cycle.

The cache provides immutable copies of NodeInfos; the snapshot stores them in row order, and as columns for the array
form of plugins. Only changed rows are written. Axes: N nodes, K rows.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping

import numpy as np

from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.cache.class_counts import reordered_columns
from kubeloop.scheduler.cache.columns import Columns
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.pod_classes import SpecClasses


class Snapshot:
    """All nodes as of the last `update`.

    generation: increases with every update that changed anything; a result that depends on a row is valid until
    `row_generation[row]` exceeds the generation it was computed at. layout: increases when rows are added, removed or
    reordered; row numbers of another layout are invalid. classes: the spec classes of incoming pods.
    """

    def __init__(self, classes: SpecClasses | None = None) -> None:
        self.node_infos: list[NodeInfo] = []
        self.names = np.zeros(0, np.object_)  # [N]
        self.row_of: dict[str, int] = {}
        self.generation = 0
        self.layout = 0
        self.row_generation = np.zeros(0, np.int64)  # [N] generation of the row's last change
        self.all_rows: Rows = np.arange(0)  # [N] 0..N-1, shared and read only
        self.columns = Columns(self)
        self.classes = classes or SpecClasses()
        self._recent: deque[Rows] = deque(maxlen=32)  # rows changed by the last updates of this layout
        self._claims_on: dict[str, frozenset[str]] = {}  # node -> keys of the claims used by its pods
        self._claim_uses: Counter[str] = Counter()  # key of a claim -> number of nodes it is used on; no zeros
        self._assumed: list[tuple[str, NodeInfo]] = []  # UID of each pod of assume_pod, and its node before

    def __len__(self) -> int:
        return len(self.node_infos)

    def get(self, node_name: str) -> NodeInfo | None:
        row = self.row_of.get(node_name)
        return None if row is None else self.node_infos[row]

    def update(self, node_infos: list[NodeInfo] | None, changed: Iterable[NodeInfo]) -> None:
        """Replace `changed` nodes. node_infos: all nodes in order if any was added, removed or reordered, else None."""
        self.generation += 1
        rows = set() if node_infos is None else self._reorder(node_infos)
        for info in changed:
            row = self.row_of.get(info.name)
            if row is not None:  # the node may have been deleted after its change
                self.node_infos[row] = info
                rows.add(row)
        changed_rows = sorted(rows)
        if len(changed_rows) <= _FEW_ROWS:  # numpy's indexing by a list takes as long as some ten assignments
            for row in changed_rows:
                self.row_generation[row] = self.generation
        else:
            self.row_generation[changed_rows] = self.generation
        self._recent.append(np.array(changed_rows, np.intp))
        self.columns.refresh(changed_rows)
        for row in changed_rows:
            info = self.node_infos[row]
            self._update_claims(info.name, info.pvc_ref_counts)

    def _reorder(self, node_infos: list[NodeInfo]) -> set[int]:
        """Replace the order of rows; return the rows that are new or have another NodeInfo."""
        old_row_of, old_infos = self.row_of, self.node_infos
        old_rows = np.array([old_row_of.get(info.name, -1) for info in node_infos], np.intp)  # [N] -1: a new node
        self.node_infos = list(node_infos)
        self.names = np.array([info.name for info in node_infos], np.object_)
        self.row_of = {info.name: row for row, info in enumerate(node_infos)}
        self.layout += 1
        self.all_rows = np.arange(len(node_infos))
        self.all_rows.flags.writeable = False
        self.row_generation = reordered_columns(self.row_generation, old_rows)
        self._recent.clear()
        self.columns.reorder(old_rows)
        for name in old_row_of.keys() - self.row_of.keys():
            self._update_claims(name, {})
        return {
            row
            for row, (old, info) in enumerate(zip(old_rows.tolist(), node_infos, strict=True))
            if old < 0 or old_infos[old] is not info
        }

    def _update_claims(self, name: str, uses: Mapping[str, int]) -> None:
        old = self._claims_on.get(name, _NO_CLAIMS)
        if not uses and not old:
            return
        new = frozenset(uses)
        self._claim_uses.update(new - old)
        for key in old - new:
            self._claim_uses[key] -= 1
            if not self._claim_uses[key]:
                del self._claim_uses[key]
        if new:
            self._claims_on[name] = new
        else:
            del self._claims_on[name]

    def assume_pod(self, pod: PodInfo) -> None:
        """Count a pod on the node of its spec until forget_pod(): the cycle of a pod group tries members in turn.

        Raises KeyError if the node is not in the snapshot. The cache must not update the snapshot meanwhile.
        """
        before = self.node_infos[self.row_of[pod.pod.spec.node_name]]
        after = before.clone()
        after.add_pod(pod)
        self._assumed.append((pod.uid, before))
        self.update(None, (after,))

    def forget_pod(self, uid: str) -> None:
        """Undo the last assume_pod(), which was that of the pod `uid`: pods are forgotten in reverse order."""
        assumed_uid, before = self._assumed[-1]
        if assumed_uid != uid:
            raise ValueError(f"pod {uid} is not the last one that was assumed")
        self._assumed.pop()
        self.update(None, (before,))

    def is_claim_used(self, key: str) -> bool:
        """Return True if any pod on any node uses the claim "namespace/name"."""
        return key in self._claim_uses

    def changed_since(self, generation: int) -> Rows:
        """Return the rows [K], ascending, that changed after `generation` (-1: all), numbered as in this layout."""
        if generation < 0:
            return self.all_rows
        missed = self.generation - generation
        if missed <= 0:
            return _NO_ROWS
        if missed <= len(self._recent):
            if missed == 1:
                return self._recent[-1]
            changed = np.zeros(len(self), np.bool_)
            for back in range(1, missed + 1):
                changed[self._recent[-back]] = True
            return np.flatnonzero(changed)
        return np.flatnonzero(self.row_generation > generation)


_NO_CLAIMS: frozenset[str] = frozenset()
_FEW_ROWS = 8
_NO_ROWS: Rows = np.zeros(0, np.intp)
