"""The snapshot as columns: numpy arrays over all nodes, for the array form of plugins.

Axes: N nodes (rows of the snapshot), R resources ("cpu" in millicores, others in units). Labels are integer codes per
key. Taints, ports and declared features are interned: equal sets have the same code, so that plugins evaluate a rule
once per set. Pods are counted per class and row. Columns of the Node object are written only when that object changed;
columns of label keys and images are created when they are first used.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from kubeloop.kube.objects.api_types import Node, Taint
from kubeloop.kube.selectors.selectors import Selector
from kubeloop.scheduler.cache.class_counts import ClassCounts, RowChanges, reordered_columns
from kubeloop.scheduler.cache.node_info import HostPort, NodeInfo
from kubeloop.scheduler.cache.pod_classes import AffinityClass, LabelClass

Int64 = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

K = TypeVar("K", bound=Hashable)

_MAX_IMAGES = 256  # cached image columns; two int64 per node each
_FEW_VALUES = 32
_SATURATED = 1 << 62  # in place of sums above int64; adding to it does not overflow
ABSENT = -1  # code of a node without the label


class Interned(Generic[K]):
    """One column of interned values. `values[codes[row]]` is the value of a row; code 0 is `empty`."""

    def __init__(self, empty: K) -> None:
        self.values: list[K] = [empty]
        self.codes: Codes = np.zeros(0, np.int32)  # [N]
        self._code_of: dict[K, int] = {empty: 0}

    def set(self, row: int, value: K) -> None:
        code = self._code_of.get(value)
        if code is None:
            code = self._code_of[value] = len(self.values)
            self.values.append(value)
        self.codes[row] = code

    def used(self, codes: Codes) -> Iterable[int]:
        """Return the distinct ones of `codes`; if there are few values, all codes, which is cheaper."""
        return range(len(self.values)) if len(self.values) <= _FEW_VALUES else set(codes.tolist())

    def reorder(self, old_rows: npt.NDArray[np.intp]) -> None:
        self.codes = reordered_columns(self.codes, old_rows)
        self.drop_unused()

    def drop_unused(self) -> None:
        """Renumber the codes when most values are no longer used by any row."""
        if len(self.values) <= 2 * len(self.codes) + 64:
            return
        used, codes = np.unique(np.append(self.codes, 0), return_inverse=True)
        self.values = [self.values[code] for code in used.tolist()]
        self.codes = codes[:-1].astype(np.int32)
        self._code_of = {value: code for code, value in enumerate(self.values)}


class LabelColumn:
    """The values of one label key: codes int32 [N], ABSENT where a node lacks it; values[code] is the text."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._codes: Codes = np.zeros(0, np.int32)
        self.values: list[str] = []
        self.code_of: dict[str, int] = {}
        self._wide: npt.NDArray[np.intp] | None = None
        self._on_all_nodes = False

    @property
    def codes(self) -> Codes:
        return self._codes

    @codes.setter
    def codes(self, codes: Codes) -> None:
        self._codes = codes
        self._wide = None

    @property
    def wide_codes(self) -> npt.NDArray[np.intp]:
        """Return `codes` as intp, the type that numpy indexes by. Read only; a change replaces the array."""
        if self._wide is None:
            self._wide = self._codes.astype(np.intp)
            self._on_all_nodes = bool((self._codes != ABSENT).all())
        return self._wide

    @property
    def on_all_nodes(self) -> bool:
        """True if every node has the label."""
        return len(self.wide_codes) == 0 or self._on_all_nodes

    def set(self, row: int, value: str | None) -> None:
        self._wide = None
        if value is None:
            self._codes[row] = ABSENT
            return
        code = self.code_of.get(value)
        if code is None:
            code = self.code_of[value] = len(self.values)
            self.values.append(value)
        self._codes[row] = code

    def sums(self, per_node: Int64) -> Int64:
        """Return the sum of per_node [N] over the nodes with each value: int64 [number of values]."""
        # float64 weights are exact up to 2^53; ABSENT is -1 and is counted in the first bucket, which is dropped.
        return np.bincount(self.codes + 1, weights=per_node, minlength=len(self.values) + 1)[1:].astype(np.int64)

    def fill(self, nodes: Sequence[Node | None]) -> None:
        self.codes = np.full(len(nodes), ABSENT, np.int32)
        self.values, self.code_of = [], {}
        for row, node in enumerate(nodes):
            value = node.metadata.labels.get(self.key) if node is not None else None
            if value is not None:
                self.set(row, value)


