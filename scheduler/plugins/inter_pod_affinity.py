"""InterPodAffinity: near to some pods, far from others, as the incoming pod wants and as those that run want it.

Axes: N nodes, K rows. Source: plugins/interpodaffinity of v1.36; float64 and truncation as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.kube.pod_affinity import AffinityTerm
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import NODE, POD, ActionType, ClusterEventWithHint, Hint, HintFunction
from kubeloop.scheduler.api.extension_points import MAX_NODE_SCORE, PreFilterResult, RowFilterResult, RowStatuses
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import (
    failed,
    is_bound_or_nominated,
    on_event,
    select_rows,
    skip,
    unresolvable,
    unschedulable,
)
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Mask, Rows, Scores
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.pod_classes import NO_AFFINITY, AffinityClass, affinity_class
from kubeloop.scheduler.config.plugin_args import InterPodAffinityArgs
from kubeloop.scheduler.plugins.affinity_terms import (
    ExistingTerms,
    IncomingTerm,
    TopologyPairs,
    all_select,
    incoming_per_node,
    incoming_terms,
)

if TYPE_CHECKING:
    from kubeloop.scheduler.cache.node_info import NodeInfo
    from kubeloop.scheduler.cache.snapshot import Snapshot

_REQUIRED = "PreFilterInterPodAffinity"
_PREFERRED = "PreScoreInterPodAffinity"
_NO_LABELS: Mapping[str, str] = {}


class _Required:
    """Required terms in one cycle.

    existing: topology pairs with pods that do not want the incoming pod near. near, away: pairs with pods that its
    affinity (all terms at once) and its anti-affinity (any term) select.
    """

    __slots__ = (
        "affinity",
        "anti_affinity",
        "away",
        "existing",
        "namespace_labels",
        "near",
        "selects_itself",
        "snapshot",
    )

    def __init__(
        self,
        pod: Pod,
        snapshot: Snapshot,
        affinity: tuple[IncomingTerm, ...],
        anti_affinity: tuple[IncomingTerm, ...],
        namespace_labels: Mapping[str, str],
    ) -> None:
        self.snapshot = snapshot
        self.affinity = affinity
        self.anti_affinity = anti_affinity
        self.namespace_labels = namespace_labels
        self.selects_itself = all_select(affinity, pod.metadata.namespace, pod.metadata.labels)
        self.existing = TopologyPairs()
        self.near = TopologyPairs()
        self.away = TopologyPairs()

    def clone(self) -> _Required:
        twin = _Required.__new__(_Required)
        twin.snapshot = self.snapshot
        twin.affinity = self.affinity
        twin.anti_affinity = self.anti_affinity
        twin.namespace_labels = self.namespace_labels
        twin.selects_itself = self.selects_itself
        twin.existing = self.existing.clone()
        twin.near = self.near.clone()
        twin.away = self.away.clone()
        return twin

    def update(self, pod: PodInfo, other: PodInfo, node: NodeInfo, number: int) -> None:
        """`other` came to `node` (number 1) or went (-1)."""
        if node.node is None:
            return
        labels, column = node.node.metadata.labels, self.snapshot.columns.labels
        namespace, own_labels = pod.pod.metadata.namespace, pod.pod.metadata.labels
        for term in other.required_anti_affinity_terms:
            if term.matches(namespace, own_labels, self.namespace_labels):
                self.existing.add(column(term.topology_key), labels, number)
        metadata = other.pod.metadata
        if all_select(self.affinity, metadata.namespace, metadata.labels):
            for key in {term.topology_key for term in self.affinity}:
                self.near.add(column(key), labels, number)
        for away in self.anti_affinity:
            if away.selects(metadata.namespace, metadata.labels):
                self.away.add(column(away.topology_key), labels, number)


class InterPodAffinity:
    name = "InterPodAffinity"

    def __init__(self, args: InterPodAffinityArgs, handle: Handle) -> None:
        self._handle = handle
        self._hard_weight = args.hard_pod_affinity_weight
        self._ignore_existing = args.ignore_preferred_terms_of_existing_pods
        self._not_near = unresolvable(self.name, "node(s) didn't match pod affinity rules")
        self._not_away = unschedulable(self.name, "node(s) didn't match pod anti-affinity rules")
        self._unwanted = unschedulable(self.name, "node(s) didn't satisfy existing pods anti-affinity rules")
        self._existing_anti_affinity = ExistingTerms("anti-affinity", _anti_affinity)
        # What is counted is kept in the snapshot, which other profiles share: hence the weight in the name.
        self._existing_preferences = ExistingTerms(f"preferences/{self._hard_weight}", self._preferences)
        self._existing_mentions = ExistingTerms(f"mentions/{self._hard_weight}", self._mentions)
        self._last_deleted: tuple[Pod | None, AffinityClass] = (None, NO_AFFINITY)

    # --- filter ----------------------------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> tuple[PreFilterResult | None, Status | None]:
        if pod.affinity_error is not None:
            return None, unresolvable(self.name, f"parsing pod: {pod.affinity_error}")
        listers = self._handle.listers
        affinity = incoming_terms(pod.required_affinity_terms, listers)
        anti_affinity = incoming_terms(pod.required_anti_affinity_terms, listers)
        namespace_labels = listers.namespace_labels(pod.pod.metadata.namespace)
        column = snapshot.columns.labels
        required = _Required(pod.pod, snapshot, affinity, anti_affinity, namespace_labels)
        for key, per_node in self._existing_anti_affinity.per_node(snapshot, pod.pod, namespace_labels).items():
            required.existing.add_nodes(column(key), per_node)
        if not affinity and not anti_affinity and required.existing.all_zero:
            return None, skip(self.name)
        for key in {term.topology_key for term in affinity}:
            required.near.add_nodes(column(key), incoming_per_node(snapshot, "all", affinity, key))
        for key in {term.topology_key for term in anti_affinity}:
            required.away.add_nodes(column(key), incoming_per_node(snapshot, "each", anti_affinity, key))
        state.write(_REQUIRED, required)
        return None, None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        required: _Required = state.read(_REQUIRED)
        required.update(pod, added, node, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        required: _Required = state.read(_REQUIRED)
        required.update(pod, removed, node, -1)
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        required: _Required = state.read(_REQUIRED)
        labels = node.node.metadata.labels if node.node is not None else {}
        if required.affinity:
            counts = [required.near.of(term.topology_key, labels) for term in required.affinity]
            if None in counts:
                return self._not_near
            # The first of a series of pods that want to be near each other may go anywhere.
            if not all(count and count > 0 for count in counts) and not (
                required.selects_itself and required.near.all_zero
            ):
                return self._not_near
        for term in required.anti_affinity:
            count = required.away.of(term.topology_key, labels)
            if count is not None and count > 0:
                return self._not_away
        for key in required.existing.keys:
            count = required.existing.of(key, labels)
            if count is not None and count > 0:
                return self._unwanted
        return None

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        required: _Required = state.read(_REQUIRED)
        near = self._near(required, snapshot, rows)
        away = _no_pods_at(required.away, rows, snapshot)
        wanted = _no_pods_at(required.existing, rows, snapshot)

        def explain(index: int) -> Status:
            if not near[index]:
                return self._not_near
            return self._unwanted if away[index] else self._not_away

        return RowFilterResult(near & away & wanted, explain)

    def explain_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowStatuses:
        required: _Required = state.read(_REQUIRED)
        away = _no_pods_at(required.away, rows, snapshot)
        codes = np.where(self._near(required, snapshot, rows), np.where(away, 2, 1), 0)
        return RowStatuses(codes, (self._not_near, self._not_away, self._unwanted))

    @staticmethod
    def _near(required: _Required, snapshot: Snapshot, rows: Rows) -> Mask:
        labelled = np.ones(len(rows), np.bool_)  # [K] nodes with all topology keys
        near = np.ones(len(rows), np.bool_)
        for key in {term.topology_key for term in required.affinity}:
            per_node = required.near.per_node(key, absent=-1)  # [N]
            assert per_node is not None
            pods = select_rows(per_node, rows, snapshot)  # [K]
            labelled &= pods >= 0
            near &= pods > 0
        if required.affinity and required.selects_itself and required.near.all_zero:
            return labelled
        return near

    # --- score -----------------------------------------------------------------------------------------------------

    def _preferences(self, of: AffinityClass) -> Iterator[tuple[AffinityTerm, int]]:
        """What existing pods say about the incoming one, and how much it counts in its score."""
        if self._hard_weight > 0:
            for term in of.required_affinity_terms:
                yield term, self._hard_weight
        for term in of.preferred_affinity_terms:
            yield term, term.weight
        for term in of.preferred_anti_affinity_terms:
            yield term, -term.weight

    def _mentions(self, of: AffinityClass) -> Iterator[tuple[AffinityTerm, int]]:
        """The same terms, each counting 1: preferences can cancel each other out, mentions cannot."""
        for term, _ in self._preferences(of):
            yield term, 1

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Status | None:
        if pod.affinity_error is not None:
            return failed(self.name, f"failed to parse pod: {pod.affinity_error}")
        wants = bool(pod.preferred_affinity_terms or pod.preferred_anti_affinity_terms)
        if self._ignore_existing and not wants:
            return skip(self.name)
        listers = self._handle.listers
        column = snapshot.columns.labels
        scores = TopologyPairs()
        namespace_labels = listers.namespace_labels(pod.pod.metadata.namespace)
        for key, per_node in self._existing_preferences.per_node(snapshot, pod.pod, namespace_labels).items():
            scores.add_nodes(column(key), per_node)
        own = [
            (sign, incoming_terms(terms, listers))
            for sign, terms in ((1, pod.preferred_affinity_terms), (-1, pod.preferred_anti_affinity_terms))
        ]
        for sign, terms in own:
            for key in {term.topology_key for term in terms}:
                scores.add_nodes(column(key), sign * incoming_per_node(snapshot, "each", terms, key))
        if scores.all_zero and not self._mentioned(pod, snapshot, own, namespace_labels):
            return skip(self.name)
        state.write(_PREFERRED, scores)
        return None

    def _mentioned(
        self,
        pod: PodInfo,
        snapshot: Snapshot,
        own: Sequence[tuple[int, tuple[IncomingTerm, ...]]],
        namespace_labels: Mapping[str, str],
    ) -> bool:
        """Does any preferred term select any pod on a node with its topology key, though all cancel out?"""
        mentions = TopologyPairs()
        column = snapshot.columns.labels
        for key, per_node in self._existing_mentions.per_node(snapshot, pod.pod, namespace_labels).items():
            mentions.add_nodes(column(key), per_node)
        for _, terms in own:
            for key in {term.topology_key for term in terms}:
                mentions.add_nodes(column(key), incoming_per_node(snapshot, "each", terms, key))
        return not mentions.all_zero

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        scores: TopologyPairs = state.read(_PREFERRED)
        labels = node.node.metadata.labels if node.node is not None else {}
        return sum(scores.of(key, labels) or 0 for key in scores.keys)

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        scores: TopologyPairs = state.read(_PREFERRED)
        total = np.zeros(len(rows), np.int64)  # [K]
        for key in scores.keys:
            per_node = scores.per_node(key, absent=0)  # [N]
            if per_node is not None:
                total += select_rows(per_node, rows, snapshot)
        return total

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, scores: Scores
    ) -> Scores:
        if len(scores) == 0:
            return scores
        least, most = int(scores.min()), int(scores.max())
        if most == least:
            return np.zeros_like(scores)
        # float64 and this order of operations, as in Go, because the result is truncated
        return (float(MAX_NODE_SCORE) * ((scores - least) / float(most - least))).astype(np.int64)

    # --- hints -----------------------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        of_pods = ActionType.ADD | ActionType.DELETE | ActionType.UPDATE_POD_LABEL
        of_nodes = ActionType.ADD | ActionType.UPDATE_NODE_LABEL
        return (
            on_event(POD, of_pods, _by_pod(self._after_pod_change), self._after_pod_change),
            on_event(NODE, of_nodes, _by_pod(self._after_node_change), self._after_node_change),
        )

    def _after_pod_change(self, info: PodInfo, old: Pod | None, new: Pod | None) -> Hint:
        if new is not None and new.metadata.uid == info.uid:
            return Hint.QUEUE  # with other labels, terms of others may no longer mean it
        if (old is not None and not is_bound_or_nominated(old)) or (new is not None and not is_bound_or_nominated(new)):
            return Hint.SKIP
        terms = _checked(info.affinity_class)
        near, away = terms.required_affinity_terms, terms.required_anti_affinity_terms
        if old is not None and new is not None:
            came_near = not _all_match(near, old) and _all_match(near, new)
            went_away = _all_match(away, old) and not _all_match(away, new)
            return Hint.QUEUE if came_near or went_away else Hint.SKIP
        if new is not None:
            return Hint.QUEUE if _all_match(near, new) else Hint.SKIP
        if old is not None and (_all_match(away, old) or self._minds(old, info.pod)):
            return Hint.QUEUE
        return Hint.SKIP

    def _after_node_change(self, info: PodInfo, old: Node | None, new: Node | None) -> Hint:
        terms = _checked(info.affinity_class)
        if new is None:
            return Hint.SKIP
        for term in terms.required_affinity_terms:
            before, after = _value(old, term), _value(new, term)
            if after is not None and before != after:
                return Hint.QUEUE
        for term in terms.required_anti_affinity_terms:
            before, after = _value(old, term), _value(new, term)
            if old is None or (before is not None and before != after):
                return Hint.QUEUE
        return Hint.SKIP

    def _minds(self, other: Pod, pod: Pod) -> bool:
        """Does the required anti-affinity of `other` select `pod`?"""
        last, terms = self._last_deleted
        if last is not other:  # all waiting pods are asked about one deleted pod in a row
            terms = affinity_class(other)
            self._last_deleted = other, terms
        return _all_match(_checked(terms).required_anti_affinity_terms, pod)


def _by_pod(hint: Callable[[PodInfo, Any, Any], Hint]) -> HintFunction:
    return lambda pod, old, new: hint(PodInfo(pod), old, new)


def _value(node: Node | None, term: AffinityTerm) -> str | None:
    return None if node is None else node.metadata.labels.get(term.topology_key)


def _checked(terms: AffinityClass) -> AffinityClass:
    """Raises what is wrong with a malformed term."""
    if terms.error is not None:
        raise terms.error
    return terms


def _anti_affinity(of: AffinityClass) -> Iterator[tuple[AffinityTerm, int]]:
    for term in of.required_anti_affinity_terms:
        yield term, 1


def _all_match(terms: Sequence[AffinityTerm], pod: Pod) -> bool:
    """As hints judge it: of the namespace of `pod` no labels are known."""
    if not terms:
        return False
    namespace, labels = pod.metadata.namespace, pod.metadata.labels
    for term in terms:  # noqa: SIM110, asked for each waiting pod on each event: a generator costs more than the match
        if not term.matches(namespace, labels, _NO_LABELS):
            return False
    return True


def _no_pods_at(pairs: TopologyPairs, rows: Rows, snapshot: Snapshot) -> Mask:
    """Rows [K] none of whose pairs has a pod."""
    free = np.ones(len(rows), np.bool_)
    for key in pairs.keys:
        per_node = pairs.per_node(key, absent=0)  # [N]
        if per_node is not None:
            free &= select_rows(per_node, rows, snapshot) <= 0
    return free
