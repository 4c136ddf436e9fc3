"""The extension points that find the nodes a pod fits: PreFilter, Filter, and PostFilter if there are none.

Filters run in the order of the profile: those with an array form on the rows that are left, the others node by node.
Axes: N nodes, K rows. Source: pkg/scheduler/framework/runtime of v1.36.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, cast

import numpy as np

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import (
    FilterPlugin,
    FilterRowsPlugin,
    NodeToStatusReader,
    Plugin,
    PostFilterPlugin,
    PostFilterResult,
    PostFilterReturn,
    PreFilterPlugin,
    PreFilterResult,
    RowFilterResult,
)
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.arrays import Mask, Rows, check_length
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.class_cache import FEW_ROWS, PASSED, ClassCache, ClassResults
from kubeloop.scheduler.framework.dry_run import NodeDryRuns
from kubeloop.scheduler.framework.fit_error import Diagnosis
from kubeloop.scheduler.framework.node_filters import NodeFilters
from kubeloop.scheduler.framework.nominated_fit_cache import NominatedFitCache
from kubeloop.scheduler.framework.plugin_calls import (
    SchedulingError,
    aggregated,
    checked_status,
    filter_error,
    filter_node,
    status_of_exception,
    with_plugin_name,
)
from kubeloop.scheduler.framework.profile_plugins import extends
from kubeloop.scheduler.framework.rejection_reasons import NodeRejections, RowRejections, explain_all
from kubeloop.scheduler.framework.status_codes import NO_STATUS
from kubeloop.scheduler.framework.timing import Timing, observed, observed_async
from kubeloop.scheduler.queue.nominator import Nominator

_MAX_ERRORS = 16  # of one attempt, after which filtering ends: each may be logged with a traceback

_NumberedFilters = list[tuple[int, Any]]
"""Filter plugins with their numbers in the profile."""


class FilterPoints:
    """PreFilter, Filter and PostFilter plugins of one profile, in its order; `filter` are those of node_filters."""

    def __init__(
        self,
        timing: Timing,
        points: Mapping[str, Sequence[Plugin]],
        node_filters: NodeFilters,
        nominator: Nominator,
        class_cache: ClassCache | None,
        *,
        check_all_filters: bool,
    ) -> None:
        """check_all_filters: run every filter on every node, so that all reasons are reported."""
        self.timing = timing
        self.pre_filter = cast("Sequence[PreFilterPlugin]", points["preFilter"])
        self.filter = node_filters.filter
        self.post_filter = cast("Sequence[PostFilterPlugin]", points["postFilter"])
        self._node_filters = node_filters
        self._nominator = nominator
        self._class_cache = class_cache
        self._check_all_filters = check_all_filters
        self._by_rows = [plugin.name in node_filters.filters_by_rows for plugin in self.filter]
        row_local = [
            plugin
            for plugin in self.filter
            if getattr(plugin, "row_local", False) and extends(plugin, FilterRowsPlugin)
        ]
        self._row_local = {plugin.name for plugin in row_local}
        self._can_run_per_node = all(extends(plugin, FilterPlugin) for plugin in row_local)
        self._all_per_node = all(extends(plugin, FilterPlugin) for plugin in self.filter)
        self._filters_of: dict[frozenset[str], tuple[_NumberedFilters, _NumberedFilters]] = {}  # by skipped plugins

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
        them. Raises SchedulingError if plugins fail, with the messages of all.
        """
        rejected_before = diagnosis.unschedulable_plugins.copy() if self._nominator.nodes() else None
        if self._class_cache is not None and rows is snapshot.all_rows:
            left = self._run_filters_by_class(self._class_cache, state, pod, snapshot, diagnosis)
        else:
            left = self._run_filters_uncached(state, pod, snapshot, rows, diagnosis)
        if rejected_before is not None:
            left = self._fit_with_nominated(state, pod, snapshot, rows, left, diagnosis)
            if not self._check_all_filters:
                # A plugin that rejected nodes only without the nominated pods is not recorded for any node.
                recorded = diagnosis.node_to_status.plugins().keys()
                diagnosis.unschedulable_plugins &= rejected_before | recorded
        if diagnosis.errors:
            _raise(diagnosis.errors)
        return left

    def _run_filters_uncached(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, diagnosis: Diagnosis
    ) -> Rows:
        if self._check_all_filters:
            return self._run_all_filters(state, pod, snapshot, rows, diagnosis)
        if len(rows) <= FEW_ROWS and self._all_per_node and not state.measured:
            return self._run_filters_per_node(state, pod, snapshot, rows, diagnosis)
        left = rows
        for plugin, by_rows in zip(self.filter, self._by_rows, strict=True):
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

    def _run_filters_per_node(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, diagnosis: Diagnosis
    ) -> Rows:
        """Run the per-node filters on each of a few rows, such as the only node of a DaemonSet's pod."""
        infos = snapshot.node_infos
        fits = []
        for row in rows.tolist():
            status = self._node_filters.run_filters_on_node(state, pod, infos[row])
            fits.append(status is None)
            if status is None:
                continue
            if status.is_rejection:
                diagnosis.node_to_status.set(infos[row].name, status)
                diagnosis.note(status)
            else:
                _add_error(diagnosis, status)
        return rows if all(fits) else rows[fits]

    def _run_filters_by_class(
        self, cache: ClassCache, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> Rows:
        """Run the filters on all rows; row-local filters run only for rows that changed since the class's last pod."""
        local, others = self._applying_filters(state)
        results = cache.results(pod, snapshot)
        try:
            self._refresh(results, local, state, pod, snapshot)
        except Exception:  # the uncached run attributes the error to its plugin and node
            return self._run_filters_uncached(state, pod, snapshot, snapshot.all_rows, diagnosis)
        first = results.first_rejecting
        rejected = not bool((first == PASSED).all())
        for number, plugin in others:
            candidates = np.flatnonzero(first > number) if rejected else snapshot.all_rows
            if len(candidates) == 0:
                continue
            run = self._filter_by_rows if self._by_rows[number] else self._filter_per_node
            passed = run(plugin, state, pod, snapshot, candidates, diagnosis)
            if not passed.all():
                first = first.copy()
                first[candidates[~passed]] = number
                rejected = True
        if not rejected:
            return snapshot.all_rows
        for number, plugin in local:
            is_rejected = first == number
            if is_rejected.any():
                rows = np.flatnonzero(is_rejected)
                explain = NodeRejections(plugin, state, pod, snapshot, results)
                status = explain(int(rows[0]))
                if not status.is_rejection:
                    _add_error(diagnosis, status)
                    continue
                diagnosis.node_to_status.reject_rows(plugin.name, rows, explain)
                diagnosis.note(status)
        return np.flatnonzero(first == PASSED)

    def _refresh(
        self, results: ClassResults, filters: _NumberedFilters, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> None:
        """Bring `results.first_rejecting` up to date; if a filter raises, the results stay stale."""
        rows = snapshot.changed_since(results.filter_generation)
        if 0 < len(rows) <= FEW_ROWS and self._can_run_per_node:
            for row in rows.tolist():
                node = snapshot.node_infos[row]
                results.first_rejecting[row] = self._first_rejecting(filters, state, pod, node)
        elif len(rows):
            first_rejecting = np.full(len(rows), PASSED, np.int16)
            left = rows
            for number, plugin in filters:
                passed = self.timing.plugin("Filter", plugin, plugin.filter_rows, state, pod, snapshot, left).passed
                if not passed.all():
                    first_rejecting[np.searchsorted(rows, left[~passed])] = number
                    left = left[passed]
                    if len(left) == 0:
                        break
            results.first_rejecting[rows] = first_rejecting
        if results.statuses is not None and len(rows):
            results.statuses.codes[rows] = NO_STATUS
        results.filter_generation = snapshot.generation

    def _first_rejecting(self, filters: _NumberedFilters, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        for number, plugin in filters:
            if state.measured:
                status = self.timing.plugin("Filter", plugin, plugin.filter, state, pod, node)
            else:
                status = plugin.filter(state, pod, node)
            if status is not None and status.code is not Code.SUCCESS:
                return number
        return PASSED

    def _applying_filters(self, state: CycleState) -> tuple[_NumberedFilters, _NumberedFilters]:
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
                        _add_error(diagnosis, status)
                        feasible[index] = False
                    elif status is not None:
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
            check_length(result.passed, rows)
        except Exception as error:
            _add_error(diagnosis, filter_error(plugin, status_of_exception(plugin, error)))
            return np.zeros(len(rows), np.bool_)
        passed = result.passed
        if not passed.all():
            rejected = np.flatnonzero(~passed)
            explain = RowRejections(plugin.name, rows, result.explain, explain_all(plugin, state, pod, snapshot))
            first = explain.status_at(int(rejected[0]))
            if not first.is_rejection:
                _add_error(diagnosis, filter_error(plugin, first))
                return passed
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
                passed[index] = False
                if not status.is_rejection:
                    _add_error(diagnosis, status)
                    continue
                diagnosis.node_to_status.set(infos[row].name, status)
                diagnosis.note(status)
        return passed

    def _fit_with_nominated(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, left: Rows, diagnosis: Diagnosis
    ) -> Rows:
        """Return those of `left` where the pod also fits with the nominated pods.

        All of `rows` with nominated pods are filtered again: their statuses are those with the nominated pods.
        """
        nominator, dry_runs, row_of = self._nominator, NodeDryRuns(self._node_filters, state, pod), snapshot.row_of
        fits = np.zeros(len(snapshot), np.bool_)
        fits[left] = True
        node_names: Iterable[str] = nominator.nodes()
        if self._class_cache is not None and rows is snapshot.all_rows and dry_runs.only_sums:
            by_priority = self._class_cache.results(pod, snapshot).nominated_fits
            cache = by_priority.setdefault(pod.priority, NominatedFitCache())
            own_node = nominator.node_of(pod.uid)
            rejected, statuses = cache.rejections(
                snapshot,
                nominator,
                own_node,
                lambda rows: list(map(_without_error, dry_runs.filter_with_nominated(snapshot, rows))),
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
                fits[row] = False
                if not status.is_rejection:
                    _add_error(diagnosis, status)
                    continue
                diagnosis.node_to_status.set(node.name, status)
                diagnosis.note(status)
        return np.flatnonzero(fits)

    def _filter_with_nominated(self, dry_runs: NodeDryRuns, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Run the filters with the pods nominated to the node, if there are any. The status may be an error."""
        return dry_runs(node).run_filters() if self._node_filters.nominated_pods(pod, node.name) else None

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


def _add_error(diagnosis: Diagnosis, status: Status) -> None:
    """Add an error of a Filter plugin; the other nodes and filters still run, up to a limit."""
    diagnosis.errors.append(status)
    if len(diagnosis.errors) >= _MAX_ERRORS:
        _raise(diagnosis.errors)


def _without_error(status: Status | None) -> Status | None:
    if status is not None and not status.is_rejection:
        raise SchedulingError(status.message, status.plugin)
    return status


def _raise(errors: Sequence[Status]) -> NoReturn:
    raise SchedulingError(aggregated(errors), errors[0].plugin)


def _post_filter(
    plugin: PostFilterPlugin,
) -> Callable[..., Awaitable[PostFilterReturn]]:
    """Return the plugin's post_filter as a coroutine function, whether or not it is one."""

    async def post_filter(*args: Any) -> PostFilterReturn:
        result = plugin.post_filter(*args)
        return await result if isinstance(result, Awaitable) else result

    return post_filter