class ImageColumn:
    """One image: sizes int64 [N] in bytes, 0 where a node lacks it; num_nodes int64 [N] as in the NodeInfo.

    on_no_node: no node has had the image since the column was created.
    """

    def __init__(self, name: str, node_infos: Sequence[NodeInfo]) -> None:
        self.name = name
        self.on_no_node = True
        self.present = np.zeros(len(node_infos), np.bool_)  # [N]
        self.sizes = np.zeros(len(node_infos), np.int64)
        self.num_nodes = np.zeros(len(node_infos), np.int64)
        for row, info in enumerate(node_infos):
            self.set(row, info)

    def set(self, row: int, info: NodeInfo) -> None:
        state = info.image_states.get(self.name)
        if state is not None:
            self.on_no_node = False
        elif self.on_no_node:
            return
        self.present[row] = state is not None
        self.sizes[row] = 0 if state is None else state.size
        self.num_nodes[row] = 0 if state is None else state.num_nodes


class PodCounts(ClassCounts[LabelClass]):
    """Counts of pods by label class, with an index by label to find the classes that a selector may select."""

    def __init__(self, changes: RowChanges) -> None:
        super().__init__(changes)
        self._by_label: dict[tuple[str, str, str], dict[LabelClass, None]] = {}  # namespace, key, value

    def _class_added(self, pod_class: LabelClass) -> None:
        for key, value in pod_class.labels.items():
            self._by_label.setdefault((pod_class.namespace, key, value), {})[pod_class] = None

    def _class_removed(self, pod_class: LabelClass) -> None:
        for key, value in pod_class.labels.items():
            classes = self._by_label[pod_class.namespace, key, value]
            del classes[pod_class]
            if not classes:
                del self._by_label[pod_class.namespace, key, value]

    def selection_candidates(self, namespace: str, selector: Selector) -> Iterable[LabelClass]:
        """Return a superset of the classes of `namespace` that `selector` selects."""
        best: Iterable[LabelClass] | None = None
        number = 0
        for requirement in selector.requirements:
            if requirement.operator in ("=", "==", "in") and len(requirement.values) == 1:
                classes_of_value = self._by_label.get((namespace, requirement.key, requirement.values[0]), {})
                if best is None or len(classes_of_value) < number:
                    best, number = classes_of_value, len(classes_of_value)
        return self.rows_of if best is None else best

    def check(self) -> None:
        super().check()
        indexed = {pod_class for classes in self._by_label.values() for pod_class in classes}
        assert indexed == {pod_class for pod_class in self.rows_of if pod_class.labels}


_EMPTY_TAINTS: tuple[Taint, ...] = ()
_NO_PORTS: frozenset[HostPort] = frozenset()
_NO_FEATURES: frozenset[str] = frozenset()


class NodeRows(RowChanges, Protocol):
    """The part of the snapshot that columns are written from. node_infos: the NodeInfo of each row."""

    node_infos: list[NodeInfo]


