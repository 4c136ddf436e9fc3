"""What filters and scores came to for each class of pods, kept from cycle to cycle (DESIGN.md, decision 7).

Only of plugins that declare `row_local = True`: their verdict and raw score for a node depend on nothing but the spec
class of the pod and that node's row, and equal raw scores are normalised to equal ones. For the next pod of the class
they are asked about changed rows alone. All other plugins run in every cycle. Axes: N nodes, K rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.interface import CycleState, Rows, Scores, Status

PASSED = np.iinfo(np.int16).max
"""In `first_rejecting`: no row-local filter rejects the node."""

MAX_CLASSES = 64  # of the pods seen last; one costs some 100 bytes per node


KnownVerdict = tuple[NodeInfo, list[PodInfo], Status | None]
"""(node, pods nominated to it, the verdict with them there): good for as long as node and pods are the same objects."""


class ClassResults:
    """Results of one class, right for the snapshot's `layout`, and for its rows as of a generation.

    first_rejecting: int16 [N], number of the first row-local filter that rejects the node. base: int64 [N], sum of
    the weighted scores that need no normalisation. raw: int64 [N] of each row-local plugin whose scores do;
    weighted: the same over all rows, normalised and weighted, while no raw score of the plugin changes.
    beside_nominated: by row, of pods whose filters only sum up what other pods request.
    statuses: why row-local filters rejected a row, as far as somebody asked, until the row changes.
    """

    __slots__ = (
        "base",
        "beside_nominated",
        "filter_generation",
        "first_rejecting",
        "layout",
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
        self.beside_nominated: dict[int, KnownVerdict] = {}
        self.statuses: dict[int, Status] = {}
        self.weighted: dict[str, Scores] = {}

    def stale_rows(self, snapshot: Snapshot, generation: int) -> Rows:
        """The rows that changed since a result was computed; all of them if it never was."""
        return snapshot.all_rows if generation < 0 else snapshot.changed_since(generation)

    def refresh_filters(
        self,
        filters: Sequence[tuple[int, Any]],
        timed: Callable[..., Any],
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
    ) -> None:
        """filters: the row-local ones that apply, with their numbers in the profile. What they raise passes through,
        and the results stay stale. timed(point, plugin, call, ...) calls, and may measure."""
        rows = self.stale_rows(snapshot, self.filter_generation)
        if len(rows):
            verdict = np.full(len(rows), PASSED, np.int16)
            left = rows
            for number, plugin in filters:
                passed = timed("Filter", plugin, plugin.filter_rows, state, pod, snapshot, left).passed
                if not passed.all():
                    verdict[np.searchsorted(rows, left[~passed])] = number
                    left = left[passed]
                    if len(left) == 0:
                        break
            self.first_rejecting[rows] = verdict
            if self.statuses:
                for row in rows.tolist():
                    self.statuses.pop(row, None)
        self.filter_generation = snapshot.generation

    def refresh_scores(
        self,
        plain: Sequence[Any],
        normalizing: Sequence[Any],
        weights: Mapping[str, int],
        in_range: Callable[[Any, Scores], None],
        timed: Callable[..., Any],
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
    ) -> None:
        """plain, normalizing: the row-local score plugins that apply. in_range raises for scores out of bounds."""
        scored_by = tuple(plugin.name for plugin in (*plain, *normalizing))
        if scored_by != self.scored_by:
            self.scored_by = scored_by
            self.score_generation = -1
            self.weighted.clear()
        rows = self.stale_rows(snapshot, self.score_generation)
        if len(rows):
            base = np.zeros(len(rows), np.int64)
            feasible = self.first_rejecting[rows] == PASSED
            all_feasible = bool(feasible.all())
            for plugin in plain:
                scores = timed("Score", plugin, plugin.score_rows, state, pod, snapshot, rows)
                in_range(plugin, scores if all_feasible else scores[feasible])
                base += scores * weights[plugin.name]
            self.base[rows] = base
            for plugin in normalizing:
                if plugin.name not in self.raw:
                    self.raw[plugin.name] = np.zeros(len(snapshot), np.int64)
                raw = timed("Score", plugin, plugin.score_rows, state, pod, snapshot, rows)
                if plugin.name in self.weighted and not np.array_equal(self.raw[plugin.name][rows], raw):
                    del self.weighted[plugin.name]
                self.raw[plugin.name][rows] = raw
        self.score_generation = snapshot.generation


class ClassCache:
    """The results of the classes seen last, for one profile."""

    def __init__(self, max_classes: int = MAX_CLASSES) -> None:
        self._max_classes = max_classes
        self._results: OrderedDict[int, ClassResults] = OrderedDict()

    def results(self, pod: PodInfo, snapshot: Snapshot) -> ClassResults:
        """Those of the pod's class, maybe stale."""
        number = snapshot.classes.number(pod.pod)
        results = self._results.get(number)
        if results is None or results.layout != snapshot.layout:
            results = self._results[number] = ClassResults(snapshot)
            if len(self._results) > self._max_classes:
                self._results.popitem(last=False)
        self._results.move_to_end(number)
        return results
