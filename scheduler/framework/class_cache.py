"""Class cache: results of filters and scores per class of pods, kept between scheduling cycles.

Covers plugins that declare `row_local = True`: their result and raw score for a node depend only on the spec class of
the pod and on that node's row, and equal raw scores are normalized to equal scores. For the next pod of a class they
run for changed rows only. All other plugins run in every cycle. Axes: N nodes, K rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import MAX_NODE_SCORE, MIN_NODE_SCORE
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.arrays import Rows, Scores
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.nominated_fit_cache import NominatedFitCache

PASSED = np.iinfo(np.int16).max
"""Value in `first_rejecting`: no row-local filter rejects the node."""

MAX_CACHED_BYTES, MAX_CLASSES = 64 << 20, 2048
"""Limits of the cached results, the least recently used first removed; about 1,000 classes at 5,000 nodes."""

_BYTES_PER_NODE = 12  # per class: first_rejecting, base, and raw scores that differ between nodes
_FEW_ROWS = 4  # up to this many changed rows, the per-node form is faster; usual between two pods


class ClassResults:
    """Results of one class, valid for the snapshot's `layout`, and for its rows as of a generation.

    first_rejecting: int16 [N], number of the first row-local filter that rejects the node. base: int64 [N], sum of
    the weighted scores without normalization. raw: plugin -> raw scores int64 [N], for scores with normalization;
    weighted: plugin -> the same, normalized and weighted over all rows, until a raw score of the plugin changes.
    Scores in raw and weighted that are equal on all nodes, the usual case, take no memory and are read only.
    nominated_fits: by priority, for pods whose filters only read sums of requests.
    statuses: row -> status of the rejection by a row-local filter, if it was computed since the row changed.
    """

    __slots__ = (
        "base",
        "filter_generation",
        "first_rejecting",
        "layout",
        "nominated_fits",
        "raw",
        "score_generation",
        "scored_by",
        "statuses",
        "weighted",
    )

    def __init__(self, snapshot: Snapshot) -> None:
        self.layout = snapshot.layout
        self.filter_generation = -1
        self.score_generation = -1
        self.first_rejecting: npt.NDArray[np.int16] = np.full(len(snapshot), PASSED, np.int16)
        self.base: Scores = np.zeros(len(snapshot), np.int64)
        self.raw: dict[str, Scores] = {}
        self.scored_by: tuple[str, ...] = ()
        self.nominated_fits: dict[int, NominatedFitCache] = {}
        self.statuses: dict[int, Status] = {}
        self.weighted: dict[str, Scores] = {}

    def stale_rows(self, snapshot: Snapshot, generation: int) -> Rows:
        """Return the rows that changed since a result was computed; all rows if it never was."""
        return snapshot.all_rows if generation < 0 else snapshot.changed_since(generation)

    def refresh_filters(
        self,
        filters: Sequence[tuple[int, Any]],
        timed: Callable[..., Any],
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        *,
        per_node: bool,
    ) -> None:
        """Bring `first_rejecting` up to date; if a filter raises, the results stay stale.

        filters: the row-local filters that apply, with their numbers in the profile. timed(point, plugin, call, ...)
        calls the plugin and may measure it. per_node: all of them have the per-node form, too.
        """
        rows = self.stale_rows(snapshot, self.filter_generation)
        if 0 < len(rows) <= _FEW_ROWS and per_node:
            for row in rows.tolist():
                self.first_rejecting[row] = self._first_rejecting(row, filters, timed, state, pod, snapshot)
                self.statuses.pop(row, None)
        elif len(rows):
            first_rejecting = np.full(len(rows), PASSED, np.int16)
            left = rows
            for number, plugin in filters:
                passed = timed("Filter", plugin, plugin.filter_rows, state, pod, snapshot, left).passed
                if not passed.all():
                    first_rejecting[np.searchsorted(rows, left[~passed])] = number
                    left = left[passed]
                    if len(left) == 0:
                        break
            self.first_rejecting[rows] = first_rejecting
            if self.statuses:
                for row in rows.tolist():
                    self.statuses.pop(row, None)
        self.filter_generation = snapshot.generation

    def _first_rejecting(
        self,
        row: int,
        filters: Sequence[tuple[int, Any]],
        timed: Callable[..., Any],
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
    ) -> int:
        node = snapshot.node_infos[row]
        for number, plugin in filters:
            if state.measured:
                status = timed("Filter", plugin, plugin.filter, state, pod, node)
            else:
                status = plugin.filter(state, pod, node)
            if status is not None and status.code is not Code.SUCCESS:
                return number
        return PASSED

    def refresh_scores(
        self,
        plain: Sequence[Any],
        normalizing: Sequence[Any],
        scored_by: tuple[str, ...],
        weights: Mapping[str, int],
        in_range: Callable[[Any, Scores], None],
        timed: Callable[..., Any],
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        *,
        per_node: bool,
    ) -> None:
        """Bring `base`, `raw` and `weighted` up to date; if a plugin raises, the results stay stale.

        plain, normalizing: the row-local score plugins that apply, without and with normalization; scored_by: the
        names of both. in_range raises for scores out of range.
        """
        if scored_by != self.scored_by:
            self.scored_by = scored_by
            self.score_generation = -1
            self.weighted.clear()
        rows = self.stale_rows(snapshot, self.score_generation)
        if 0 < len(rows) <= _FEW_ROWS and per_node and self.score_generation >= 0:
            for row in rows.tolist():
                self._refresh_row(row, plain, normalizing, weights, in_range, timed, state, pod, snapshot)
        elif len(rows):
            base = np.zeros(len(rows), np.int64)
            feasible = self.first_rejecting[rows] == PASSED
            all_feasible = bool(feasible.all())
            for plugin in plain:
                scores = timed("Score", plugin, plugin.score_rows, state, pod, snapshot, rows)
                in_range(plugin, scores if all_feasible else scores[feasible])
                weight = weights[plugin.name]
                base += scores if weight == 1 else scores * weight
            if rows is snapshot.all_rows:
                self.base = base
            else:
                self.base[rows] = base
            for plugin in normalizing:
                raw = timed("Score", plugin, plugin.score_rows, state, pod, snapshot, rows)
                cached = self.raw.get(plugin.name)
                if cached is None or rows is snapshot.all_rows:
                    self.raw[plugin.name] = compact(raw if cached is None else raw.copy())
                    self.weighted.pop(plugin.name, None)
                elif not np.array_equal(cached[rows], raw):
                    self._write_raw(plugin.name, rows, raw)
        self.score_generation = snapshot.generation

    def _refresh_row(
        self,
        row: int,
        plain: Sequence[Any],
        normalizing: Sequence[Any],
        weights: Mapping[str, int],
        in_range: Callable[[Any, Scores], None],
        timed: Callable[..., Any],
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
    ) -> None:
        node, total = snapshot.node_infos[row], 0
        for plugin in plain:
            if state.measured:
                score = timed("Score", plugin, plugin.score, state, pod, node)
            else:
                score = plugin.score(state, pod, node)
            if not MIN_NODE_SCORE <= score <= MAX_NODE_SCORE and self.first_rejecting[row] == PASSED:
                in_range(plugin, np.array([score], np.int64))
            total += score * weights[plugin.name]
        self.base[row] = total
        for plugin in normalizing:
            if state.measured:
                score = timed("Score", plugin, plugin.score, state, pod, node)
            else:
                score = plugin.score(state, pod, node)
            if self.raw[plugin.name][row] != score:
                self._write_raw(plugin.name, row, score)

    def _write_raw(self, plugin: str, rows: Rows | int, scores: Scores | int) -> None:
        raw = self.raw[plugin]
        if not raw.flags.writeable:
            raw = self.raw[plugin] = raw.copy()
        raw[rows] = scores
        self.weighted.pop(plugin, None)


def compact(scores: Scores) -> Scores:
    """Return `scores` [N]; if all are equal, as a read-only array that stores one element."""
    if len(scores) and bool((scores == scores[0]).all()):
        return np.broadcast_to(scores[0], scores.shape)
    return scores if scores.flags.writeable else scores.copy()


class ClassCache:
    """The results of the most recently used classes of one profile."""

    def __init__(self, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._results: OrderedDict[int, ClassResults] = OrderedDict()

    def results(self, pod: PodInfo, snapshot: Snapshot) -> ClassResults:
        """Return the results of the pod's class; they may be stale."""
        number = snapshot.classes.number(pod.pod)
        results = self._results.get(number)
        if results is None or results.layout != snapshot.layout:
            results = self._results[number] = ClassResults(snapshot)
            max_classes = min(MAX_CLASSES, max(16, self._max_bytes // (_BYTES_PER_NODE * len(snapshot) + 1)))
            while len(self._results) > max_classes:
                self._results.popitem(last=False)
        self._results.move_to_end(number)
        return results
