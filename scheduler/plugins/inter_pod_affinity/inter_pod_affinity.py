"""InterPodAffinity: filters and scores nodes by pod (anti-)affinity of the incoming pod and of existing pods.

Axes: N nodes, K rows. Source: plugins/interpodaffinity of v1.36; float64 and truncation as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.kube.selectors.pod_affinity import AffinityTerm
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import NODE, POD, ActionType, ClusterEventWithHint, Hint, HintFunction
from kubeloop.scheduler.api.extension_points import MAX_NODE_SCORE, PreFilterReturn, RowFilterResult, RowStatuses
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
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.pod_classes import NO_AFFINITY, AffinityClass, affinity_class
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import InterPodAffinityArgs
from kubeloop.scheduler.plugins.inter_pod_affinity.terms import (
    ExistingTerms,
    IncomingTerm,
    TopologyPairSums,
    all_select,
    incoming_per_node,
    incoming_terms,
)

_REQUIRED = "PreFilterInterPodAffinity"
_PREFERRED = "PreScoreInterPodAffinity"
_NO_LABELS: Mapping[str, str] = {}


class _PreFilterState:
    """Required terms of the incoming pod and their topology pair sums in one cycle.

    existing_anti_affinity_sums: pods whose required anti-affinity selects the incoming pod. affinity_sums,
    anti_affinity_sums: pods that its affinity (all terms at once) and its anti-affinity (any term) select.
    """

    __slots__ = (
        "affinity",
        "affinity_sums",
        "anti_affinity",
        "anti_affinity_sums",
        "existing_anti_affinity_sums",
        "namespace_labels",
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
        self.existing_anti_affinity_sums = TopologyPairSums()
        self.affinity_sums = TopologyPairSums()
        self.anti_affinity_sums = TopologyPairSums()

    def clone(self) -> _PreFilterState:
        clone = _PreFilterState.__new__(_PreFilterState)
        clone.snapshot = self.snapshot
        clone.affinity = self.affinity
        clone.anti_affinity = self.anti_affinity
        clone.namespace_labels = self.namespace_labels
        clone.selects_itself = self.selects_itself
        clone.existing_anti_affinity_sums = self.existing_anti_affinity_sums.clone()
        clone.affinity_sums = self.affinity_sums.clone()
        clone.anti_affinity_sums = self.anti_affinity_sums.clone()
        return clone

    def update(self, pod: PodInfo, other: PodInfo, node: NodeInfo, number: int) -> None:
        """Account for `other` added to `node` (number 1) or removed from it (-1)."""
        if node.node is None:
            return
        labels, column = node.node.metadata.labels, self.snapshot.columns.labels
        namespace, own_labels = pod.pod.metadata.namespace, pod.pod.metadata.labels
        for term in other.affinity_class.required_anti_affinity_terms:
            if term.matches(namespace, own_labels, self.namespace_labels):
                self.existing_anti_affinity_sums.add(column(term.topology_key), labels, number)
        metadata = other.pod.metadata
        if all_select(self.affinity, metadata.namespace, metadata.labels):
            for key in {term.topology_key for term in self.affinity}:
                self.affinity_sums.add(column(key), labels, number)
        for anti_affinity_sums in self.anti_affinity:
            if anti_affinity_sums.selects(metadata.namespace, metadata.labels):
                self.anti_affinity_sums.add(column(anti_affinity_sums.topology_key), labels, number)


class InterPodAffinity:
    name = "InterPodAffinity"

    def __init__(self, args: InterPodAffinityArgs, handle: Handle) -> None:
        self._handle = handle
        self._hard_weight = args.hard_pod_affinity_weight
        self._ignore_existing = args.ignore_preferred_terms_of_existing_pods
        self._affinity_rejection = unresolvable(self.name, "node(s) didn't match pod affinity rules")
        self._anti_affinity_rejection = unschedulable(self.name, "node(s) didn't match pod anti-affinity rules")
        self._existing_anti_affinity_rejection = unschedulable(
            self.name, "node(s) didn't satisfy existing pods anti-affinity rules"
        )
        self._existing_anti_affinity = ExistingTerms("anti-affinity", _required_anti_affinity)
        # The sums are cached in the snapshot, which other profiles share: hence the weight in the kind.
        self._existing_scored_terms = ExistingTerms(f"scored-terms/{self._hard_weight}", self._scored_terms)
        self._existing_term_counts = ExistingTerms(f"term-counts/{self._hard_weight}", self._unit_weights)
        self._last_deleted: tuple[Pod | None, AffinityClass] = (None, NO_AFFINITY)

    # --- filter ----------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterReturn:
        if pod.affinity_class.error is not None:
            return None, unresolvable(self.name, f"parsing pod: {pod.affinity_class.error}")
        listers = self._handle.listers
        affinity = incoming_terms(pod.affinity_class.required_affinity_terms, listers)
        anti_affinity = incoming_terms(pod.affinity_class.required_anti_affinity_terms, listers)
        namespace_labels = listers.namespace_labels(pod.pod.metadata.namespace)
        existing = self._existing_anti_affinity.per_node(snapshot, pod.pod, namespace_labels)
        if not affinity and not anti_affinity and not existing:
            return None, skip(self.name)
        column = snapshot.columns.labels
        required = _PreFilterState(pod.pod, snapshot, affinity, anti_affinity, namespace_labels)
        for key, per_node in existing.items():
            required.existing_anti_affinity_sums.add_nodes(column(key), per_node)
        if not affinity and not anti_affinity and required.existing_anti_affinity_sums.all_zero:
            return None, skip(self.name)
        for key in {term.topology_key for term in affinity}:
            required.affinity_sums.add_nodes(column(key), incoming_per_node(snapshot, "all_terms", affinity, key))
        for key in {term.topology_key for term in anti_affinity}:
            required.anti_affinity_sums.add_nodes(
                column(key), incoming_per_node(snapshot, "per_term", anti_affinity, key)
            )
        state.write(_REQUIRED, required)
        return None, None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        required: _PreFilterState = state.read(_REQUIRED)
        required.update(pod, added, node, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        required: _PreFilterState = state.read(_REQUIRED)
        required.update(pod, removed, node, -1)
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        required: _PreFilterState = state.read(_REQUIRED)
        labels = node.node.metadata.labels if node.node is not None else {}
        if required.affinity:
            counts = [required.affinity_sums.sum_of(term.topology_key, labels) for term in required.affinity]
            if None in counts:
                return self._affinity_rejection
            # While no pod matches the affinity terms, one that matches its own terms may go to any labelled node.
            if not all(count and count > 0 for count in counts) and not (
                required.selects_itself and required.affinity_sums.all_zero
            ):
                return self._affinity_rejection
        for term in required.anti_affinity:
            count = required.anti_affinity_sums.sum_of(term.topology_key, labels)
            if count is not None and count > 0:
                return self._anti_affinity_rejection
        for key in required.existing_anti_affinity_sums.keys:
            count = required.existing_anti_affinity_sums.sum_of(key, labels)
            if count is not None and count > 0:
                return self._existing_anti_affinity_rejection
        return None

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        required: _PreFilterState = state.read(_REQUIRED)
        matches_affinity = self._affinity_mask(required, snapshot, rows)
        matches_anti_affinity = _no_positive_sums(required.anti_affinity_sums, rows, snapshot)
        allowed_by_existing = _no_positive_sums(required.existing_anti_affinity_sums, rows, snapshot)

        def explain(index: int) -> Status:
            if not matches_affinity[index]:
                return self._affinity_rejection
            return (
                self._existing_anti_affinity_rejection
                if matches_anti_affinity[index]
                else self._anti_affinity_rejection
            )

        return RowFilterResult(matches_affinity & matches_anti_affinity & allowed_by_existing, explain)

    def explain_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowStatuses:
        required: _PreFilterState = state.read(_REQUIRED)
        matches_anti_affinity = _no_positive_sums(required.anti_affinity_sums, rows, snapshot)
        codes = np.where(self._affinity_mask(required, snapshot, rows), np.where(matches_anti_affinity, 2, 1), 0)
        return RowStatuses(
            codes, (self._affinity_rejection, self._anti_affinity_rejection, self._existing_anti_affinity_rejection)
        )

    @staticmethod
    def _affinity_mask(required: _PreFilterState, snapshot: Snapshot, rows: Rows) -> Mask:
        labelled = np.ones(len(rows), np.bool_)  # [K] nodes with all topology keys
        matching = np.ones(len(rows), np.bool_)
        for key in {term.topology_key for term in required.affinity}:
            per_node = required.affinity_sums.per_node(key, absent=-1)  # [N]
            assert per_node is not None
            pods = select_rows(per_node, rows, snapshot)  # [K]
            labelled &= pods >= 0
            matching &= pods > 0
        if required.affinity and required.selects_itself and required.affinity_sums.all_zero:
            return labelled
        return matching

    # --- score -----------------------------------------------------------------------------------------------------

    def _scored_terms(self, pod_class: AffinityClass) -> Iterator[tuple[AffinityTerm, int]]:
        """Yield the terms of existing pods that count in the incoming pod's score, with their weights."""
        if self._hard_weight > 0:
            for term in pod_class.required_affinity_terms:
                yield term, self._hard_weight
        for term in pod_class.preferred_affinity_terms:
            yield term, term.weight
        for term in pod_class.preferred_anti_affinity_terms:
            yield term, -term.weight

    def _unit_weights(self, pod_class: AffinityClass) -> Iterator[tuple[AffinityTerm, int]]:
        """Yield the scored terms with weight 1: weighted sums can cancel each other out, counts cannot."""
        for term, _ in self._scored_terms(pod_class):
            yield term, 1

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Status | None:
        if pod.affinity_class.error is not None:
            return failed(self.name, f"failed to parse pod: {pod.affinity_class.error}")
        has_preferred_terms = bool(
            pod.affinity_class.preferred_affinity_terms or pod.affinity_class.preferred_anti_affinity_terms
        )
        if self._ignore_existing and not has_preferred_terms:
            return skip(self.name)
        listers = self._handle.listers
        column = snapshot.columns.labels
        scores = TopologyPairSums()
        namespace_labels = listers.namespace_labels(pod.pod.metadata.namespace)
        for key, per_node in self._existing_scored_terms.per_node(snapshot, pod.pod, namespace_labels).items():
            scores.add_nodes(column(key), per_node)
        own = [
            (sign, incoming_terms(terms, listers))
            for sign, terms in (
                (1, pod.affinity_class.preferred_affinity_terms),
                (-1, pod.affinity_class.preferred_anti_affinity_terms),
            )
        ]
        for sign, terms in own:
            for key in {term.topology_key for term in terms}:
                scores.add_nodes(column(key), sign * incoming_per_node(snapshot, "per_term", terms, key))
        if scores.all_zero and not self._any_term_matches(pod, snapshot, own, namespace_labels):
            return skip(self.name)
        state.write(_PREFERRED, scores)
        return None

    def _any_term_matches(
        self,
        pod: PodInfo,
        snapshot: Snapshot,
        own: Sequence[tuple[int, tuple[IncomingTerm, ...]]],
        namespace_labels: Mapping[str, str],
    ) -> bool:
        """Return True if any scored term selects a pod on a node with its topology key, even if the weights cancel."""
        term_counts = TopologyPairSums()
        column = snapshot.columns.labels
        for key, per_node in self._existing_term_counts.per_node(snapshot, pod.pod, namespace_labels).items():
            term_counts.add_nodes(column(key), per_node)
        for _, terms in own:
            for key in {term.topology_key for term in terms}:
                term_counts.add_nodes(column(key), incoming_per_node(snapshot, "per_term", terms, key))
        return not term_counts.all_zero

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        scores: TopologyPairSums = state.read(_PREFERRED)
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
        lowest, highest = int(scores.min()), int(scores.max())
        if highest == lowest:
            return np.zeros_like(scores)
        # float64 and this order of operations, as in Go, because the result is truncated
        return (float(MAX_NODE_SCORE) * ((scores - lowest) / float(highest - lowest))).astype(np.int64)

    # --- hints -----------------------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        pod_actions = ActionType.ADD | ActionType.DELETE | ActionType.UPDATE_POD_LABEL
        node_actions = ActionType.ADD | ActionType.UPDATE_NODE_LABEL
        return (
            on_event(POD, pod_actions, _from_pod(self._after_pod_change), self._after_pod_change),
            on_event(NODE, node_actions, _from_pod(self._after_node_change), self._after_node_change),
        )

    def _after_pod_change(self, info: PodInfo, old: Pod | None, new: Pod | None) -> Hint:
        if new is not None and new.metadata.uid == info.uid:
            return Hint.QUEUE  # its labels changed: terms of other pods may no longer select it
        if (old is not None and not is_bound_or_nominated(old)) or (new is not None and not is_bound_or_nominated(new)):
            return Hint.SKIP
        terms = _checked(info.affinity_class)
        affinity, anti_affinity = terms.required_affinity_terms, terms.required_anti_affinity_terms
        if old is not None and new is not None:
            affinity_gained = not _all_match(affinity, old) and _all_match(affinity, new)
            anti_affinity_lost = _all_match(anti_affinity, old) and not _all_match(anti_affinity, new)
            return Hint.QUEUE if affinity_gained or anti_affinity_lost else Hint.SKIP
        if new is not None:
            return Hint.QUEUE if _all_match(affinity, new) else Hint.SKIP
        if old is not None and (_all_match(anti_affinity, old) or self._anti_affinity_selects(old, info.pod)):
            return Hint.QUEUE
        return Hint.SKIP

    def _after_node_change(self, info: PodInfo, old: Node | None, new: Node | None) -> Hint:
        """Return the hint for a node that was added (old is None) or changed."""
        terms = _checked(info.affinity_class)
        for term in terms.required_affinity_terms:
            before, after = _topology_value(old, term), _topology_value(new, term)
            if after is not None and before != after:
                return Hint.QUEUE
        for term in terms.required_anti_affinity_terms:
            before, after = _topology_value(old, term), _topology_value(new, term)
            if old is None or (before is not None and before != after):
                return Hint.QUEUE
        return Hint.SKIP

    def _anti_affinity_selects(self, other: Pod, pod: Pod) -> bool:
        """Return True if the required anti-affinity of `other` selects `pod`."""
        last, terms = self._last_deleted
        if last is not other:  # one deletion is checked against all waiting pods in a row
            terms = affinity_class(other)
            self._last_deleted = other, terms
        return _all_match(_checked(terms).required_anti_affinity_terms, pod)


