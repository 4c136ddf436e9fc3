"""The extension points that rank the nodes a pod fits: PreScore, Score and NormalizeScore.

Axes: N nodes, K rows. Source: pkg/scheduler/framework/runtime of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import (
    MAX_NODE_SCORE,
    MIN_NODE_SCORE,
    NormalizeScorePlugin,
    Plugin,
    PreScorePlugin,
    ScorePlugin,
    ScoreRowsPlugin,
    ScoreTable,
)
from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.cache.arrays import Rows, Scores, check_length
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.class_cache import FEW_ROWS, PASSED, ClassCache, ClassResults, compact
from kubeloop.scheduler.framework.plugin_calls import SchedulingError, checked_status, status_of_exception
from kubeloop.scheduler.framework.profile_plugins import extends
from kubeloop.scheduler.framework.timing import Timing, observed

ScoreRows = Callable[[CycleState, PodInfo, Snapshot, Rows], Scores]
Normalize = Callable[[CycleState, PodInfo, Snapshot, Rows, Scores], Scores]

_FEW_SCORES = 8  # up to this many, a Python loop is faster than array operations


class ScoringPlugin(msgspec.Struct, frozen=True):
    """A Score plugin and what it implements.

    by_rows: scores arrays of rows. normalizes: has normalize_scores. tabulates: has a score_table of its own, not an
    inherited one. row_local: the class cache holds its raw scores.
    """

    plugin: Any
    name: str
    weight: int
    by_rows: bool
    normalizes: bool
    tabulates: bool
    row_local: bool


class ScoreDetails(msgspec.Struct, frozen=True):
    """Scores of K rows by one plugin. raw, normalized: int64 [K]; the weight multiplies normalized ones."""

    plugin: str
    weight: int
    raw: Scores
    normalized: Scores


_LocalScorers = tuple[list[ScoringPlugin], tuple[str, ...]]
"""Row-local scorers, and their names."""


class ScorePoints:
    """PreScore and Score plugins of one profile, in its order."""

    def __init__(
        self,
        timing: Timing,
        points: Mapping[str, Sequence[Plugin]],
        weights: Mapping[str, int],
        class_cache: ClassCache | None,
    ) -> None:
        self.timing = timing
        self.pre_score = cast("Sequence[PreScorePlugin]", points["preScore"])
        self._class_cache = class_cache
        self.scorers = [_scorer(plugin, weights[plugin.name]) for plugin in points["score"]]
        self._can_run_per_node = all(extends(scorer.plugin, ScorePlugin) for scorer in self.scorers if scorer.row_local)
        self._local_scorers_of: dict[frozenset[str], _LocalScorers] = {}  # by the skipped plugins

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
    def run_scores(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        """Return the sums of normalized and weighted scores int64 [K] of the feasible `rows`.

        Raises SchedulingError if a plugin fails.
        """
        results = self._scored_by_class(state, pod, snapshot)
        all_rows = rows is snapshot.all_rows
        if results is None:
            totals = np.zeros(len(rows), np.int64)
        else:
            totals = results.base.copy() if all_rows else results.base[rows]
        for scorer in self.scorers:
            name = scorer.name
            if name in state.skip_score:
                continue
            if results is not None and scorer.tabulates:
                table = self._score_table(scorer.plugin, state, pod, snapshot, rows)
                if table is not None:
                    totals += (table.scores * scorer.weight).take(table.indexes, mode="clip")
                    continue
            if results is not None and scorer.row_local:
                if not scorer.normalizes:
                    continue
                raw = results.raw[name]
                if all_rows:
                    cached = results.weighted.get(name)
                    if cached is None:
                        normalized = self._normalized(scorer, state, pod, snapshot, rows, raw)
                        cached = results.weighted[name] = compact(normalized * scorer.weight)
                    totals += cached
                    continue
                raw = raw[rows]
            else:
                raw = self._raw_scores(scorer, state, pod, snapshot, rows)
            scores = self._normalized(scorer, state, pod, snapshot, rows, raw)
            totals += scores if scorer.weight == 1 else scores * scorer.weight
        return totals

    def score_details(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> list[ScoreDetails]:
        """Return the scores of each plugin, without those that run_pre_score() skipped.

        Their weighted sum is what run_scores() returns. Raises SchedulingError if a plugin fails.
        """
        details = []
        for scorer in self.scorers:
            if scorer.name not in state.skip_score:
                raw = self._raw_scores(scorer, state, pod, snapshot, rows)
                normalized = self._normalized(scorer, state, pod, snapshot, rows, raw.copy())
                details.append(ScoreDetails(scorer.name, scorer.weight, raw, normalized))
        return details

    def _scored_by_class(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> ClassResults | None:
        """Return the scores of row-local plugins for the pod's class, refreshed; None: they cannot be cached."""
        if self._class_cache is None:
            return None
        results = self._class_cache.results(pod, snapshot)
        if results.filter_generation != snapshot.generation:
            return None  # its filters were not run on all nodes in this cycle
        try:
            self._refresh(results, state, pod, snapshot)
        except Exception:  # the uncached run, for feasible nodes only, attributes the error to its plugin
            return None
        return results

    def _refresh(self, results: ClassResults, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> None:
        """Bring `base`, `raw` and `weighted` up to date; if a plugin raises, the results stay stale."""
        scorers, names = self._local_scorers(state)
        if names != results.scored_by:
            results.scored_by = names
            results.score_generation = -1
            results.weighted.clear()
        rows = snapshot.changed_since(results.score_generation)
        if 0 < len(rows) <= FEW_ROWS and self._can_run_per_node and results.score_generation >= 0:
            for row in rows.tolist():
                self._refresh_row(results, scorers, state, pod, snapshot, row)
        elif len(rows):
            self._refresh_rows(results, scorers, state, pod, snapshot, rows)
        results.score_generation = snapshot.generation

    def _refresh_row(
        self,
        results: ClassResults,
        scorers: Sequence[ScoringPlugin],
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        row: int,
    ) -> None:
        node, base = snapshot.node_infos[row], 0
        for scorer in scorers:
            plugin = scorer.plugin
            if state.measured:
                score = self.timing.plugin("Score", plugin, plugin.score, state, pod, node)
            else:
                score = plugin.score(state, pod, node)
            if scorer.normalizes:
                if results.raw[scorer.name][row] != score:
                    results.write_raw(scorer.name, row, score)
            else:
                if not MIN_NODE_SCORE <= score <= MAX_NODE_SCORE and results.first_rejecting[row] == PASSED:
                    _check_range(plugin, np.array([score], np.int64))
                base += score * scorer.weight
        results.base[row] = base

    def _refresh_rows(
        self,
        results: ClassResults,
        scorers: Sequence[ScoringPlugin],
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        rows: Rows,
    ) -> None:
        base = np.zeros(len(rows), np.int64)
        feasible = results.first_rejecting[rows] == PASSED
        all_feasible = bool(feasible.all())
        for scorer in scorers:
            plugin = scorer.plugin
            scores = self.timing.plugin("Score", plugin, plugin.score_rows, state, pod, snapshot, rows)
            if scorer.normalizes:
                cached = results.raw.get(scorer.name)
                if cached is None or rows is snapshot.all_rows:
                    results.raw[scorer.name] = compact(scores if cached is None else scores.copy())
                    results.weighted.pop(scorer.name, None)
                elif not np.array_equal(cached[rows], scores):
                    results.write_raw(scorer.name, rows, scores)
            else:
                _check_range(plugin, scores if all_feasible else scores[feasible])
                base += scores if scorer.weight == 1 else scores * scorer.weight
        if rows is snapshot.all_rows:
            results.base = base
        else:
            results.base[rows] = base

    def _local_scorers(self, state: CycleState) -> _LocalScorers:
        """Return the row-local scorers that are not skipped."""
        skipped = frozenset(state.skip_score)
        local = self._local_scorers_of.get(skipped)
        if local is None:
            scorers = [scorer for scorer in self.scorers if scorer.row_local and scorer.name not in skipped]
            local = self._local_scorers_of[skipped] = scorers, tuple(scorer.name for scorer in scorers)
        return local

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
        self, scorer: ScoringPlugin, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows
    ) -> Scores:
        plugin = scorer.plugin
        try:
            if scorer.by_rows and not (scorer.row_local and len(rows) <= FEW_ROWS and self._can_run_per_node):
                scores = self.timing.plugin(
                    "Score", plugin, cast("ScoreRows", plugin.score_rows), state, pod, snapshot, rows
                )
                check_length(scores, rows)
                return scores
            infos = snapshot.node_infos

            def score_nodes(state: CycleState) -> Scores:
                return np.array([plugin.score(state, pod, infos[row]) for row in rows.tolist()], np.int64)

            return self.timing.plugin("Score", plugin, score_nodes, state)
        except Exception as error:
            status = status_of_exception(plugin, error)
            raise SchedulingError(f'running Score plugin "{plugin.name}": {status.message}', plugin.name) from error

    def _normalized(
        self, scorer: ScoringPlugin, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, raw: Scores
    ) -> Scores:
        """Return the scores between 0 and 100, before the weight."""
        plugin, scores = scorer.plugin, raw
        if scorer.normalizes:
            try:
                normalize = cast("Normalize", plugin.normalize_scores)
                point = "ScoreExtensionNormalize"
                scores = self.timing.plugin(point, plugin, normalize, state, pod, snapshot, rows, raw)
                check_length(scores, rows)
            except Exception as error:
                status = status_of_exception(plugin, error)
                text = f'running NormalizeScore for plugin "{plugin.name}": {status.message}'
                raise SchedulingError(text, plugin.name) from error
        _check_range(plugin, scores)
        return scores


def _scorer(plugin: Any, weight: int) -> ScoringPlugin:
    by_rows = extends(plugin, ScoreRowsPlugin)
    return ScoringPlugin(
        plugin=plugin,
        name=plugin.name,
        weight=weight,
        by_rows=by_rows,
        normalizes=extends(plugin, NormalizeScorePlugin),
        tabulates="score_table" in vars(type(plugin)),
        row_local=by_rows and bool(getattr(plugin, "row_local", False)),
    )


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