class Columns:
    """Columns over the rows of one snapshot, which calls `refresh` and `reorder`."""

    def __init__(self, snapshot: NodeRows) -> None:
        self._snapshot = snapshot
        self._nodes: list[Node | None] = []  # the Node object that each row was written from
        self.resource_index: dict[str, int] = {}  # name -> r
        self.allocatable: Int64 = np.zeros((0, 0), np.int64)  # [R, N]
        self.requested: Int64 = np.zeros((0, 0), np.int64)  # [R, N]
        self.non_zero: Int64 = np.zeros((2, 0), np.int64)  # [2, N] millicores and bytes, with defaults
        self.pod_count: Int64 = np.zeros(0, np.int64)  # [N]
        self.unschedulable = np.zeros(0, np.bool_)  # [N] spec.unschedulable
        self.taints: Interned[tuple[Taint, ...]] = Interned(_EMPTY_TAINTS)
        self.used_ports: Interned[frozenset[HostPort]] = Interned(_NO_PORTS)
        self.declared_features: Interned[frozenset[str]] = Interned(_NO_FEATURES)
        self.pods = PodCounts(snapshot)
        self.affinities: ClassCounts[AffinityClass] = ClassCounts(snapshot)  # of pods with (anti-)affinity
        self.node_generation = 0  # increases when labels or taints of a node change, or rows are reordered
        self._labels: dict[str, LabelColumn] = {}
        self._images: dict[str, ImageColumn] = {}
        for name in ("cpu", "memory", "ephemeral-storage", "pods"):
            self.resource(name)

    def resource(self, name: str) -> int:
        """Return the index r of a resource; a new one is added with zeros."""
        index = self.resource_index.get(name)
        if index is None:
            index = self.resource_index[name] = len(self.resource_index)
            zeros = np.zeros((1, self.allocatable.shape[1]), np.int64)
            self.allocatable = np.concatenate((self.allocatable, zeros))
            self.requested = np.concatenate((self.requested, zeros))
        return index

    def labels(self, key: str) -> LabelColumn:
        """Return the column of label `key`; it is updated from now on."""
        column = self._labels.get(key)
        if column is None:
            column = self._labels[key] = LabelColumn(key)
            column.fill([info.node for info in self._snapshot.node_infos])
        return column

    def image(self, name: str) -> ImageColumn:
        """Return the column of image `name`; the most recently used ones are cached."""
        column = self._images.pop(name, None)
        if column is None:
            if len(self._images) >= _MAX_IMAGES:
                del self._images[next(iter(self._images))]
            column = ImageColumn(name, self._snapshot.node_infos)
        self._images[name] = column
        return column

    def reorder(self, old_rows: npt.NDArray[np.intp]) -> None:
        """Reorder rows: row r becomes what old_rows[r] was; -1 is a new row, for which refresh is called next."""
        nodes = self._nodes
        self._nodes = [nodes[old] if old >= 0 else None for old in old_rows.tolist()]
        self.allocatable = reordered_columns(self.allocatable, old_rows)
        self.requested = reordered_columns(self.requested, old_rows)
        self.non_zero = reordered_columns(self.non_zero, old_rows)
        self.pod_count = reordered_columns(self.pod_count, old_rows)
        self.unschedulable = reordered_columns(self.unschedulable, old_rows)
        for interned in (self.taints, self.used_ports, self.declared_features):
            interned.reorder(old_rows)
        self.pods.reorder(old_rows.tolist())
        self.affinities.reorder(old_rows.tolist())
        for column in list(self._labels.values()):
            if len(column.values) > 2 * len(old_rows) + 64:
                del self._labels[column.key]  # mostly values of deleted nodes: created again when needed
            else:
                column.codes = reordered_columns(column.codes, old_rows, ABSENT)
        self._images.clear()
        self.node_generation += 1

    def refresh(self, rows: Sequence[int]) -> None:
        """Write `rows` from the snapshot's NodeInfos."""
        infos = self._snapshot.node_infos
        for row in rows:
            info = infos[row]
            if info.node is not self._nodes[row] and info.node is not None:
                self._refresh_node(row, info, info.node)
            self._refresh_pods(row, info)
            for image in self._images.values():
                image.set(row, info)

    def _refresh_node(self, row: int, info: NodeInfo, node: Node) -> None:
        old, self._nodes[row] = self._nodes[row], node
        index_of = self.resource
        for name in info.allocatable:
            index_of(name)
        self.allocatable[:, row] = [info.allocatable.get(name, 0) for name in self.resource_index]
        self.unschedulable[row] = node.spec.unschedulable
        self.taints.set(row, tuple(_without_time_added(taint) for taint in node.spec.taints))
        self.declared_features.set(row, frozenset(node.status.declared_features))
        if old is None or old.spec.taints != node.spec.taints:
            self.node_generation += 1
        if old is None or old.metadata.labels != node.metadata.labels:
            self.node_generation += 1
            labels = node.metadata.labels
            for key, column in self._labels.items():
                column.set(row, labels.get(key))

    def _refresh_pods(self, row: int, info: NodeInfo) -> None:
        requested = info.requested
        if not self.resource_index.keys() >= requested.keys():
            for name in requested:
                self.resource(name)
        values = [requested.get(name, 0) for name in self.resource_index]
        try:
            self.requested[:, row] = values
            self.non_zero[:, row] = info.non_zero_milli_cpu, info.non_zero_memory
        except OverflowError:  # the sum of requests exceeds int64: the node is full
            self.requested[:, row] = [min(amount, _SATURATED) for amount in values]
            self.non_zero[:, row] = min(info.non_zero_milli_cpu, _SATURATED), min(info.non_zero_memory, _SATURATED)
        self.pod_count[row] = len(info.pods)
        if info.used_ports or self.used_ports.codes[row]:
            self.used_ports.set(row, frozenset(info.used_ports))
            self.used_ports.drop_unused()
        self.pods.set_row(row, info.label_counts)
        if info.affinity_counts or self.affinities.by_row[row]:
            self.affinities.set_row(row, info.affinity_counts)


def _without_time_added(taint: Taint) -> Taint:
    return taint if taint.time_added is None else Taint(key=taint.key, value=taint.value, effect=taint.effect)
