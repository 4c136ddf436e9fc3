"""Pod (anti-)affinity terms matched against pods: terms of the incoming pod, and terms of existing pods.

Axes: N nodes, D values of one topology key. Source: plugins/interpodaffinity of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.selectors.pod_affinity import AffinityTerm
from kubeloop.kube.selectors.selectors import Selector
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.cache.columns import LabelColumn
from kubeloop.scheduler.cache.pod_classes import AffinityClass, LabelClass
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.versioned_cache import VersionedCache

Int64 = npt.NDArray[np.int64]

_MAX_CLASSES = 1024  # of incoming pods, whose topology keys are cached


class IncomingTerm(msgspec.Struct, frozen=True):
    """A term of the incoming pod with its namespaces resolved; `namespaces` None means all namespaces."""

    selector: Selector
    namespaces: frozenset[str] | None
    topology_key: str
    weight: int

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return (self.namespaces is None or namespace in self.namespaces) and self.selector.matches(labels)


def incoming_terms(terms: Iterable[AffinityTerm], listers: Listers) -> tuple[IncomingTerm, ...]:
    """Return `terms` with the namespaces that their namespace selectors select now."""
    return tuple(
        IncomingTerm(term.selector, _namespaces(term, listers), term.topology_key, term.weight) for term in terms
    )


def _namespaces(term: AffinityTerm, listers: Listers) -> frozenset[str] | None:
    selector = term.namespace_selector
    if selector.nothing:
        return term.namespaces
    if selector.empty:
        return None
    selected = (namespace for namespace in listers.namespaces.list() if selector.matches(namespace.metadata.labels))
    return term.namespaces.union(namespace.metadata.name for namespace in selected)


def all_select(terms: tuple[IncomingTerm, ...], namespace: str, labels: Mapping[str, str]) -> bool:
    """Return True if all terms select a pod with this namespace and these labels; False if there are no terms."""
    return bool(terms) and all(term.selects(namespace, labels) for term in terms)


class TopologyPairSums:
    """A sum per topology pair (key and value): int64 [D] per key, 0 for values without a matching term or pod."""

    __slots__ = ("_columns", "_numbers")

    def __init__(self) -> None:
        self._columns: dict[str, LabelColumn] = {}
        self._numbers: dict[str, Int64] = {}

    def clone(self) -> TopologyPairSums:
        twin = TopologyPairSums()
        twin._columns = dict(self._columns)
        twin._numbers = {key: numbers.copy() for key, numbers in self._numbers.items()}
        return twin

    def add_nodes(self, column: LabelColumn, per_node: Int64) -> None:
        """Add per-node numbers [N] to the pairs of the nodes. Nodes without the label belong to no pair."""
        sums = column.sums(per_node)
        previous = self._numbers.get(column.key)
        self._columns[column.key] = column
        self._numbers[column.key] = sums if previous is None else previous + sums

    def add(self, column: LabelColumn, labels: Mapping[str, str], number: int) -> None:
        """Add `number` to the pair of a node with these labels."""
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

    def sum_of(self, key: str, labels: Mapping[str, str]) -> int | None:
        """Return the sum of the pair that a node with these labels belongs to; None if it lacks the label."""
        value = labels.get(key)
        if value is None:
            return None
        column = self._columns.get(key)
        code = None if column is None else column.code_of.get(value)
        return 0 if code is None else int(self._numbers[key][code])

    def per_node(self, key: str, absent: int) -> Int64 | None:
        """Return the sums of `key` per node [N], `absent` for nodes without the label; None if all sums are 0."""
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
"""Returns the terms of a class of existing pods that are counted, each with its weight."""


def incoming_per_node(snapshot: Snapshot, kind: str, terms: tuple[IncomingTerm, ...], key: str) -> Int64:
    """Return the sum of term weights over the pods that the terms with topology key `key` select, per node [N].

    A weight of 0 counts as 1. `kind`: "per_term" adds up the terms one by one; "all_terms" counts, with weight 1, the
    pods that all terms select.
    """
    if kind == "all_terms":
        return snapshot.columns.pods.weighted(
            ("all_terms", terms), lambda pod_class: 1 if all_select(terms, pod_class.namespace, pod_class.labels) else 0
        )
    counted = tuple(term for term in terms if term.topology_key == key)

    def weight(pod_class: LabelClass) -> int:
        return sum(term.weight or 1 for term in counted if term.selects(pod_class.namespace, pod_class.labels))

    return snapshot.columns.pods.weighted(("per_term", counted), weight)


class ExistingTerms:
    """Terms of existing pods, matched against incoming pods; `weigh` picks the terms of a class of pods.

    kind: identifies `weigh` in the snapshot's cache, which all users of the snapshot share: equal kinds must weigh
    alike.
    """

    def __init__(self, kind: str, weigh: Weigh) -> None:
        self._kind = kind
        self._weigh = weigh
        self._keys: VersionedCache[int, frozenset[str]] = VersionedCache(_MAX_CLASSES)  # by class of incoming pods

    def per_node(self, snapshot: Snapshot, pod: Pod, namespace_labels: Mapping[str, str]) -> dict[str, Int64]:
        """Return by topology key the sum of the weights of the terms that select `pod`, over each node's pods [N]."""
        affinities = snapshot.columns.affinities
        if not affinities.rows_of:
            return {}
        number = snapshot.classes.number(pod)
        context = tuple(sorted(namespace_labels.items()))
        weights_by_key: dict[str, Int64] = {}
        keys = self._keys.get(
            number, (affinities.membership, context), lambda: self._matching_keys(snapshot, pod, namespace_labels)
        )
        for key in keys:
            weights_key = (self._kind, number, context, key)
            weights_by_key[key] = affinities.weighted(weights_key, self._weight(pod, namespace_labels, key))
        return weights_by_key

    def _matching_keys(self, snapshot: Snapshot, pod: Pod, namespace_labels: Mapping[str, str]) -> frozenset[str]:
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        return frozenset(
            term.topology_key
            for pod_class in snapshot.columns.affinities.rows_of
            for term, _ in self._weigh(pod_class)
            if term.matches(namespace, labels, namespace_labels)
        )

    def _weight(self, pod: Pod, namespace_labels: Mapping[str, str], key: str) -> Callable[[AffinityClass], int]:
        namespace, labels = pod.metadata.namespace, pod.metadata.labels

        def weight(pod_class: AffinityClass) -> int:
            return sum(
                weight
                for term, weight in self._weigh(pod_class)
                if term.topology_key == key and term.matches(namespace, labels, namespace_labels)
            )

        return weight
