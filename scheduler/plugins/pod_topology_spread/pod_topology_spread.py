"""PodTopologySpread: spreads matching pods over zones, hosts or other topology domains.

A domain is a value of a constraint's topology key; it is a code of that label's column. Axes: N nodes, K rows, D
domains (codes) of one topology key. Pods are counted per node (columns.pods), incrementally, and summed per domain in
each cycle. Source: plugins/podtopologyspread of v1.36; float64 and rounding as there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from kubeloop.kube.objects.api_types import Node, Pod, Taint, Toleration
from kubeloop.kube.objects.taints_and_tolerations import find_untolerated_taint
from kubeloop.kube.selectors.node_selectors import RequiredNodeAffinity
from kubeloop.kube.selectors.selectors import Selector
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import NODE, POD, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extension_points import (
    MAX_NODE_SCORE,
    PreFilterReturn,
    RowFilterResult,
    RowStatuses,
    ScoreTable,
)
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
from kubeloop.scheduler.cache.columns import ABSENT, LabelColumn
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.pod_classes import LabelClass, SpecClasses
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import PodTopologySpreadArgs
from kubeloop.scheduler.framework.versioned_cache import VersionedCache
from kubeloop.scheduler.plugins.node_selector_masks import required_affinity_rows
from kubeloop.scheduler.plugins.pod_topology_spread.constraints import (
    DO_NOT_SCHEDULE,
    HOSTNAME,
    SCHEDULE_ANYWAY,
    SYSTEM_DEFAULTS,
    DefaultSelectors,
    SpreadConstraint,
    compile_constraints,
    with_selector,
)
from kubeloop.scheduler.plugins.pod_topology_spread.score_table import ScoreTableCells, ScoreTableCellsByClass

Int64 = npt.NDArray[np.int64]

_FindUntoleratedTaint = Callable[[Sequence[Taint], Sequence[Toleration]], Taint | None]

_HARD = "PreFilterPodTopologySpread"
_SOFT = "PreScorePodTopologySpread"
_MAX_CLASSES = 256  # pod classes whose domains are cached, with a few int32 per node each


class _TopologyDomains:
    """Topology domains of one constraint, for one class of incoming pods.

    codes [N]: domain of each eligible node, D for the others. present: bool [D], domains with an eligible node.
    all_eligible: all nodes are eligible, apart from those without the label.
    """

    __slots__ = ("_domain_count_of_all_rows", "all_eligible", "codes", "column", "count", "present")

    def __init__(self, column: LabelColumn, eligible: Mask | None) -> None:
        """eligible: bool [N]; None means all nodes."""
        self._domain_count_of_all_rows: int | None = None
        self.codes: npt.NDArray[np.signedinteger[Any]]
        self.column = column
        self.count = len(column.values)
        self.all_eligible = eligible is None or bool(eligible.all())
        if self.all_eligible and column.on_all_nodes:
            self.codes = column.wide_codes  # [N] shared, the most common case
        elif eligible is None:
            self.codes = np.where(column.codes != ABSENT, column.codes, self.count)
        else:
            self.codes = np.where(eligible & (column.codes != ABSENT), column.codes, self.count)
        self.present = np.zeros(self.count + 1, np.bool_)
        self.present[self.codes] = True
        self.present = self.present[: self.count]  # [D]

    def count_domains(self, rows: Rows, snapshot: Snapshot) -> int:
        """Return the number of domains of `rows`; nodes without the label count as one more, as in Kubernetes."""
        all_rows = rows is snapshot.all_rows
        if all_rows and self._domain_count_of_all_rows is not None:
            return self._domain_count_of_all_rows
        present = np.zeros(self.count + 1, np.bool_)
        present[select_rows(self.column.codes, rows, snapshot)] = True
        count = int(np.count_nonzero(present))
        if all_rows:
            self._domain_count_of_all_rows = count
        return count

    def pods_per_domain(self, pods: Int64) -> Int64:
        """Return the pods per domain [D] from the pods per node [N]."""
        # float64 weights are exact up to 2^53 pods
        return np.bincount(self.codes, weights=pods, minlength=self.count + 1)[: self.count].astype(np.int64)


class _HardConstraint:
    """One DoNotSchedule constraint in one cycle: pods int64 [D] per domain."""

    __slots__ = ("_min_match_num", "column", "pods", "present", "self_match", "spec")

    def __init__(
        self, spec: SpreadConstraint, column: LabelColumn, present: Mask, pods: Int64, self_match: bool
    ) -> None:
        self.spec = spec
        self.column = column
        self.present = present
        self.pods = pods
        self.self_match = self_match
        self._min_match_num: int | None = None

    def clone(self) -> _HardConstraint:
        return _HardConstraint(self.spec, self.column, self.present, self.pods.copy(), self.self_match)

    def add(self, code: int, delta: int) -> None:
        self.pods[code] += delta
        self._min_match_num = None

    def max_match_num(self) -> int:
        """Return the most matching pods that a domain may have before the incoming pod is added."""
        min_match_num = self._min_match_num
        if min_match_num is None:
            domains = self.pods[self.present]
            min_match_num = (
                0 if len(domains) < self.spec.min_domains else int(domains.min(initial=np.iinfo(np.int32).max))
            )
            self._min_match_num = min_match_num
        return min_match_num + self.spec.max_skew - self.self_match


class _PreFilterState:
    """All DoNotSchedule constraints of the incoming pod."""

    __slots__ = ("_find_untolerated_taint", "_required", "constraints")

    def __init__(
        self,
        constraints: tuple[_HardConstraint, ...],
        required: RequiredNodeAffinity,
        find_untolerated_taint: _FindUntoleratedTaint,
    ) -> None:
        self.constraints = constraints
        self._required = required
        self._find_untolerated_taint = find_untolerated_taint

    def clone(self) -> _PreFilterState:
        constraints = tuple(constraint.clone() for constraint in self.constraints)
        return _PreFilterState(constraints, self._required, self._find_untolerated_taint)

    def update(self, pod: PodInfo, other: PodInfo, node: NodeInfo, delta: int) -> None:
        """Account for `other` added to `node` (delta 1) or removed from it (-1), if the constraints count it."""
        if node.node is None or other.pod.metadata.namespace != pod.pod.metadata.namespace:
            return
        labels = node.node.metadata.labels
        if not all(constraint.spec.topology_key in labels for constraint in self.constraints):
            return
        for constraint in self.constraints:
            spec = constraint.spec
            if spec.selector.matches(other.pod.metadata.labels) and self._is_included(spec, pod.pod, node.node):
                code = constraint.column.code_of.get(labels[spec.topology_key])
                if code is not None:
                    constraint.add(code, delta)

    def _is_included(self, constraint: SpreadConstraint, pod: Pod, node: Node) -> bool:
        """Return True if the constraint's node inclusion policies include the node."""
        if constraint.honors_node_affinity and not self._required.matches(node.metadata.name, node.metadata.labels):
            return False
        if not constraint.honors_node_taints:
            return True
        return self._find_untolerated_taint(node.spec.taints, pod.spec.tolerations) is None


