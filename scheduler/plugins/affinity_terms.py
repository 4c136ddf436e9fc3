"""Terms of pod (anti-)affinity at work: those of the incoming pod against existing ones, and the other way round.

Axes: N nodes, D values of one topology key. Source: plugins/interpodaffinity of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.pod_affinity import AffinityTerm
from kubeloop.kube.selectors import Selector
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.cache.columns import LabelColumn
from kubeloop.scheduler.cache.pod_classes import AffinityClass, LabelClass

if TYPE_CHECKING:
    from kubeloop.scheduler.cache.snapshot import Snapshot

Int64 = npt.NDArray[np.int64]


class IncomingTerm(msgspec.Struct, frozen=True):
    """A term of the incoming pod whose namespaces are looked up; None stands for all of them."""

    selector: Selector
    namespaces: frozenset[str] | None
    topology_key: str
    weight: int

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return (self.namespaces is None or namespace in self.namespaces) and self.selector.matches(labels)

    def selects_pod(self, pod: Pod) -> bool:
        return self.selects(pod.metadata.namespace, pod.metadata.labels)


def incoming_terms(terms: Iterable[AffinityTerm], listers: Listers) -> tuple[IncomingTerm, ...]:
    """`terms` with the namespaces that their namespace selectors mean now."""
    return tuple(
        IncomingTerm(term.selector, _namespaces(term, listers), term.topology_key, term.weight) for term in terms
    )


def _namespaces(term: AffinityTerm, listers: Listers) -> frozenset[str] | None:
    selector = term.namespace_selector
    if selector.nothing:
        return term.namespaces
    if selector.empty:
        return None
    selected = (each for each in listers.namespaces.list() if selector.matches(each.metadata.labels))
    return term.namespaces.union(each.metadata.name for each in selected)


def all_select(terms: tuple[IncomingTerm, ...], namespace: str, labels: Mapping[str, str]) -> bool:
    """Do all terms select such a pod? Never if there is none."""
    return bool(terms) and all(term.selects(namespace, labels) for term in terms)


class TopologyPairs:
    """A number per topology pair (key and value): int64 [D] per key, 0 for values that nobody mentions."""

    __slots__ = ("_columns", "_numbers")

    def __init__(self) -> None:
        self._columns: dict[str, LabelColumn] = {}
        self._numbers: dict[str, Int64] = {}

    def clone(self) -> TopologyPairs:
        twin = TopologyPairs()
        twin._columns = dict(self._columns)
        twin._numbers = {key: numbers.copy() for key, numbers in self._numbers.items()}
        return twin

    def add_nodes(self, column: LabelColumn, per_node: Int64) -> None:
        """Add numbers of nodes [N] to the pairs they are in. A node without the label is in none."""
        sums = column.sums(per_node)
        known = self._numbers.get(column.key)
        self._columns[column.key] = column
        self._numbers[column.key] = sums if known is None else known + sums

    def add(self, column: LabelColumn, labels: Mapping[str, str], number: int) -> None:
        """Add to the pair of one node with these labels."""
        value = labels.get(column.key)
        code = None if value is None else column.code_of.get(value)
        if code is None or not number:
            return
        numbers = self._numbers.get(column.key)
        if numbers is None or code >= len(numbers):
            grown = np.zeros(len(column.values), np.int64)
            if numbers is not None:
                grown[: len(numbers)] = numbers
            numbers = self._numbers[column.key] = grown
            self._columns[column.key] = column
        numbers[code] += number

    def of(self, key: str, labels: Mapping[str, str]) -> int | None:
        """The number of the pair that a node with these labels is in; None if it lacks the label."""
        value = labels.get(key)
        if value is None:
            return None
        column = self._columns.get(key)
        code = None if column is None else column.code_of.get(value)
        return 0 if code is None else int(self._numbers[key][code])

    def per_node(self, key: str, absent: int) -> Int64 | None:
        """The numbers of `key` as seen by each node [N], `absent` for those without the label; None: all are 0."""
        column = self._columns.get(key)
        if column is None:
            return None
        # The code of a node without the label is -1 and indexes the last element.
        return np.append(self._numbers[key], absent)[column.codes]

    @property
    def keys(self) -> list[str]:
        return list(self._columns)

    @property
    def all_zero(self) -> bool:
        return not any(numbers.any() for numbers in self._numbers.values())


Weigh = Callable[[AffinityClass], Iterable[tuple[AffinityTerm, int]]]
"""The terms of existing pods that count for a question, each with what it weighs."""


def incoming_per_node(snapshot: Snapshot, kind: str, terms: tuple[IncomingTerm, ...], key: str) -> Int64:
    """Sum of the weights of the terms with topology key `key`, over the pods they select, per node [N].

    `terms` weigh what they say, 1 where that is 0; `kind` is "each", or "all" if a pod has to be selected by all.
    """
    if kind == "all":
        return snapshot.columns.pods.weighted(
            ("all", terms), lambda of: 1 if all_select(terms, of.namespace, of.labels) else 0
        )
    counted = tuple(term for term in terms if term.topology_key == key)

    def weight(of: LabelClass) -> int:
        return sum(term.weight or 1 for term in counted if term.selects(of.namespace, of.labels))

    return snapshot.columns.pods.weighted(("each", counted), weight)


class ExistingTerms:
    """Terms of existing pods against one incoming pod after another; `weigh` picks the terms of a class of pods.

    kind: names what is counted, for everybody who shares the snapshot; equal names must weigh alike.
    """

    def __init__(self, kind: str, weigh: Weigh) -> None:
        self._kind = kind
        self._weigh = weigh
        self._keys: dict[int, tuple[object, frozenset[str]]] = {}  # by class of incoming pods

    def per_node(self, snapshot: Snapshot, pod: Pod, namespace_labels: Mapping[str, str]) -> dict[str, Int64]:
        """Topology key -> sum of the weights of the terms that select `pod`, over the pods of each node [N]."""
        affinities = snapshot.columns.affinities
        if not affinities.rows_of:
            return {}
        number = snapshot.classes.number(pod)
        context = tuple(sorted(namespace_labels.items()))
        found: dict[str, Int64] = {}
        for key in self._matching_keys(snapshot, pod, number, namespace_labels, context):
            tally_key = (self._kind, number, context, key)
            found[key] = affinities.weighted(tally_key, self._weight(pod, namespace_labels, key))
        return found

    def _matching_keys(
        self, snapshot: Snapshot, pod: Pod, number: int, namespace_labels: Mapping[str, str], context: object
    ) -> frozenset[str]:
        stamp = (snapshot.columns.affinities.membership, context)
        known = self._keys.get(number)
        if known is not None and known[0] == stamp:
            return known[1]
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        keys = frozenset(
            term.topology_key
            for of in snapshot.columns.affinities.rows_of
            for term, _ in self._weigh(of)
            if term.matches(namespace, labels, namespace_labels)
        )
        if len(self._keys) >= 1024:
            self._keys.clear()
        self._keys[number] = (stamp, keys)
        return keys

    def _weight(self, pod: Pod, namespace_labels: Mapping[str, str], key: str) -> Callable[[AffinityClass], int]:
        namespace, labels = pod.metadata.namespace, pod.metadata.labels

        def weight(of: AffinityClass) -> int:
            return sum(
                weight
                for term, weight in self._weigh(of)
                if term.topology_key == key and term.matches(namespace, labels, namespace_labels)
            )

        return weight
