"""The framework runtime: runs the plugins of one profile at their extension points.

A plugin that raises fails the attempt of that pod, with the plugin's name in the event, never the scheduler. Filters
run in the order of the profile: those with an array form on the rows that are left, the others node by node.
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
from kubeloop.scheduler.framework.plugin_calls import checked_status, filter_node, status_of_exception, with_plugin_name
from kubeloop.scheduler.framework.profile_plugins import check_points, enabled_plugins, plugins_at
from kubeloop.scheduler.framework.registry import Registry, create_plugin
from kubeloop.scheduler.framework.rejection_reasons import NodeRejections, RowRejections, explain_all
from kubeloop.scheduler.framework.timing import Timing, observed, observed_async
from kubeloop.scheduler.metrics_protocol import SchedulerMetrics
from kubeloop.scheduler.queue.nominator import Nominator

log = logging.getLogger(__name__)

_Filters = tuple[list[tuple[int, Any]], list[tuple[int, Any]]]
_LocalScores = tuple[list[Any], list[Any], tuple[str, ...]]
ScoreRows = Callable[[CycleState, PodInfo, Snapshot, Rows], Scores]
Normalize = Callable[[CycleState, PodInfo, Snapshot, Rows, Scores], Scores]


class SchedulingError(Exception):
    """A scheduling attempt ended with an error, not with a rejection. The text is that of the event."""

    def __init__(self, message: str, plugin: str = "") -> None:
        super().__init__(message)
        self.plugin = plugin


class ScoredRows(msgspec.Struct, frozen=True):
    """rows int [K] of the snapshot; totals int64 [K]; by_plugin: weighted scores int64 [K] of each plugin."""

    rows: Rows
    totals: Scores
    by_plugin: Mapping[str, Scores]


class Framework(NodeFilters, BindingPoints):
    """The plugins of one profile at their extension points.

    plugins: by name. weights: of the score plugins. pre_enqueue ... post_bind: in the order of the profile.
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
        """Create the plugins. Raises UserError with kube-scheduler's message for an invalid profile."""
        self.profile_name = profile.scheduler_name
        self.percentage_of_nodes_to_score = profile.percentage_of_nodes_to_score
        self.timing = Timing(metrics, profile.scheduler_name, handle.clock.time_ns)
        self.plugins: dict[str, Plugin] = {}
        for ref in enabled_plugins(profile):
            if ref.name not in self.plugins:
                self.plugins[ref.name] = create_plugin(ref.name, profile.args.get(ref.name), handle, registry)
        refs = {point: plugins_at(point, profile, self.plugins) for point in EXTENSION_POINTS}
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
        self._filter_rows = [plugin.name in self.filters_by_rows for plugin in self.filter]
        self._score_rows = [isinstance(plugin, ScoreRowsPlugin) for plugin in self.score]
        self._normalizes = [isinstance(plugin, NormalizeScorePlugin) for plugin in self.score]
        self._score_tables = ["score_table" in vars(type(plugin)) for plugin in self.score]  # not an inherited one
        self._row_local = {
            plugin.name
            for plugin in self.plugins.values()
            if getattr(plugin, "row_local", False)
            and (isinstance(plugin, FilterRowsPlugin) or plugin not in self.filter)
            and (isinstance(plugin, ScoreRowsPlugin) or plugin not in self.score)
        }
        local = [plugin for plugin in self.plugins.values() if plugin.name in self._row_local]
        self._can_run_per_node = all(
            (isinstance(plugin, FilterPlugin) or plugin not in self.filter)
            and (isinstance(plugin, ScorePlugin) or plugin not in self.score)
            for plugin in local
        )
        self._filters_of: dict[frozenset[str], _Filters] = {}  # by the skipped plugins
        self._local_scores_of: dict[frozenset[str], _LocalScores] = {}
        self._check_all_filters = profile.check_all_filters
        self._class_cache = ClassCache() if class_cache and not profile.check_all_filters else None

    # --- Queue -----------------------------------------------------------------------------------------------------

    @property
    def queue_sort(self) -> QueueSortPlugin:
        return self._queue_sort[0]

    def event_plugins(self) -> list[Plugin]:
        """Return the plugins that can reject a pod: their events make it schedulable again."""
        rejecting = {id(p) for p in (*self.pre_enqueue, *self.pre_filter, *self.filter, *self.post_filter)}
        rejecting |= {id(p) for p in (*self._reserve, *self._permit)}
        return [plugin for plugin in self.plugins.values() if id(plugin) in rejecting]

    # --- Filtering -------------------------------------------------------------------------------------------------

    @observed("PreFilter")
    def run_pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> tuple[frozenset[str] | None, Status | None, list[str]]:
        """Return (the only node names that can be feasible, or None; rejection; the plugins that limit them, sorted).

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
                checked_status(status)
            except Exception as error:
                status = status_of_exception(plugin, error)
            if status is not None and status.code is not Code.SUCCESS:
                if status.code is Code.SKIP:
                    state.skip_filter.add(plugin.name)
                    continue
                status = with_plugin_name(status, plugin.name)
                if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                    return None, status, []
                if status.code is not Code.UNSCHEDULABLE:
                    raise SchedulingError(f'running PreFilter plugin "{plugin.name}": {status.message}', plugin.name)
                rejection = status  # the following plugins still run: preemption may help, and needs their state
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
        """Return those of `rows`, ascending, that fit the pod; statuses of the others go into `diagnosis`.

        On nodes to which pods of the same or higher priority are nominated, the pod must fit both with and without
        them. Raises SchedulingError if a plugin fails.
        """
        if self._class_cache is not None and rows is snapshot.all_rows:
            left = self._run_filters_by_class(self._class_cache, state, pod, snapshot, diagnosis)
        else:
            left = self._run_filters_uncached(state, pod, snapshot, rows, diagnosis)
        if not self._nominator().nodes():
            return left
        return self._fit_with_nominated(state, pod, snapshot, rows, left, diagnosis)

    def _run_filters_uncached(
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
                passed = self._filter_per_node(plugin, state, pod, snapshot, left, diagnosis)
            left = left if passed.all() else left[passed]
        return left

    def _run_filters_by_class(
        self, cache: ClassCache, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> Rows:
        """Run the filters on all rows; row-local filters run only for rows that changed since the class's last pod."""
        local, others = self._applying_filters(state)
        results = cache.results(pod, snapshot)
        try:
            results.refresh_filters(local, self.timing.plugin, state, pod, snapshot, per_node=self._can_run_per_node)
        except Exception:  # the uncached run attributes the error to its plugin and node
            return self._run_filters_uncached(state, pod, snapshot, snapshot.all_rows, diagnosis)
        first = results.first_rejecting
        rejected = not bool((first == PASSED).all())
        for number, plugin in others:
            candidates = np.flatnonzero(first > number) if rejected else snapshot.all_rows
            if len(candidates) == 0:
                continue
            by_rows = self._filter_rows[number]
            run = self._filter_by_rows if by_rows else self._filter_per_node
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
        """Return the filters that are not skipped, with their numbers: (row-local filters, others)."""
        skipped = frozenset(state.skip_filter)
        filters = self._filters_of.get(skipped)
        if filters is None:
            applying = [(number, plugin) for number, plugin in enumerate(self.filter) if plugin.name not in skipped]
            filters = self._filters_of[skipped] = (
                [(number, plugin) for number, plugin in applying if plugin.name in self._row_local],
                [(number, plugin) for number, plugin in applying if plugin.name not in self._row_local],
            )
        return filters

    def _run_all_filters(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, diagnosis: Diagnosis
    ) -> Rows:
        """Run every filter on every node, so that all reasons are reported (checkAllFilters)."""
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
                code = max(status.code for status in statuses)  # unresolvable for one filter is unresolvable
                reasons = tuple(reason for status in statuses for reason in status.reasons)
                diagnosis.node_to_status.set(node.name, Status(code, reasons, statuses[0].plugin))
        return rows[feasible]

    def _filter_by_rows(
        self, plugin: Any, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, diagnosis: Diagnosis
    ) -> Mask:
        try:
            result: RowFilterResult = self.timing.plugin(
                "Filter", plugin, plugin.filter_rows, state, pod, snapshot, rows
            )
            _check_length(result.passed, rows)
        except Exception as error:
            status = status_of_exception(plugin, error)
            raise SchedulingError(f'running "{plugin.name}" filter plugin: {status.message}', plugin.name) from error
        passed = result.passed
        if not passed.all():
            rejected = np.flatnonzero(~passed)
            explain = RowRejections(plugin.name, rows, result.explain, explain_all(plugin, state, pod, snapshot))
            first = explain.status_at(int(rejected[0]))
            if not first.is_rejection:
                raise SchedulingError(f'running "{plugin.name}" filter plugin: {first.message}', plugin.name)
            diagnosis.node_to_status.reject_rows(plugin.name, rows[rejected], explain)
            diagnosis.note(first)
        return passed

    def _filter_per_node(
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
        """Return those of `left` where the pod also fits with the nominated pods.

        All of `rows` with nominated pods are filtered again: their statuses are those with the nominated pods.
        """
        nominator, dry_runs, row_of = self._nominator(), NodeDryRuns(self, state, pod), snapshot.row_of
        fits = np.zeros(len(snapshot), np.bool_)
        fits[left] = True
        node_names: Iterable[str] = nominator.nodes()
        if self._class_cache is not None and rows is snapshot.all_rows and dry_runs.only_sums:
            by_priority = self._class_cache.results(pod, snapshot).nominated_fits
            cache = by_priority.setdefault(pod.priority, NominatedFitCache())
            own_node = nominator.node_of(pod.uid)
            rejected, statuses = cache.rejections(
                snapshot, nominator, own_node, lambda node: self._filter_with_nominated(dry_runs, pod, node)
            )
            if len(rejected):
                diagnosis.node_to_status.override_rows(rejected, statuses)
                for code in np.flatnonzero(np.bincount(statuses.codes)).tolist():
                    diagnosis.note(statuses.statuses[code])
                fits[rejected] = False
            node_names = [own_node] if own_node else []
        row_set = None if rows is snapshot.all_rows else set(rows.tolist())
        for row in sorted(row_of[name] for name in node_names if name in row_of):
            node = snapshot.node_infos[row]
            status = self._filter_with_nominated(dry_runs, pod, node) if row_set is None or row in row_set else None
            if status is not None:
                diagnosis.node_to_status.set(node.name, status)
                diagnosis.note(status)
                fits[row] = False
        return np.flatnonzero(fits)

    def _filter_with_nominated(self, dry_runs: NodeDryRuns, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Run the filters with the pods nominated to the node, if there are any. Raises SchedulingError."""
        status = dry_runs(node).run_filters() if self.nominated_pods(pod, node.name) else None
        if status is not None and not status.is_rejection:
            raise SchedulingError(status.message, status.plugin)
        return status

    @observed_async("PostFilter")
    async def run_post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, statuses: NodeToStatusReader
    ) -> tuple[PostFilterResult | None, Status]:
        """Run the PostFilter plugins. Returns the result and a status whose reasons are those of all plugins.

        Source: RunPostFilterPlugins: success or UnschedulableAndUnresolvable ends it; an error does, too.
        """
        result: PostFilterResult | None = None
        reasons: list[str] = []
        rejected_by = ""
        for plugin in self.post_filter:
            plugin_result: PostFilterResult | None = None
            try:
                plugin_result, status = await self.timing.async_plugin(
                    "PostFilter", plugin, _post_filter(plugin), state, pod, snapshot, statuses
                )
                checked_status(status)
            except Exception as error:
                status = status_of_exception(plugin, error)
                status = Status(
                    Code.ERROR, (f'running PostFilter plugin "{plugin.name}": {status.message}',), plugin.name, error
                )
            if status is None or status.code is Code.SUCCESS:
                return plugin_result, Status(Code.SUCCESS, plugin=plugin.name)
            if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return plugin_result, with_plugin_name(status, plugin.name)
            if not status.is_rejection:
                return None, Status(Code.ERROR, status.reasons, plugin.name, status.error)
            if plugin_result is not None:
                result = plugin_result
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
                checked_status(status)
            except Exception as error:
                status = status_of_exception(plugin, error)
            if status is None or status.code is Code.SUCCESS:
                continue
            if status.code is not Code.SKIP:
                raise SchedulingError(f'running PreScore plugin "{plugin.name}": {status.message}', plugin.name)
            state.skip_score.add(plugin.name)

    @observed("Score")
    def run_scores(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> ScoredRows:
        """Return normalized and weighted scores of the feasible `rows`. Raises SchedulingError if a plugin fails."""
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
                    weighted = (table.scores * self.weights[plugin.name]).take(table.indexes, mode="clip")
                    by_plugin[plugin.name] = weighted
                    totals += weighted
                    continue
            if results is not None and plugin.name in self._row_local:
                if not normalizes:
                    continue
                raw = results.raw[plugin.name]
                if all_rows:
                    cached = results.weighted.get(plugin.name)
                    if cached is None:
                        normalized = self._normalized(plugin, True, state, pod, snapshot, rows, raw)
                        cached = results.weighted[plugin.name] = compact(normalized * self.weights[plugin.name])
                    by_plugin[plugin.name] = cached
                    totals += cached
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
        """Return the scores of row-local plugins for the pod's class, refreshed; None: they cannot be cached."""
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
                per_node=self._can_run_per_node,
            )
        except Exception:  # the uncached run, for feasible nodes only, attributes the error to its plugin
            return None
        return results

    def _applying_local_scores(self, state: CycleState) -> _LocalScores:
        """Return the row-local score plugins that are not skipped: (without normalization, with it, all names)."""
        skipped = frozenset(state.skip_score)
        local_scores = self._local_scores_of.get(skipped)
        if local_scores is None:
            local = [
                (plugin, normalizes)
                for plugin, normalizes in zip(self.score, self._normalizes, strict=True)
                if plugin.name in self._row_local and plugin.name not in skipped
            ]
            plain = [plugin for plugin, normalizes in local if not normalizes]
            normalizing = [plugin for plugin, normalizes in local if normalizes]
            names = tuple(plugin.name for plugin in (*plain, *normalizing))
            local_scores = self._local_scores_of[skipped] = (plain, normalizing, names)
        return local_scores

    def _score_table(
        self, plugin: Any, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows
    ) -> ScoreTable | None:
        try:
            table: ScoreTable | None = self.timing.plugin(
                "Score", plugin, plugin.score_table, state, pod, snapshot, rows
            )
        except Exception as error:
            status = status_of_exception(plugin, error)
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

            def score_nodes(state: CycleState) -> Scores:
                return np.array([plugin.score(state, pod, infos[row]) for row in rows.tolist()], np.int64)

            return self.timing.plugin("Score", plugin, score_nodes, state)
        except Exception as error:
            status = status_of_exception(plugin, error)
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
                status = status_of_exception(plugin, error)
                text = f'running NormalizeScore for plugin "{plugin.name}": {status.message}'
                raise SchedulingError(text, plugin.name) from error
        _check_range(plugin, scores)
        return scores


def _check_length(array: npt.NDArray[Any], rows: Rows) -> None:
    """Raise TypeError for an array of another length, which numpy might broadcast."""
    if array.shape != rows.shape:
        raise TypeError(f"returned an array of shape {array.shape} for {len(rows)} nodes")


_FEW_SCORES = 8  # up to this many, a Python loop is faster than array operations


def _post_filter(
    plugin: PostFilterPlugin,
) -> Callable[..., Awaitable[PostFilterReturn]]:
    """Return the plugin's post_filter as a coroutine function, whether or not it is one."""

    async def post_filter(*args: Any) -> PostFilterReturn:
        result = plugin.post_filter(*args)
        return await result if isinstance(result, Awaitable) else result

    return post_filter


def _check_range(plugin: Plugin, scores: Scores) -> None:
    """Raise SchedulingError if a score is out of range."""
    if len(scores) <= _FEW_SCORES:
        in_range = all(MIN_NODE_SCORE <= score <= MAX_NODE_SCORE for score in scores.tolist())
    elif scores.dtype == np.int64:
        scores = np.ascontiguousarray(scores)
        highest = scores.view(np.uint64).max()  # as uint64, negative numbers are the greatest
        in_range = bool(highest <= MAX_NODE_SCORE)
    else:
        in_range = bool(scores.min() >= MIN_NODE_SCORE and scores.max() <= MAX_NODE_SCORE)
    if not in_range:
        wrong = int(scores[(scores < MIN_NODE_SCORE) | (scores > MAX_NODE_SCORE)][0])
        raise SchedulingError(
            f'plugin "{plugin.name}" returns an invalid score {wrong}, it should in the range of '
            f"[{MIN_NODE_SCORE}, {MAX_NODE_SCORE}] after normalizing",
            plugin.name,
        )