class _SoftConstraint:
    """One ScheduleAnyway constraint in one cycle, with the weight of a pod.

    per_domain: pods per domain [D]; None if the topology key is the hostname, where per_node [N] is used instead.
    """

    __slots__ = ("column", "per_domain", "per_node", "spec", "weight")

    def __init__(
        self,
        spec: SpreadConstraint,
        column: LabelColumn,
        per_domain: Int64 | None,
        per_node: Int64,
        weight: float,
    ) -> None:
        self.spec = spec
        self.column = column
        self.per_domain = per_domain
        self.per_node = per_node  # [N]
        self.weight = weight


class _PreScoreState:
    """All ScheduleAnyway constraints of the incoming pod.

    ignored: bool [N], nodes that lack a topology key and therefore score 0; None if there are none.
    cells: the nodes' cells in the score table; None if the constraints do not allow a table.
    """

    __slots__ = ("cells", "constraints", "ignored")

    def __init__(
        self, constraints: tuple[_SoftConstraint, ...], ignored: Mask | None, cells: ScoreTableCells | None
    ) -> None:
        self.constraints = constraints
        self.ignored = ignored
        self.cells = cells


class PodTopologySpread:
    name = "PodTopologySpread"

    def __init__(self, args: PodTopologySpreadArgs, handle: Handle) -> None:
        self._handle = handle
        self._selectors = DefaultSelectors(handle.listers)
        self._match_label_keys = handle.feature_gates.enabled("MatchLabelKeysInPodTopologySpread")
        self._find_untolerated_taint = partial(
            find_untolerated_taint,
            comparison_operators=handle.feature_gates.enabled("TaintTolerationComparisonOperators"),
        )
        self._system_defaulted = args.defaulting_type == "System"
        self._defaults = SYSTEM_DEFAULTS if self._system_defaulted else args.default_constraints
        self._default_hard = compile_constraints(self._defaults, {}, DO_NOT_SCHEDULE)
        self._default_soft = compile_constraints(self._defaults, {}, SCHEDULE_ANYWAY)
        self._skew_rejection = unschedulable(self.name, "node(s) didn't match pod topology spread constraints")
        self._missing_label_rejection = unresolvable(
            self.name, "node(s) didn't match pod topology spread constraints (missing required label)"
        )
        self._domains: VersionedCache[tuple[int, str], tuple[_TopologyDomains, ...]] = VersionedCache(_MAX_CLASSES)
        # by topology key, for constraints that all nodes are eligible for
        self._domains_over_all_nodes: VersionedCache[str, _TopologyDomains] = VersionedCache(_MAX_CLASSES)
        self._score_table_cells = ScoreTableCellsByClass()

    # --- constraints and domains -----------------------------------------------------------------------------------

    def _constraints(self, pod: Pod, action: str, classes: SpecClasses | None = None) -> tuple[SpreadConstraint, ...]:
        """Return the pod's own constraints with this action, or else the default ones. Raises SelectorError.

        classes: default selectors are cached by the numbers of these classes.
        """
        own = pod.spec.topology_spread_constraints
        if own:
            # matchLabelKeys select by labels of the incoming pod, if their feature gate is on
            return compile_constraints(own, pod.metadata.labels if self._match_label_keys else {}, action)
        defaults = self._default_hard if action == DO_NOT_SCHEDULE else self._default_soft
        if not defaults:
            return ()
        selector = self._selectors.of(pod, None if classes is None else classes.number(pod))
        return () if selector.empty else with_selector(defaults, selector)

    def _domains_of(
        self, pod: PodInfo, snapshot: Snapshot, action: str, constraints: Sequence[SpreadConstraint], all_keys: bool
    ) -> tuple[_TopologyDomains, ...]:
        """Return the domains of each constraint. Cached per class of pods until a node's labels or taints change."""
        return self._domains.get(
            (snapshot.classes.number(pod.pod), action),
            (snapshot.layout, snapshot.columns.node_generation),
            lambda: self._compute_domains(pod, snapshot, constraints, all_keys),
        )

    def _compute_domains(
        self, pod: PodInfo, snapshot: Snapshot, constraints: Sequence[SpreadConstraint], all_keys: bool
    ) -> tuple[_TopologyDomains, ...]:
        columns = [snapshot.columns.labels(constraint.topology_key) for constraint in constraints]
        labelled: Mask | None = None  # [N]; None: all
        if all_keys:
            for column in columns:
                if not column.on_all_nodes:
                    labelled = _intersection(labelled, column.codes != ABSENT)
        required = RequiredNodeAffinity(pod.pod.spec.node_selector, pod.pod.spec.affinity)
        matches_affinity: Mask | None = None
        tolerated: Mask | None = None
        domains = []
        for constraint, column in zip(constraints, columns, strict=True):
            mask = labelled
            if constraint.honors_node_affinity and not required.empty:
                if matches_affinity is None:
                    matches_affinity = required_affinity_rows(snapshot, required, snapshot.all_rows)
                mask = _intersection(mask, matches_affinity)
            if constraint.honors_node_taints:
                if tolerated is None:
                    tolerated = self._tolerated(pod, snapshot)
                mask = _intersection(mask, tolerated)
            domains.append(
                self._domains_of_all_nodes(column, snapshot) if mask is None else _TopologyDomains(column, mask)
            )
        return tuple(domains)

    def _domains_of_all_nodes(self, column: LabelColumn, snapshot: Snapshot) -> _TopologyDomains:
        """Return the domains if all nodes are eligible, which are the same for all classes of pods."""
        version = (snapshot.layout, snapshot.columns.node_generation)
        return self._domains_over_all_nodes.get(column.key, version, lambda: _TopologyDomains(column, None))

    def _tolerated(self, pod: PodInfo, snapshot: Snapshot) -> Mask:
        taints = snapshot.columns.taints
        tolerations = pod.pod.spec.tolerations
        tolerated = [self._find_untolerated_taint(taint_set, tolerations) is None for taint_set in taints.values]
        return np.array(tolerated, np.bool_)[taints.codes]

    # --- filter ----------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterReturn:
        try:
            constraints = self._constraints(pod.pod, DO_NOT_SCHEDULE, snapshot.classes)
        except ValueError as error:
            return None, failed(self.name, error)
        if not constraints:
            return None, skip(self.name)
        spec, labels = pod.pod.spec, pod.pod.metadata.labels
        domains = self._domains_of(pod, snapshot, DO_NOT_SCHEDULE, constraints, all_keys=True)
        hard = tuple(
            _HardConstraint(
                constraint,
                topology_domains.column,
                topology_domains.present,
                topology_domains.pods_per_domain(pods_per_node(snapshot, pod, constraint.selector)),
                constraint.selector.matches(labels),
            )
            for constraint, topology_domains in zip(constraints, domains, strict=True)
        )
        required = RequiredNodeAffinity(spec.node_selector, spec.affinity)
        state.write(_HARD, _PreFilterState(hard, required, self._find_untolerated_taint))
        return None, None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        hard: _PreFilterState = state.read(_HARD)
        hard.update(pod, added, node, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        hard: _PreFilterState = state.read(_HARD)
        hard.update(pod, removed, node, -1)
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        hard: _PreFilterState = state.read(_HARD)
        labels = node.node.metadata.labels if node.node is not None else {}
        for constraint in hard.constraints:
            value = labels.get(constraint.spec.topology_key)
            if value is None:
                return self._missing_label_rejection
            code = constraint.column.code_of.get(value)
            if (0 if code is None else int(constraint.pods[code])) > constraint.max_match_num():
                return self._skew_rejection
        return None

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        hard: _PreFilterState = state.read(_HARD)
        passed = np.ones(len(rows), np.bool_)
        for constraint in hard.constraints:
            # One entry per domain, and a last one for nodes without the label: their code -1 indexes it.
            within_skew = np.append(constraint.pods <= constraint.max_match_num(), False)  # [D + 1]
            passed &= within_skew[select_rows(constraint.column.codes, rows, snapshot)]

        def explain(index: int) -> Status:
            row = rows[index]
            for constraint in hard.constraints:
                code = constraint.column.codes[row]
                if code == ABSENT:
                    return self._missing_label_rejection
                if constraint.pods[code] > constraint.max_match_num():
                    break
            return self._skew_rejection

        return RowFilterResult(passed, explain)

    def explain_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowStatuses:
        hard: _PreFilterState = state.read(_HARD)
        undecided = np.ones(len(rows), np.bool_)
        reason_codes = np.ones(len(rows), np.intp)  # 0: a label is missing, 1: skew
        for constraint in hard.constraints:
            codes = constraint.column.codes[rows]
            labelled = codes != ABSENT
            reason_codes[undecided & ~labelled] = 0
            within_skew = np.append(constraint.pods <= constraint.max_match_num(), False)  # [D + 1]
            undecided &= labelled & within_skew[codes]
        return RowStatuses(reason_codes, (self._missing_label_rejection, self._skew_rejection))

    # --- score -----------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Status | None:
        try:
            constraints = self._constraints(pod.pod, SCHEDULE_ANYWAY, snapshot.classes)
        except ValueError as error:
            return failed(self.name, error)
        if not constraints:
            return skip(self.name)
        all_keys = bool(pod.pod.spec.topology_spread_constraints) or not self._system_defaulted
        domains = self._domains_of(pod, snapshot, SCHEDULE_ANYWAY, constraints, all_keys)
        ignored: Mask | None = None
        candidates = rows
        if all_keys and not all(topology_domains.column.on_all_nodes for topology_domains in domains):
            labelled = np.ones(len(snapshot), np.bool_)  # [N]
            for topology_domains in domains:
                labelled &= topology_domains.column.codes != ABSENT
            ignored = ~labelled
            candidates = rows[labelled[rows]]
        soft = []
        per_node, counted_selector = None, None
        tabulated = ignored is None and _can_be_tabulated(constraints, domains)
        cells: ScoreTableCells | None = None
        for constraint, topology_domains in zip(constraints, domains, strict=True):
            if (
                per_node is None or constraint.selector != counted_selector
            ):  # usually all constraints share one selector
                counted_selector = constraint.selector
                per_node = pods_per_node(snapshot, pod, counted_selector)
            if constraint.topology_key == HOSTNAME:
                domain_count, per_domain = len(candidates), None
            else:
                if tabulated:
                    class_number = snapshot.classes.number(pod.pod)
                    cells = self._score_table_cells.of(
                        class_number, constraint.selector, snapshot, topology_domains.column, per_node
                    )
                per_domain = topology_domains.pods_per_domain(per_node) if cells is None else cells.pods_per_domain()
                domain_count = topology_domains.count_domains(candidates, snapshot)
            soft.append(
                _SoftConstraint(constraint, topology_domains.column, per_domain, per_node, math.log(domain_count + 2))
            )
        state.write(_SOFT, _PreScoreState(tuple(soft), ignored, cells))
        return None

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        soft: _PreScoreState = state.read(_SOFT)
        scores = np.zeros(len(rows))  # float64 [K]
        for constraint in soft.constraints:
            skew = float(constraint.spec.max_skew - 1)
            if constraint.per_domain is None:
                constraint_scores = select_rows(constraint.per_node, rows, snapshot) * constraint.weight + skew
                if not constraint.column.on_all_nodes:
                    constraint_scores[select_rows(constraint.column.codes, rows, snapshot) == ABSENT] = 0.0
                scores += constraint_scores
            else:
                # 0 for nodes without the label: their code -1 indexes the last element
                domain_scores = np.append(
                    constraint.per_domain * constraint.weight + float(constraint.spec.max_skew - 1), 0.0
                )  # [D + 1]
                scores += domain_scores[select_rows(constraint.column.codes, rows, snapshot)]
        rounded = _round_all(scores)
        if soft.ignored is not None:
            rounded[soft.ignored[rows]] = 0.0
        return rounded.astype(np.int64)

    def score_table(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> ScoreTable | None:
        soft: _PreScoreState = state.read(_SOFT)
        cells = soft.cells
        if cells is None:
            return None
        hosts, domains = soft.constraints if soft.constraints[0].per_domain is None else reversed(soft.constraints)
        assert domains.per_domain is not None
        # The last element is for nodes without the label. The order of two summands does not affect the result.
        domain_scores = np.append(domains.per_domain * domains.weight + float(domains.spec.max_skew - 1), 0.0)
        host_scores = np.arange(cells.max_pods + 1) * hosts.weight + float(hosts.spec.max_skew - 1)
        raw = _round_all(host_scores[:, None] + domain_scores).astype(np.int64).ravel()  # [T]
        row_cells, occurring = cells.cells_of(rows, snapshot)
        counted_scores = raw[occurring]
        scores = np.zeros_like(raw)  # 0 for cells without a node, whose normalized score might be out of bounds
        scores[occurring] = _normalized(counted_scores, counted_scores)
        return ScoreTable(scores, row_cells)

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, scores: Scores
    ) -> Scores:
        soft: _PreScoreState = state.read(_SOFT)
        counted = None if soft.ignored is None else ~soft.ignored[rows]  # [K]
        counted_scores = scores if counted is None else scores[counted]
        if len(counted_scores) == 0:
            return np.zeros_like(scores)
        normalized = _normalized(scores, counted_scores)
        return normalized if counted is None else np.where(counted, normalized, 0)

    # --- hints -----------------------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        pod_actions = (
            ActionType.ADD | ActionType.DELETE | ActionType.UPDATE_POD_LABEL | ActionType.UPDATE_POD_TOLERATION
        )
        node_actions = ActionType.ADD | ActionType.DELETE | ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_TAINT
        return (
            on_event(POD, pod_actions, self._after_pod_change),
            on_event(NODE, node_actions, self._after_node_change),
        )

    def _after_pod_change(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        """Return QUEUE if the change affects the pods that the constraints count: same namespace, and on a node."""
        for other in (old, new):
            if other is None or other.metadata.uid == pod.metadata.uid:
                continue
            if other.metadata.namespace != pod.metadata.namespace or not is_bound_or_nominated(other):
                return Hint.SKIP
        constraints = self._constraints(pod, DO_NOT_SCHEDULE)
        if old is not None and new is not None:
            if (
                new.metadata.uid == pod.metadata.uid
                and old.spec.tolerations != new.spec.tolerations
                and any(constraint.honors_node_taints for constraint in constraints)
            ):
                return Hint.QUEUE
            before, after = old.metadata.labels, new.metadata.labels
            if before == after:
                return Hint.SKIP
            changed = any(
                constraint.selector.matches(before) != constraint.selector.matches(after) for constraint in constraints
            )
            return Hint.QUEUE if changed else Hint.SKIP
        changed_pod = new if new is not None else old
        if changed_pod is None:
            return Hint.QUEUE
        counts = any(constraint.selector.matches(changed_pod.metadata.labels) for constraint in constraints)
        return Hint.QUEUE if counts else Hint.SKIP

    def _after_node_change(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        constraints = self._constraints(pod, DO_NOT_SCHEDULE)

        def labelled(node: Node | None) -> bool:
            return node is not None and all(
                constraint.topology_key in node.metadata.labels for constraint in constraints
            )

        if new is None:
            return Hint.QUEUE if labelled(old) else Hint.SKIP
        if labelled(old) != labelled(new):
            return Hint.QUEUE
        if old is not None and labelled(new):
            before, after = old.metadata.labels, new.metadata.labels
            if any(before[constraint.topology_key] != after[constraint.topology_key] for constraint in constraints):
                return Hint.QUEUE
            if old.spec.taints != new.spec.taints:
                return Hint.QUEUE
        return Hint.SKIP


def pods_per_node(snapshot: Snapshot, pod: PodInfo, selector: Selector) -> Int64:
    """Return the number of matching pods in `pod`'s namespace per node [N], without pods that are being deleted.

    An empty selector matches no pod here, as in kube-scheduler, though it matches everything elsewhere.
    """
    if selector.empty:
        return np.zeros(len(snapshot), np.int64)
    namespace = pod.pod.metadata.namespace
    pods = snapshot.columns.pods
    return pods.weighted(
        ("spread", namespace, selector),
        _match_counter(namespace, selector),
        lambda: pods.selection_candidates(namespace, selector),
    )


def _match_counter(namespace: str, selector: Selector) -> Callable[[LabelClass], int]:
    matches = selector.matches
    return lambda pod_class: (
        1 if pod_class.namespace == namespace and not pod_class.terminating and matches(pod_class.labels) else 0
    )


def _round_all(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    rounded = np.floor(scores)
    rounded += scores - rounded >= 0.5  # halves away from zero; no score is negative
    return rounded


def _normalized(scores: Scores, counted_scores: Scores) -> Scores:
    """Return scores [K] inverted, so that fewer pods score higher; the range is that of `counted_scores`, not empty."""
    lowest, highest = int(counted_scores.min()), int(counted_scores.max())
    if highest == 0:
        return np.full_like(scores, MAX_NODE_SCORE)
    return MAX_NODE_SCORE * (highest + lowest - scores) // highest


def _intersection(one: Mask | None, other: Mask) -> Mask:
    return other if one is None else one & other


def _can_be_tabulated(constraints: Sequence[SpreadConstraint], domains: Sequence[_TopologyDomains]) -> bool:
    """Return True for one constraint on hosts and one on larger domains that count the same pods on all nodes."""
    if len(constraints) != 2 or constraints[0].selector != constraints[1].selector:
        return False
    on_hosts = [constraint.topology_key == HOSTNAME for constraint in constraints]
    if on_hosts[0] == on_hosts[1]:
        return False
    hosts, larger = domains if on_hosts[0] else (domains[1], domains[0])
    return hosts.column.on_all_nodes and larger.all_eligible
