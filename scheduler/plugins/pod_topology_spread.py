"""PodTopologySpread: pods that belong together are spread over zones, hosts or other domains.

A domain is a value of a constraint's topology key; it is a code of that label's column. Axes: N nodes, K rows, D
domains (codes) of one topology key. Pods are counted per node (columns.pods), incrementally, and summed per domain in
each cycle. Source: plugins/podtopologyspread of v1.36; float64 and rounding as there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kubeloop.kube.node_selectors import RequiredNodeAffinity
from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.kube.objects.taints_and_tolerations import find_untolerated_taint
from kubeloop.kube.selectors import Selector
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import NODE, POD, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extension_points import (
    MAX_NODE_SCORE,
    PreFilterResult,
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
from kubeloop.scheduler.cache.pod_classes import LabelClass
from kubeloop.scheduler.config.plugin_args import PodTopologySpreadArgs
from kubeloop.scheduler.plugins.node_masks import required_affinity_rows
from kubeloop.scheduler.plugins.topology_spread_constraints import (
    DO_NOT_SCHEDULE,
    HOSTNAME,
    SCHEDULE_ANYWAY,
    SYSTEM_DEFAULTS,
    DefaultSelectors,
    SpreadConstraint,
    compile_constraints,
    with_selector,
)
from kubeloop.scheduler.plugins.topology_spread_score_table import Places, PlacesByClass

if TYPE_CHECKING:
    from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
    from kubeloop.scheduler.cache.snapshot import Snapshot

Int64 = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

_HARD = "PreFilterPodTopologySpread"
_SOFT = "PreScorePodTopologySpread"
_MAX_PODS = np.iinfo(np.int32).max  # where there are no domains at all
_MAX_CLASSES = 256  # pod classes whose domains are remembered; some int32 per node each


class _Domains:
    """Where the pods of one constraint count, for one class of incoming pods.

    codes [N]: domain of each node that takes part, D for the others. present bool [D]: domains with such a node.
    everybody: all nodes with the label take part.
    """

    __slots__ = ("_domains_of_all", "codes", "column", "count", "everybody", "present")

    def __init__(self, column: LabelColumn, taking_part: Mask | None) -> None:
        """taking_part bool [N]; None: all nodes."""
        self._domains_of_all: int | None = None
        self.codes: npt.NDArray[np.signedinteger[Any]]
        self.column = column
        self.count = len(column.values)
        self.everybody = taking_part is None or bool(taking_part.all())
        if self.everybody and column.everywhere:
            self.codes = column.wide_codes  # [N] shared, as most often
        elif taking_part is None:
            self.codes = np.where(column.codes != ABSENT, column.codes, self.count)
        else:
            self.codes = np.where(taking_part & (column.codes != ABSENT), column.codes, self.count)
        self.present = np.zeros(self.count + 1, np.bool_)
        self.present[self.codes] = True
        self.present = self.present[: self.count]  # [D]

    def domains_among(self, rows: Rows, snapshot: Snapshot) -> int:
        """How many domains `rows` are in; nodes without the label are one more, as in Kubernetes."""
        all_rows = rows is snapshot.all_rows
        if all_rows and self._domains_of_all is not None:
            return self._domains_of_all
        seen = np.zeros(self.count + 1, np.bool_)
        seen[select_rows(self.column.codes, rows, snapshot)] = True
        number = int(np.count_nonzero(seen))
        if all_rows:
            self._domains_of_all = number
        return number

    def sums(self, pods: Int64) -> Int64:
        """Pods per node [N] -> pods per domain [D]."""
        # float64 weights are exact up to 2^53 pods
        return np.bincount(self.codes, weights=pods, minlength=self.count + 1)[: self.count].astype(np.int64)


class _Hard:
    """One DoNotSchedule constraint in one cycle: pods int64 [D] per domain."""

    __slots__ = ("_least", "column", "constraint", "pods", "present", "self_match")

    def __init__(
        self, constraint: SpreadConstraint, column: LabelColumn, present: Mask, pods: Int64, self_match: bool
    ) -> None:
        self.constraint = constraint
        self.column = column
        self.present = present
        self.pods = pods
        self.self_match = self_match
        self._least: int | None = None

    def clone(self) -> _Hard:
        return _Hard(self.constraint, self.column, self.present, self.pods.copy(), self.self_match)

    def add(self, code: int, number: int) -> None:
        if not self.present[code]:
            self.present = self.present.copy()
            self.present[code] = True
        self.pods[code] += number
        self._least = None

    def most_pods(self) -> int:
        """A domain may have no more pods than this before the incoming one comes."""
        least = self._least
        if least is None:
            domains = self.pods[self.present]
            least = (
                0 if len(domains) < self.constraint.min_domains else int(domains.min(initial=np.iinfo(np.int32).max))
            )
            self._least = least
        return least + self.constraint.max_skew - self.self_match


class _HardState:
    """All DoNotSchedule constraints of the incoming pod."""

    __slots__ = ("constraints", "required", "tolerations")

    def __init__(self, constraints: tuple[_Hard, ...], required: RequiredNodeAffinity, tolerations: Any) -> None:
        self.constraints = constraints
        self.required = required
        self.tolerations = tolerations

    def clone(self) -> _HardState:
        return _HardState(tuple(each.clone() for each in self.constraints), self.required, self.tolerations)

    def update(self, pod: PodInfo, other: PodInfo, node: NodeInfo, number: int) -> None:
        """`other` came to `node` (number 1) or went (-1), as far as it counts."""
        if node.node is None or other.pod.metadata.namespace != pod.pod.metadata.namespace:
            return
        labels = node.node.metadata.labels
        if not all(each.constraint.topology_key in labels for each in self.constraints):
            return
        for each in self.constraints:
            constraint = each.constraint
            if constraint.selector.matches(other.pod.metadata.labels) and _takes_part(
                constraint, node.node, self.required, self.tolerations
            ):
                code = each.column.code_of.get(labels[constraint.topology_key])
                if code is not None:
                    each.add(code, number)


class _Soft:
    """One ScheduleAnyway constraint in one cycle: pods per domain [D], or per node for the hostname; what a pod weighs.

    per_domain is None where the topology key is the hostname.
    """

    __slots__ = ("column", "constraint", "per_domain", "per_node", "weight")

    def __init__(
        self,
        constraint: SpreadConstraint,
        column: LabelColumn,
        per_domain: Int64 | None,
        per_node: Int64,
        weight: float,
    ) -> None:
        self.constraint = constraint
        self.column = column
        self.per_domain = per_domain
        self.per_node = per_node  # [N]
        self.weight = weight


class _SoftState:
    """All ScheduleAnyway constraints. ignored [N]: nodes without all topology keys, where that matters; None: none.

    places: where nodes stand in a table of scores, for two constraints that allow it.
    """

    __slots__ = ("constraints", "ignored", "places")

    def __init__(self, constraints: tuple[_Soft, ...], ignored: Mask | None, places: Places | None) -> None:
        self.constraints = constraints
        self.ignored = ignored
        self.places = places


class PodTopologySpread:
    name = "PodTopologySpread"

    def __init__(self, args: PodTopologySpreadArgs, handle: Handle) -> None:
        self._handle = handle
        self._selectors = DefaultSelectors(handle.listers)
        self._system_defaulted = args.defaulting_type == "System"
        self._defaults = SYSTEM_DEFAULTS if self._system_defaulted else args.default_constraints
        self._default_hard = compile_constraints(self._defaults, {}, DO_NOT_SCHEDULE)
        self._default_soft = compile_constraints(self._defaults, {}, SCHEDULE_ANYWAY)
        self._crowded = unschedulable(self.name, "node(s) didn't match pod topology spread constraints")
        self._unlabelled = unresolvable(
            self.name, "node(s) didn't match pod topology spread constraints (missing required label)"
        )
        self._domains: dict[tuple[int, str], tuple[tuple[int, int], tuple[_Domains, ...]]] = {}
        self._whole_domains: dict[str, tuple[tuple[int, int], _Domains]] = {}  # by topology key: all nodes take part
        self._places = PlacesByClass()

    # --- which constraints -----------------------------------------------------------------------------------------

    def _constraints(self, pod: Pod, action: str, class_number: int | None = None) -> tuple[SpreadConstraint, ...]:
        """Raises SelectorError."""
        own = pod.spec.topology_spread_constraints
        if own:
            return compile_constraints(own, pod.metadata.labels, action)
        defaults = self._default_hard if action == DO_NOT_SCHEDULE else self._default_soft
        if not defaults:
            return ()
        selector = self._selectors.of(pod, class_number)
        return () if selector.empty else with_selector(defaults, selector)

    def _domains_of(
        self, pod: PodInfo, snapshot: Snapshot, action: str, constraints: Sequence[SpreadConstraint], all_keys: bool
    ) -> tuple[_Domains, ...]:
        """Kept per class of pods for as long as no node changes its labels or taints."""
        key = (snapshot.classes.number(pod.pod), action)
        stamp = (snapshot.layout, snapshot.columns.node_generation)
        kept = self._domains.get(key)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        columns = [snapshot.columns.labels(each.topology_key) for each in constraints]
        labelled: Mask | None = None  # [N]; None: all
        if all_keys:
            for column in columns:
                if not column.everywhere:
                    labelled = _both(labelled, column.codes != ABSENT)
        required = RequiredNodeAffinity(pod.pod.spec.node_selector, pod.pod.spec.affinity)
        within: Mask | None = None
        tolerated: Mask | None = None
        found = []
        for constraint, column in zip(constraints, columns, strict=True):
            mask = labelled
            if constraint.honors_affinity and not required.empty:
                if within is None:
                    within = required_affinity_rows(snapshot, required, snapshot.all_rows)
                mask = _both(mask, within)
            if constraint.honors_taints:
                if tolerated is None:
                    tolerated = _tolerated(pod, snapshot)
                mask = _both(mask, tolerated)
            found.append(self._over_all_nodes(column, stamp) if mask is None else _Domains(column, mask))
        if len(self._domains) >= _MAX_CLASSES:
            self._domains.clear()
        self._domains[key] = (stamp, tuple(found))
        return tuple(found)

    def _over_all_nodes(self, column: LabelColumn, stamp: tuple[int, int]) -> _Domains:
        """The same for all classes of pods."""
        kept = self._whole_domains.get(column.key)
        if kept is None or kept[0] != stamp:
            if len(self._whole_domains) >= _MAX_CLASSES:
                self._whole_domains.clear()
            kept = self._whole_domains[column.key] = (stamp, _Domains(column, None))
        return kept[1]

    # --- filter ----------------------------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> tuple[PreFilterResult | None, Status | None]:
        try:
            constraints = self._constraints(pod.pod, DO_NOT_SCHEDULE, snapshot.classes.number(pod.pod))
        except ValueError as error:
            return None, failed(self.name, error)
        if not constraints:
            return None, skip(self.name)
        spec, labels = pod.pod.spec, pod.pod.metadata.labels
        domains = self._domains_of(pod, snapshot, DO_NOT_SCHEDULE, constraints, all_keys=True)
        hard = tuple(
            _Hard(
                constraint,
                each.column,
                each.present,
                each.sums(pods_per_node(snapshot, pod, constraint.selector)),
                constraint.selector.matches(labels),
            )
            for constraint, each in zip(constraints, domains, strict=True)
        )
        state.write(_HARD, _HardState(hard, RequiredNodeAffinity(spec.node_selector, spec.affinity), spec.tolerations))
        return None, None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        hard: _HardState = state.read(_HARD)
        hard.update(pod, added, node, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        hard: _HardState = state.read(_HARD)
        hard.update(pod, removed, node, -1)
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        hard: _HardState = state.read(_HARD)
        labels = node.node.metadata.labels if node.node is not None else {}
        for each in hard.constraints:
            value = labels.get(each.constraint.topology_key)
            if value is None:
                return self._unlabelled
            code = each.column.code_of.get(value)
            if (0 if code is None else int(each.pods[code])) > each.most_pods():
                return self._crowded
        return None

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        hard: _HardState = state.read(_HARD)
        passed = np.ones(len(rows), np.bool_)
        for each in hard.constraints:
            # One verdict per domain, and a last one for nodes without the label: their code -1 indexes it.
            open_ = np.append(each.pods <= each.most_pods(), False)  # [D + 1]
            passed &= open_[select_rows(each.column.codes, rows, snapshot)]

        def explain(index: int) -> Status:
            row = rows[index]
            for each in hard.constraints:
                code = each.column.codes[row]
                if code == ABSENT:
                    return self._unlabelled
                if each.pods[code] > each.most_pods():
                    break
            return self._crowded

        return RowFilterResult(passed, explain)

    def explain_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowStatuses:
        hard: _HardState = state.read(_HARD)
        undecided = np.ones(len(rows), np.bool_)
        crowded = np.ones(len(rows), np.intp)  # 0: without a label
        for each in hard.constraints:
            codes = each.column.codes[rows]
            labelled = codes != ABSENT
            crowded[undecided & ~labelled] = 0
            open_ = np.append(each.pods <= each.most_pods(), False)  # [D + 1]
            undecided &= labelled & open_[codes]
        return RowStatuses(crowded, (self._unlabelled, self._crowded))

    # --- score -----------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Status | None:
        try:
            constraints = self._constraints(pod.pod, SCHEDULE_ANYWAY, snapshot.classes.number(pod.pod))
        except ValueError as error:
            return failed(self.name, error)
        if not constraints:
            return skip(self.name)
        all_keys = bool(pod.pod.spec.topology_spread_constraints) or not self._system_defaulted
        domains = self._domains_of(pod, snapshot, SCHEDULE_ANYWAY, constraints, all_keys)
        ignored: Mask | None = None
        candidates = rows
        if all_keys and not all(each.column.everywhere for each in domains):
            labelled = np.ones(len(snapshot), np.bool_)  # [N]
            for each in domains:
                labelled &= each.column.codes != ABSENT
            ignored = ~labelled
            candidates = rows[labelled[rows]]
        soft = []
        per_node, counted = None, None
        tabulated = ignored is None and _can_be_tabulated(constraints, domains)
        places: Places | None = None
        for constraint, each in zip(constraints, domains, strict=True):
            if per_node is None or constraint.selector != counted:  # most often all constraints have the same
                counted = constraint.selector
                per_node = pods_per_node(snapshot, pod, counted)
            if constraint.topology_key == HOSTNAME:
                size, per_domain = len(candidates), None
            else:
                if tabulated:
                    number = snapshot.classes.number(pod.pod)
                    places = self._places.of(number, constraint.selector, snapshot, each.column, per_node)
                per_domain = each.sums(per_node) if places is None else places.pods_per_domain()
                size = each.domains_among(candidates, snapshot)
            soft.append(_Soft(constraint, each.column, per_domain, per_node, math.log(size + 2)))
        state.write(_SOFT, _SoftState(tuple(soft), ignored, places))
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        soft: _SoftState = state.read(_SOFT)
        snapshot = self._handle.snapshot
        row = snapshot.row_of[node.name]
        if soft.ignored is not None and soft.ignored[row]:
            return 0
        score = 0.0
        for each in soft.constraints:
            code = int(each.column.codes[row])
            if code == ABSENT:
                continue
            pods = int(each.per_node[row] if each.per_domain is None else each.per_domain[code])
            score += float(pods) * each.weight + float(each.constraint.max_skew - 1)
        return _rounded(score)

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        soft: _SoftState = state.read(_SOFT)
        scores = np.zeros(len(rows))  # float64 [K]
        for each in soft.constraints:
            skew = float(each.constraint.max_skew - 1)
            if each.per_domain is None:
                of_constraint = select_rows(each.per_node, rows, snapshot) * each.weight + skew
                if not each.column.everywhere:
                    of_constraint[select_rows(each.column.codes, rows, snapshot) == ABSENT] = 0.0
                scores += of_constraint
            else:
                # 0 for nodes without the label: their code -1 indexes the last element
                of_domain = np.append(
                    each.per_domain * each.weight + float(each.constraint.max_skew - 1), 0.0
                )  # [D + 1]
                scores += of_domain[select_rows(each.column.codes, rows, snapshot)]
        rounded = _all_rounded(scores)
        if soft.ignored is not None:
            rounded[soft.ignored[rows]] = 0.0
        return rounded.astype(np.int64)

    def score_table(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> ScoreTable | None:
        soft: _SoftState = state.read(_SOFT)
        places = soft.places
        if places is None:
            return None
        hosts, domains = soft.constraints if soft.constraints[0].per_domain is None else reversed(soft.constraints)
        assert domains.per_domain is not None
        # The last element is of nodes without the label. Two summands, so their order changes nothing.
        of_domain = np.append(domains.per_domain * domains.weight + float(domains.constraint.max_skew - 1), 0.0)
        of_host = np.arange(places.highest + 1) * hosts.weight + float(hosts.constraint.max_skew - 1)
        raw = _all_rounded(of_host[:, None] + of_domain).astype(np.int64).ravel()  # [T]
        of_rows, occurring = places.occurring(rows, snapshot)
        among = raw[occurring]
        scores = np.zeros_like(raw)  # also where no node stands, as its score might be out of bounds
        scores[occurring] = _normalized(among, among)
        return ScoreTable(scores, of_rows)

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, scores: Scores
    ) -> Scores:
        soft: _SoftState = state.read(_SOFT)
        counted = None if soft.ignored is None else ~soft.ignored[rows]  # [K]
        among = scores if counted is None else scores[counted]
        if len(among) == 0:
            return np.zeros_like(scores)
        normalized = _normalized(scores, among)
        return normalized if counted is None else np.where(counted, normalized, 0)

    # --- hints -----------------------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        of_pods = ActionType.ADD | ActionType.DELETE | ActionType.UPDATE_POD_LABEL | ActionType.UPDATE_POD_TOLERATION
        of_nodes = ActionType.ADD | ActionType.DELETE | ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_TAINT
        return (
            on_event(POD, of_pods, self._after_pod_change),
            on_event(NODE, of_nodes, self._after_node_change),
        )

    def _after_pod_change(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        """Only pods of the same namespace that are on a node count in its domains, or leave them."""
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
                and any(each.honors_taints for each in constraints)
            ):
                return Hint.QUEUE
            before, after = old.metadata.labels, new.metadata.labels
            if before == after:
                return Hint.SKIP
            changed = any(each.selector.matches(before) != each.selector.matches(after) for each in constraints)
            return Hint.QUEUE if changed else Hint.SKIP
        changed_pod = new if new is not None else old
        assert changed_pod is not None
        counts = any(each.selector.matches(changed_pod.metadata.labels) for each in constraints)
        return Hint.QUEUE if counts else Hint.SKIP

    def _after_node_change(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        constraints = self._constraints(pod, DO_NOT_SCHEDULE)

        def labelled(node: Node | None) -> bool:
            return node is not None and all(each.topology_key in node.metadata.labels for each in constraints)

        if new is None:
            return Hint.QUEUE if labelled(old) else Hint.SKIP
        if labelled(old) != labelled(new):
            return Hint.QUEUE
        if old is not None and labelled(new):
            before, after = old.metadata.labels, new.metadata.labels
            if any(before[each.topology_key] != after[each.topology_key] for each in constraints):
                return Hint.QUEUE
            if old.spec.taints != new.spec.taints:
                return Hint.QUEUE
        return Hint.SKIP


def pods_per_node(snapshot: Snapshot, pod: PodInfo, selector: Selector) -> Int64:
    """How many pods of `pod`'s namespace match, per node [N]; pods that are being deleted do not count.

    An empty selector counts none here, though it selects everything elsewhere: so does kube-scheduler.
    """
    if selector.empty:
        return np.zeros(len(snapshot), np.int64)
    namespace = pod.pod.metadata.namespace
    pods = snapshot.columns.pods
    return pods.weighted(
        ("spread", namespace, selector),
        _counts(namespace, selector),
        lambda: pods.maybe_selected(namespace, selector),
    )


def _counts(namespace: str, selector: Selector) -> Callable[[LabelClass], int]:
    matches = selector.matches
    return lambda of: 1 if of.namespace == namespace and not of.terminating and matches(of.labels) else 0


def _tolerated(pod: PodInfo, snapshot: Snapshot) -> Mask:
    taints = snapshot.columns.taints
    tolerations = pod.pod.spec.tolerations
    verdicts = [find_untolerated_taint(each, tolerations) is None for each in taints.values]
    return np.array(verdicts, np.bool_)[taints.codes]


def _takes_part(constraint: SpreadConstraint, node: Node, required: RequiredNodeAffinity, tolerations: Any) -> bool:
    if constraint.honors_affinity and not required.matches(node.metadata.name, node.metadata.labels):
        return False
    return not constraint.honors_taints or find_untolerated_taint(node.spec.taints, tolerations) is None


def _all_rounded(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    rounded = np.floor(scores)
    rounded += scores - rounded >= 0.5  # halves away from zero, and none is below it
    return rounded


def _normalized(scores: Scores, among: Scores) -> Scores:
    """Scores [K] turned round: the fewer pods, the more; `among` are those that count, and not empty."""
    least, most = int(among.min()), int(among.max())
    if most == 0:
        return np.full_like(scores, MAX_NODE_SCORE)
    return MAX_NODE_SCORE * (most + least - scores) // most


def _both(one: Mask | None, other: Mask) -> Mask:
    return other if one is None else one & other


def _can_be_tabulated(constraints: Sequence[SpreadConstraint], domains: Sequence[_Domains]) -> bool:
    """Is it one constraint on hosts and one on larger domains, which count the same pods on all nodes?"""
    if len(constraints) != 2 or constraints[0].selector != constraints[1].selector:
        return False
    on_hosts = [each.topology_key == HOSTNAME for each in constraints]
    if on_hosts[0] == on_hosts[1]:
        return False
    hosts, larger = domains if on_hosts[0] else (domains[1], domains[0])
    return hosts.column.everywhere and larger.everybody


def _rounded(score: float) -> int:
    whole = math.floor(score)
    return whole + (score - whole >= 0.5)
