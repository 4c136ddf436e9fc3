"""The framework's runtime: the plugins of one profile, run through all extension points.

A plugin that raises fails the attempt of that pod with its name in the event, never the scheduler. Filters run in the
order of the profile: those with an array form on the rows that are left, the others node by node.
Axes: N nodes, K rows. Source: pkg/scheduler/framework/runtime of v1.36.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import (
    MAX_NODE_SCORE,
    MIN_NODE_SCORE,
    FilterPlugin,
    FilterRowsPlugin,
    NodeToStatusReader,
    NormalizeScorePlugin,
    Plugin,
    PostFilterPlugin,
    PostFilterResult,
    PostFilterReturn,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    QueueSortPlugin,
    RowFilterResult,
    ScorePlugin,
    ScoreRowsPlugin,
    ScoreTable,
)
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.arrays import Mask, Rows, Scores
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.types import EXTENSION_POINTS, Profile
from kubeloop.scheduler.framework.binding_points import BindingPoints
from kubeloop.scheduler.framework.class_cache import PASSED, ClassCache, ClassResults, compact
from kubeloop.scheduler.framework.dry_run import NodeDryRuns
from kubeloop.scheduler.framework.fit_error import Diagnosis
from kubeloop.scheduler.framework.node_filters import NodeFilters
from kubeloop.scheduler.framework.nominated_fit_cache import NominatedFitCache
from kubeloop.scheduler.framework.plugin_calls import filter_node, named, raised, status_of
from kubeloop.scheduler.framework.profile_plugins import check_points, named_in, refs_at
from kubeloop.scheduler.framework.registry import Registry, create_plugin
from kubeloop.scheduler.framework.rejection_reasons import NodeRejections, RowRejections, of_all
from kubeloop.scheduler.framework.timing import Timing, awaited_observed, observed
from kubeloop.scheduler.metrics_protocol import SchedulerMetrics
from kubeloop.scheduler.queue.nominator import Nominator

log = logging.getLogger(__name__)

_Filters = tuple[list[tuple[int, Any]], list[tuple[int, Any]]]
_LocalScores = tuple[list[Any], list[Any], tuple[str, ...]]
ScoreRows = Callable[[CycleState, PodInfo, Snapshot, Rows], Scores]
Normalize = Callable[[CycleState, PodInfo, Snapshot, Rows, Scores], Scores]


class SchedulingError(Exception):
    """An attempt ended with an error, not with a verdict. The text is that of the event."""

    def __init__(self, message: str, plugin: str = "") -> None:
        super().__init__(message)
        self.plugin = plugin


class ScoredRows(msgspec.Struct, frozen=True):
    """rows int [K] of the snapshot; totals int64 [K]; by_plugin: weighted scores int64 [K] of each."""

    rows: Rows
    totals: Scores
    by_plugin: Mapping[str, Scores]


class Framework(NodeFilters, BindingPoints):
    """The plugins of one profile at their extension points.

    plugins: all of them by name. weights: of those that score. pre_enqueue ... post_bind: in order of the profile.
    """

    def __init__(
        self,
        profile: Profile,
        handle: Handle,
        nominator: Callable[[], Nominator],
        *,
        registry: Registry,
        class_cache: bool = True,
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        """Makes the plugins. Raises UserError for a profile that cannot work, in kube-scheduler's words."""
        self.profile_name = profile.scheduler_name
        self.percentage_of_nodes_to_score = profile.percentage_of_nodes_to_score
        self.timing = Timing(metrics, profile.scheduler_name, handle.clock.time_ns)
        self.plugins: dict[str, Plugin] = {}
        for ref in named_in(profile):
            if ref.name not in self.plugins:
                self.plugins[ref.name] = create_plugin(ref.name, profile.args.get(ref.name), handle, registry)
        refs = {point: refs_at(point, profile, self.plugins) for point in EXTENSION_POINTS}
        check_points(profile, refs)
        points = {point: [self.plugins[ref.name] for ref in chosen] for point, chosen in refs.items()}
        self.weights = {self.plugins[ref.name].name: ref.weight or 1 for ref in refs["score"]}
        self.pre_enqueue = cast("list[PreEnqueuePlugin]", points["preEnqueue"])
        self._queue_sort = cast("list[QueueSortPlugin]", points["queueSort"])
        self.pre_filter = cast("list[PreFilterPlugin]", points["preFilter"])
        self.post_filter = cast("list[PostFilterPlugin]", points["postFilter"])
        self.pre_score = cast("list[PreScorePlugin]", points["preScore"])
        self.score = points["score"]
        NodeFilters.__init__(self, self.timing, points["filter"], self.pre_filter, nominator)
        BindingPoints.__init__(self, self.timing, points)
        self._filter_rows = [each.name in self.filters_by_rows for each in self.filter]
        self._score_rows = [isinstance(each, ScoreRowsPlugin) for each in self.score]
        self._normalizes = [isinstance(each, NormalizeScorePlugin) for each in self.score]
        self._score_tables = ["score_table" in vars(type(each)) for each in self.score]  # not an inherited one
        self._row_local = {
            plugin.name
            for plugin in self.plugins.values()
            if getattr(plugin, "row_local", False)
            and (isinstance(plugin, FilterRowsPlugin) or plugin not in self.filter)
            and (isinstance(plugin, ScoreRowsPlugin) or plugin not in self.score)
        }
        local = [plugin for plugin in self.plugins.values() if plugin.name in self._row_local]
        self._one_by_one = all(
            (isinstance(each, FilterPlugin) or each not in self.filter)
            and (isinstance(each, ScorePlugin) or each not in self.score)
            for each in local
        )
        self._filters_of: dict[frozenset[str], _Filters] = {}  # by the plugins that are skipped
        self._local_scores_of: dict[frozenset[str], _LocalScores] = {}
        self._check_all_filters = profile.check_all_filters
        self._class_cache = ClassCache() if class_cache and not profile.check_all_filters else None

    # --- Queue -----------------------------------------------------------------------------------------------------

    @property
    def queue_sort(self) -> QueueSortPlugin:
        return self._queue_sort[0]

    def event_plugins(self) -> list[Plugin]:
        """The plugins whose verdicts keep a pod waiting, so that their events wake it."""
        rejecting = {id(p) for p in (*self.pre_enqueue, *self.pre_filter, *self.filter, *self.post_filter)}
        rejecting |= {id(p) for p in (*self._reserve, *self._permit)}
        return [plugin for plugin in self.plugins.values() if id(plugin) in rejecting]

    # --- Filtering -------------------------------------------------------------------------------------------------

    @observed("PreFilter")
    def run_pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> tuple[frozenset[str] | None, Status | None, list[str]]:
        """(node names to which the pod is confined, or None; rejection; the plugins that confine it, sorted).

        Raises SchedulingError if a plugin fails.
        """
        names: frozenset[str] | None = None
        rejection: Status | None = None
        confining: set[str] = set()
        for plugin in self.pre_filter:
            result: PreFilterResult | None = None
            try:
                if state.measured:
                    result, status = self.timing.plugin("PreFilter", plugin, plugin.pre_filter, state, pod, snapshot)
                else:
                    result, status = plugin.pre_filter(state, pod, snapshot)
                status_of(status)
            except Exception as error:
                status = raised(plugin, error)
            if status is not None and status.code is not Code.SUCCESS:
                if status.code is Code.SKIP:
                    state.skip_filter.add(plugin.name)
                    continue
                status = named(status, plugin.name)
                if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                    return None, status, []
                if status.code is not Code.UNSCHEDULABLE:
                    raise SchedulingError(f'running PreFilter plugin "{plugin.name}": {status.message}', plugin.name)
                rejection = status  # preemption may help, and needs the state of the plugins that follow
                continue
            if result is None or result.node_names is None:
                continue
            confining.add(plugin.name)
            names = result.node_names if names is None else names & result.node_names
            if not names:
                which = sorted(confining)
                text = f"node(s) didn't satisfy plugin {which[0]}"
                if len(which) > 1:
                    text = f"node(s) didn't satisfy plugin(s) [{' '.join(which)}] simultaneously"
                return names, Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (text,)), which
        return names, rejection, sorted(confining)

    @observed("Filter")
    def run_filters(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, diagnosis: Diagnosis
    ) -> Rows:
        """Which of `rows`, ascending, can take the pod; why the others cannot goes into `diagnosis`.

        On nodes to which pods of the same or higher priority are nominated, the pod must fit both with and without
        them. Raises SchedulingError if a plugin fails.
        """
        if self._class_cache is not None and rows is snapshot.all_rows:
            left = self._run_filters_by_class(self._class_cache, state, pod, snapshot, diagnosis)
        else:
            left = self._run_filters_afresh(state, pod, snapshot, rows, diagnosis)
        if not self._nominator().nodes():
            return left
        return self._fit_with_nominated(state, pod, snapshot, rows, left, diagnosis)

    def _run_filters_afresh(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, diagnosis: Diagnosis
    ) -> Rows:
        if self._check_all_filters:
            return self._run_all_filters(state, pod, snapshot, rows, diagnosis)
        left = rows
        for plugin, by_rows in zip(self.filter, self._filter_rows, strict=True):
            if plugin.name in state.skip_filter:
                continue
            if len(left) == 0:
                break
            if by_rows:
                passed = self._filter_by_rows(plugin, state, pod, snapshot, left, diagnosis)
            else:
                passed = self._filter_one_by_one(plugin, state, pod, snapshot, left, diagnosis)
            left = left if passed.all() else left[passed]
        return left

    def _run_filters_by_class(
        self, cache: ClassCache, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> Rows:
        """As _run_filters_afresh on all rows, but what row-local filters said of unchanged rows is not asked again."""
        local, others = self._applying_filters(state)
        results = cache.results(pod, snapshot)
        try:
            results.refresh_filters(local, self.timing.plugin, state, pod, snapshot, one_by_one=self._one_by_one)
        except Exception:  # which plugin it was, and on which node, shows when they are asked one by one
            return self._run_filters_afresh(state, pod, snapshot, snapshot.all_rows, diagnosis)
        first = results.first_rejecting
        rejected = not bool((first == PASSED).all())
        for number, plugin in others:
            candidates = np.flatnonzero(first > number) if rejected else snapshot.all_rows
            if len(candidates) == 0:
                continue
            by_rows = self._filter_rows[number]
            run = self._filter_by_rows if by_rows else self._filter_one_by_one
            passed = run(plugin, state, pod, snapshot, candidates, diagnosis)
            if not passed.all():
                first = first.copy()
                first[candidates[~passed]] = number
                rejected = True
        if not rejected:
            return snapshot.all_rows
        for number, plugin in local:
            rows = np.flatnonzero(first == number)
            if len(rows):
                explain = NodeRejections(plugin, state, pod, snapshot, results)
                status = explain(int(rows[0]))
                if not status.is_rejection:
                    raise SchedulingError(status.message, plugin.name)
                diagnosis.node_to_status.reject_rows(plugin.name, rows, explain)
                diagnosis.note(status)
        return np.flatnonzero(first == PASSED)

    def _applying_filters(self, state: CycleState) -> _Filters:
        """The filters that are not skipped, with their numbers: (row-local ones, others)."""
        skipped = frozenset(state.skip_filter)
        found = self._filters_of.get(skipped)
        if found is None:
            applying = [each for each in enumerate(self.filter) if each[1].name not in skipped]
            found = self._filters_of[skipped] = (
                [each for each in applying if each[1].name in self._row_local],
                [each for each in applying if each[1].name not in self._row_local],
            )
        return found

    def _run_all_filters(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, diagnosis: Diagnosis
    ) -> Rows:
        """Node by node, and on each by every filter, so that all reasons are told."""
        feasible = np.ones(len(rows), np.bool_)
        for index, row in enumerate(rows.tolist()):
            node = snapshot.node_infos[row]
            statuses = []
            for plugin in self.filter:
                if plugin.name not in state.skip_filter:
                    status = filter_node(plugin, state, pod, node)
                    if status is not None and not status.is_rejection:
                        raise SchedulingError(status.message, plugin.name)
                    if status is not None:
                        statuses.append(status)
                        diagnosis.note(status)
            if statuses:
                feasible[index] = False
                code = max(status.code for status in statuses)  # unresolvable by one is unresolvable
                reasons = tuple(reason for status in statuses for reason in status.reasons)
                diagnosis.node_to_status.set(node.name, Status(code, reasons, statuses[0].plugin))
        return rows[feasible]

    def _filter_by_rows(
        self, plugin: Any, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, diagnosis: Diagnosis
    ) -> Mask:
        try:
            verdicts: RowFilterResult = self.timing.plugin(
                "Filter", plugin, plugin.filter_rows, state, pod, snapshot, rows
            )
            _check_length(verdicts.passed, rows)
        except Exception as error:
            status = raised(plugin, error)
            raise SchedulingError(f'running "{plugin.name}" filter plugin: {status.message}', plugin.name) from error
        passed = verdicts.passed
        if not passed.all():
            rejected = np.flatnonzero(~passed)
            explain = RowRejections(plugin.name, rows, verdicts.explain, of_all(plugin, state, pod, snapshot))
            first = explain.at(int(rejected[0]))
            if not first.is_rejection:
                raise SchedulingError(f'running "{plugin.name}" filter plugin: {first.message}', plugin.name)
            diagnosis.node_to_status.reject_rows(plugin.name, rows[rejected], explain)
            diagnosis.note(first)
        return passed

    def _filter_one_by_one(
        self, plugin: Any, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, diagnosis: Diagnosis
    ) -> Mask:
        passed = np.ones(len(rows), np.bool_)
        infos = snapshot.node_infos
        for index, row in enumerate(rows.tolist()):
            status = filter_node(plugin, state, pod, infos[row])
            if status is not None:
                if not status.is_rejection:
                    raise SchedulingError(status.message, plugin.name)
                passed[index] = False
                diagnosis.node_to_status.set(infos[row].name, status)
                diagnosis.note(status)
        return passed

    def _fit_with_nominated(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, left: Rows, diagnosis: Diagnosis
    ) -> Rows:
        """Those of `left` where the pod fits beside the nominated pods, too. All of `rows` that have any are judged:
        the reasons told are those beside them."""
        nominator, dry_runs, row_of = self._nominator(), NodeDryRuns(self, state, pod), snapshot.row_of
        keep = np.zeros(len(snapshot), np.bool_)
        keep[left] = True
        one_by_one: Iterable[str] = nominator.nodes()
        if self._class_cache is not None and rows is snapshot.all_rows and dry_runs.only_sums:
            by_priority = self._class_cache.results(pod, snapshot).nominated_fits
            beside = by_priority.setdefault(pod.priority, NominatedFitCache())
            own_node = nominator.node_of(pod.uid)
            rejected, reasons = beside.rejections(
                snapshot, nominator, own_node, lambda node: self._filter_with_nominated(dry_runs, pod, node)
            )
            if len(rejected):
                diagnosis.node_to_status.override_rows(rejected, reasons)
                for code in np.flatnonzero(np.bincount(reasons.codes)).tolist():
                    diagnosis.note(reasons.statuses[code])
                keep[rejected] = False
            one_by_one = [own_node] if own_node else []
        among = None if rows is snapshot.all_rows else set(rows.tolist())
        for row in sorted(row_of[name] for name in one_by_one if name in row_of):
            node = snapshot.node_infos[row]
            status = self._filter_with_nominated(dry_runs, pod, node) if among is None or row in among else None
            if status is not None:
                diagnosis.node_to_status.set(node.name, status)
                diagnosis.note(status)
                keep[row] = False
        return np.flatnonzero(keep)

    def _filter_with_nominated(self, dry_runs: NodeDryRuns, pod: PodInfo, node: NodeInfo) -> Status | None:
        """The verdict beside the pods nominated to the node, if there are any. Raises SchedulingError."""
        status = dry_runs(node).run_filters() if self.nominated(pod, node.name) else None
        if status is not None and not status.is_rejection:
            raise SchedulingError(status.message, status.plugin)
        return status

    @awaited_observed("PostFilter")
    async def run_post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, statuses: NodeToStatusReader
    ) -> tuple[PostFilterResult | None, Status]:
        """What PostFilter plugins can do for a pod that fits nowhere, and what they say (reasons joined by ", ").

        Source: RunPostFilterPlugins: success or UnschedulableAndUnresolvable ends it; an error does, too.
        """
        result: PostFilterResult | None = None
        reasons: list[str] = []
        rejected_by = ""
        for plugin in self.post_filter:
            answer: PostFilterResult | None = None
            try:
                answer, status = await self.timing.awaited_plugin(
                    "PostFilter", plugin, _post_filter(plugin), state, pod, snapshot, statuses
                )
                status_of(status)
            except Exception as error:
                status = raised(plugin, error)
                status = Status(
                    Code.ERROR, (f'running PostFilter plugin "{plugin.name}": {status.message}',), plugin.name, error
                )
            if status is None or status.code is Code.SUCCESS:
                return answer, Status(Code.SUCCESS, plugin=plugin.name)
            if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return answer, named(status, plugin.name)
            if not status.is_rejection:
                return None, Status(Code.ERROR, status.reasons, plugin.name, status.error)
            if answer is not None:
                result = answer
            reasons.extend(status.reasons)
            rejected_by = rejected_by or plugin.name
        return result, Status(Code.UNSCHEDULABLE, tuple(reasons), rejected_by)

    # --- Scoring ---------------------------------------------------------------------------------------------------

    @property
    def has_score_plugins(self) -> bool:
        return bool(self.score)

    @observed("PreScore")
    def run_pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> None:
        """Raises SchedulingError if a plugin fails."""
        for plugin in self.pre_score:
            try:
                if state.measured:
                    status = self.timing.plugin("PreScore", plugin, plugin.pre_score, state, pod, snapshot, rows)
                else:
                    status = plugin.pre_score(state, pod, snapshot, rows)
                status_of(status)
            except Exception as error:
                status = raised(plugin, error)
            if status is None or status.code is Code.SUCCESS:
                continue
            if status.code is not Code.SKIP:
                raise SchedulingError(f'running PreScore plugin "{plugin.name}": {status.message}', plugin.name)
            state.skip_score.add(plugin.name)

    @observed("Score")
    def run_scores(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> ScoredRows:
        """Normalised and weighted scores of the feasible `rows`. Raises SchedulingError if a plugin fails."""
        by_plugin: dict[str, Scores] = {}
        results = self._scored_by_class(state, pod, snapshot)
        all_rows = rows is snapshot.all_rows
        if results is None:
            totals = np.zeros(len(rows), np.int64)
        else:
            totals = results.base.copy() if all_rows else results.base[rows]
        for plugin, by_rows, normalizes, tabulates in zip(
            self.score, self._score_rows, self._normalizes, self._score_tables, strict=True
        ):
            if plugin.name in state.skip_score:
                continue
            if tabulates and results is not None:
                table = self._score_table(plugin, state, pod, snapshot, rows)
                if table is not None:
                    weighted = (table.scores * self.weights[plugin.name]).take(table.places, mode="clip")
                    by_plugin[plugin.name] = weighted
                    totals += weighted
                    continue
            if results is not None and plugin.name in self._row_local:
                if not normalizes:
                    continue
                raw = results.raw[plugin.name]
                if all_rows:
                    kept = results.weighted.get(plugin.name)
                    if kept is None:
                        normalized = self._normalized(plugin, True, state, pod, snapshot, rows, raw)
                        kept = results.weighted[plugin.name] = compact(normalized * self.weights[plugin.name])
                    by_plugin[plugin.name] = kept
                    totals += kept
                    continue
                raw = raw[rows]
            else:
                raw = self._raw_scores(plugin, by_rows, state, pod, snapshot, rows)
            scores = self._normalized(plugin, normalizes, state, pod, snapshot, rows, raw)
            weight = self.weights[plugin.name]
            weighted = scores if weight == 1 else scores * weight
            by_plugin[plugin.name] = weighted
            totals += weighted
        return ScoredRows(rows, totals, by_plugin)

    def _scored_by_class(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> ClassResults | None:
        """The scores of row-local plugins for the pod's class, brought up to date; None: score afresh."""
        if self._class_cache is None:
            return None
        results = self._class_cache.results(pod, snapshot)
        if results.filter_generation != snapshot.generation:
            return None  # its filters were not run on all nodes in this cycle
        try:
            results.refresh_scores(
                *self._applying_local_scores(state),
                self.weights,
                _check_range,
                self.timing.plugin,
                state,
                pod,
                snapshot,
                one_by_one=self._one_by_one,
            )
        except Exception:  # which plugin it was shows when they are asked one by one, about the feasible nodes alone
            return None
        return results

    def _applying_local_scores(self, state: CycleState) -> _LocalScores:
        """The row-local score plugins that are not skipped: (those not to be normalised, the others, all names)."""
        skipped = frozenset(state.skip_score)
        found = self._local_scores_of.get(skipped)
        if found is None:
            local = [
                each
                for each in zip(self.score, self._normalizes, strict=True)
                if each[0].name in self._row_local and each[0].name not in skipped
            ]
            plain = [plugin for plugin, normalizes in local if not normalizes]
            normalizing = [plugin for plugin, normalizes in local if normalizes]
            names = tuple(plugin.name for plugin in (*plain, *normalizing))
            found = self._local_scores_of[skipped] = (plain, normalizing, names)
        return found

    def _score_table(
        self, plugin: Any, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows
    ) -> ScoreTable | None:
        try:
            table: ScoreTable | None = self.timing.plugin(
                "Score", plugin, plugin.score_table, state, pod, snapshot, rows
            )
        except Exception as error:
            status = raised(plugin, error)
            raise SchedulingError(f'running Score plugin "{plugin.name}": {status.message}', plugin.name) from error
        if table is not None:
            _check_range(plugin, table.scores)
        return table

    def _raw_scores(
        self, plugin: Any, by_rows: bool, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows
    ) -> Scores:
        try:
            if by_rows:
                scores = self.timing.plugin(
                    "Score", plugin, cast("ScoreRows", plugin.score_rows), state, pod, snapshot, rows
                )
                _check_length(scores, rows)
                return scores
            infos = snapshot.node_infos

            def one_by_one(state: CycleState) -> Scores:
                return np.array([plugin.score(state, pod, infos[row]) for row in rows.tolist()], np.int64)

            return self.timing.plugin("Score", plugin, one_by_one, state)
        except Exception as error:
            status = raised(plugin, error)
            raise SchedulingError(f'running Score plugin "{plugin.name}": {status.message}', plugin.name) from error

    def _normalized(
        self,
        plugin: Any,
        normalizes: bool,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        rows: Rows,
        raw: Scores,
    ) -> Scores:
        scores = raw
        if normalizes:
            try:
                normalize = cast("Normalize", plugin.normalize_scores)
                point = "ScoreExtensionNormalize"
                scores = self.timing.plugin(point, plugin, normalize, state, pod, snapshot, rows, raw)
                _check_length(scores, rows)
            except Exception as error:
                status = raised(plugin, error)
                text = f'running NormalizeScore for plugin "{plugin.name}": {status.message}'
                raise SchedulingError(text, plugin.name) from error
        _check_range(plugin, scores)
        return scores


def _check_length(array: npt.NDArray[Any], rows: Rows) -> None:
    """Raises TypeError for what numpy would stretch to fit."""
    if array.shape != rows.shape:
        raise TypeError(f"answered an array of shape {array.shape} for {len(rows)} nodes")


_FEW_SCORES = 8  # looked at faster one by one


def _post_filter(
    plugin: PostFilterPlugin,
) -> Callable[..., Awaitable[PostFilterReturn]]:
    """The plugin's method, which need not wait, as one that does."""

    async def answered(*args: Any) -> PostFilterReturn:
        answer = plugin.post_filter(*args)
        return await answer if isinstance(answer, Awaitable) else answer

    return answered


def _check_range(plugin: Plugin, scores: Scores) -> None:
    """Raises SchedulingError if a score is out of bounds."""
    if len(scores) <= _FEW_SCORES:
        fine = all(MIN_NODE_SCORE <= score <= MAX_NODE_SCORE for score in scores.tolist())
    elif scores.dtype == np.int64:
        scores = np.ascontiguousarray(scores)
        highest = scores.view(np.uint64).max()  # there negative numbers are the greatest
        fine = bool(highest <= MAX_NODE_SCORE)
    else:
        fine = bool(scores.min() >= MIN_NODE_SCORE and scores.max() <= MAX_NODE_SCORE)
    if not fine:
        wrong = int(scores[(scores < MIN_NODE_SCORE) | (scores > MAX_NODE_SCORE)][0])
        raise SchedulingError(
            f'plugin "{plugin.name}" returns an invalid score {wrong}, it should in the range of '
            f"[{MIN_NODE_SCORE}, {MAX_NODE_SCORE}] after normalizing",
            plugin.name,
        )