def _from_pod(hint: Callable[[PodInfo, Any, Any], Hint]) -> HintFunction:
    return lambda pod, old, new: hint(PodInfo(pod), old, new)


def _topology_value(node: Node | None, term: AffinityTerm) -> str | None:
    return None if node is None else node.metadata.labels.get(term.topology_key)


def _checked(terms: AffinityClass) -> AffinityClass:
    """Return `terms`. Raises their error if one of them is malformed."""
    if terms.error is not None:
        raise terms.error
    return terms


def _required_anti_affinity(pod_class: AffinityClass) -> Iterator[tuple[AffinityTerm, int]]:
    for term in pod_class.required_anti_affinity_terms:
        yield term, 1


def _all_match(terms: Sequence[AffinityTerm], pod: Pod) -> bool:
    """Return True if all terms match `pod`; the labels of its namespace are taken as empty, as hints do."""
    if not terms:
        return False
    namespace, labels = pod.metadata.namespace, pod.metadata.labels
    for term in terms:  # noqa: SIM110, called per waiting pod and event: a generator costs more than the match
        if not term.matches(namespace, labels, _NO_LABELS):
            return False
    return True


def _no_positive_sums(pairs: TopologyPairSums, rows: Rows, snapshot: Snapshot) -> Mask:
    """Return the rows none of whose pairs has a positive sum: bool [K]."""
    free = np.ones(len(rows), np.bool_)
    for key in pairs.keys:
        per_node = pairs.per_node(key, absent=0)  # [N]
        if per_node is not None:
            free &= select_rows(per_node, rows, snapshot) <= 0
    return free
