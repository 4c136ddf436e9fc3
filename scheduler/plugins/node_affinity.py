"""NodeAffinity: required and preferred node affinity and nodeSelector, of the pod and of the profile's addedAffinity.

Source: plugins/nodeaffinity of v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kubeloop.kube.objects.api_types import Node, NodeSelectorTerm, Pod
from kubeloop.kube.selectors.node_selectors import NodeSelectorMatcher, PreferredNodeAffinity, RequiredNodeAffinity
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import NODE, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extension_points import PreFilterResult, PreFilterReturn, RowFilterResult, RowStatuses
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import (
    default_normalize,
    explain_rows_as,
    explained_per_node,
    failed,
    on_event,
    skip,
    unresolvable,
)
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows, Scores
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import NodeAffinityArgs
from kubeloop.scheduler.plugins.node_selector_masks import (
    FEW_ROWS,
    node_selector_mask,
    required_affinity_rows,
    term_mask,
)

_REQUIRED = "PreFilterNodeAffinity"
_PREFERRED = "PreScoreNodeAffinity"


class NodeAffinityPlugin:
    name = "NodeAffinity"
    row_local = True
    ignores_other_pods = True

    def __init__(self, args: NodeAffinityArgs, handle: Handle) -> None:
        """Raises SelectorError if the added affinity is malformed."""
        added = args.added_affinity
        self._added_required: NodeSelectorMatcher | None = None
        if added is not None and added.required is not None:
            self._added_required = NodeSelectorMatcher(added.required)
            self._added_required.check()
        self._added_preferred: PreferredNodeAffinity | None = None
        if added is not None and added.preferred:
            self._added_preferred = PreferredNodeAffinity(added.preferred)
        self._rejection = unresolvable(self.name, "node(s) didn't match Pod's node affinity/selector")
        self._added_rejection = unresolvable(self.name, "node(s) didn't match scheduler-enforced node affinity")

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterReturn:
        spec = pod.pod.spec
        required = spec.affinity and spec.affinity.node_affinity and spec.affinity.node_affinity.required
        if not required and not spec.node_selector and self._added_required is None:
            return None, skip(self.name)
        state.write(_REQUIRED, RequiredNodeAffinity(spec.node_selector, spec.affinity))
        if not required or not required.node_selector_terms:
            return None, None
        names: set[str] = set()
        for term in required.node_selector_terms:
            term_names = _named_nodes(term)
            if term_names is None:  # terms are ORed, and this one does not restrict the node names
                return None, None
            names |= term_names
        if not names:
            return None, unresolvable(self.name, "pod affinity terms conflict")
        return PreFilterResult(frozenset(names)), None

    def _required(self, state: CycleState, pod: PodInfo) -> RequiredNodeAffinity:
        required: RequiredNodeAffinity | None = state.get(_REQUIRED)
        if required is None:
            required = RequiredNodeAffinity(pod.pod.spec.node_selector, pod.pod.spec.affinity)
        return required

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        labels = node.node.metadata.labels if node.node is not None else {}
        if self._added_required is not None and not self._added_required.matches(node.name, labels):
            return self._added_rejection
        # A term that cannot be parsed matches nothing and is not an error, as in kube-scheduler.
        return None if self._required(state, pod).matches(node.name, labels) else self._rejection

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        passed = required_affinity_rows(snapshot, self._required(state, pod), rows)  # [K]
        if self._added_required is not None:
            passed = passed & node_selector_mask(snapshot, self._added_required)[rows]
        return explained_per_node(passed, rows, snapshot, self.filter, state, pod)

    def explain_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowStatuses:
        if self._added_required is None:
            return explain_rows_as(self._rejection, rows)
        added = node_selector_mask(snapshot, self._added_required)[rows]
        return RowStatuses(added.astype(np.intp), (self._added_rejection, self._rejection))

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Status | None:
        affinity = pod.pod.spec.affinity
        terms = affinity.node_affinity.preferred if affinity and affinity.node_affinity else ()
        if not terms and self._added_preferred is None:
            return skip(self.name)
        try:
            state.write(_PREFERRED, PreferredNodeAffinity(terms))
        except ValueError as error:
            return failed(self.name, error)
        return None

    def _preferred(self, state: CycleState, pod: PodInfo) -> tuple[PreferredNodeAffinity, ...]:
        own: PreferredNodeAffinity | None = state.get(_PREFERRED)
        if own is None:
            affinity = pod.pod.spec.affinity
            own = PreferredNodeAffinity(affinity.node_affinity.preferred if affinity and affinity.node_affinity else ())
        return (own,) if self._added_preferred is None else (own, self._added_preferred)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        labels = node.node.metadata.labels if node.node is not None else {}
        return sum(preferred.score(node.name, labels) for preferred in self._preferred(state, pod))

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        if len(rows) <= FEW_ROWS:
            infos = snapshot.node_infos
            return np.array([self.score(state, pod, infos[row]) for row in rows.tolist()], np.int64)
        scores = np.zeros(len(snapshot), np.int64)  # [N]
        for preferred in self._preferred(state, pod):
            for weight, term in preferred.terms:
                scores += weight * term_mask(snapshot, term)
        return scores[rows]

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, scores: Scores
    ) -> Scores:
        return default_normalize(scores)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (on_event(NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL, self._after_node_change),)

    def _after_node_change(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        if new is None:
            return Hint.SKIP
        if self._added_required is not None and not _selects(self._added_required, new):
            return Hint.SKIP
        required = RequiredNodeAffinity(pod.spec.node_selector, pod.spec.affinity)
        if not required.matches_or_raises(new.metadata.name, new.metadata.labels):
            return Hint.SKIP
        if old is None:
            return Hint.QUEUE
        matched_before = required.matches_or_raises(old.metadata.name, old.metadata.labels) and (
            self._added_required is None or _selects(self._added_required, old)
        )
        return Hint.SKIP if matched_before else Hint.QUEUE


def _selects(selector: NodeSelectorMatcher, node: Node) -> bool:
    return selector.matches(node.metadata.name, node.metadata.labels)


def _named_nodes(term: NodeSelectorTerm) -> set[str] | None:
    """Return the node names that a term selects by metadata.name; None if the term does not restrict the names."""
    names: set[str] | None = None
    for requirement in term.match_fields:
        if requirement.key == "metadata.name" and requirement.operator == "In":
            values = set(requirement.values)
            names = values if names is None else names & values
    return names
