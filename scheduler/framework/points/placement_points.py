"""The extension points that choose a set of nodes for a pod group: PlacementGenerate and PlacementScore.

Axes: P placements. Source: RunPlacementGeneratePlugins and RunPlacementScorePlugins of
pkg/scheduler/framework/runtime/framework.go, v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from kubeloop.scheduler.api.cycle_state import PodGroupCycleState
from kubeloop.scheduler.api.extension_points import (
    MAX_NODE_SCORE,
    MIN_NODE_SCORE,
    NormalizePlacementScorePlugin,
    Placement,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
    Plugin,
    PodGroupAssignments,
    PodGroupInfo,
)
from kubeloop.scheduler.api.results import unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.arrays import Scores
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.plugin_calls import (
    SchedulingError,
    checked_status,
    status_of_exception,
    with_plugin_name,
)
from kubeloop.scheduler.framework.timing import Timing, observed


class PlacementPoints:
    """PlacementGenerate and PlacementScore plugins of one profile, in its order; at most one generates placements."""

    def __init__(self, timing: Timing, points: Mapping[str, Sequence[Plugin]], weights: Mapping[str, int]) -> None:
        """weights: of the scoring plugins, by name."""
        self.timing = timing
        self._generate = cast("list[PlacementGeneratePlugin]", points["placementGenerate"])
        self._score = cast("list[PlacementScorePlugin]", points["placementScore"])
        self._weights = weights

    @observed("PlacementGenerate")
    def run_generate(
        self, state: PodGroupCycleState, group: PodGroupInfo, snapshot: Snapshot
    ) -> tuple[Sequence[Placement], Status | None]:
        """Return at least one placement, or why there is none. Without a plugin, all nodes are one placement."""
        everywhere = Placement("", snapshot.all_rows)
        if not self._generate:
            return (everywhere,), None
        plugin = self._generate[0]
        placements: Sequence[Placement] = ()
        try:
            placements, status = self.timing.plugin(
                "PlacementGenerate", plugin, plugin.generate_placements, state, group, snapshot, everywhere
            )
            checked_status(status)
        except Exception as error:
            status = status_of_exception(plugin, error)
        if status is not None and status.code is not Code.SUCCESS:
            return (), with_plugin_name(status, plugin.name)
        if not placements:
            return (), unschedulable(plugin.name, "no feasible placements found")
        return placements, None

    @observed("PlacementScore")
    def run_score(
        self,
        state: PodGroupCycleState,
        group: PodGroupInfo,
        snapshot: Snapshot,
        proposals: Sequence[PodGroupAssignments],
    ) -> Scores:
        """Return the sums of normalized and weighted scores int64 [P]. Raises SchedulingError if a plugin fails."""
        totals = np.zeros(len(proposals), np.int64)
        for plugin in self._score:
            scores = np.array(
                [self._scored(plugin, state, group, snapshot, proposal) for proposal in proposals], np.int64
            )
            if isinstance(plugin, NormalizePlacementScorePlugin):
                scores = self._normalized(plugin, state, group, scores)
            out_of_range = scores[(scores < MIN_NODE_SCORE) | (scores > MAX_NODE_SCORE)]
            if len(out_of_range):
                problem = (
                    f'plugin "{plugin.name}" returns an invalid score {int(out_of_range[0])}, '
                    f"it should in the range of [{MIN_NODE_SCORE}, {MAX_NODE_SCORE}] after normalizing"
                )
                text = f"applying score defaultWeights on PlacementScore plugins: {problem}"
                raise SchedulingError(text, plugin.name)
            totals += scores * self._weights[plugin.name]
        return totals

    def _scored(
        self,
        plugin: PlacementScorePlugin,
        state: PodGroupCycleState,
        group: PodGroupInfo,
        snapshot: Snapshot,
        proposed: PodGroupAssignments,
    ) -> int:
        try:
            return int(
                self.timing.plugin("PlacementScore", plugin, plugin.score_placement, state, group, snapshot, proposed)
            )
        except Exception as error:
            status = status_of_exception(plugin, error)
            text = f'running PlacementScore plugins: plugin "{plugin.name}" failed with: {status.message}'
            raise SchedulingError(text, plugin.name) from error

    def _normalized(
        self, plugin: NormalizePlacementScorePlugin, state: PodGroupCycleState, group: PodGroupInfo, scores: Scores
    ) -> Scores:
        point = "PlacementScoreExtensionNormalize"
        try:
            return self.timing.plugin(point, plugin, plugin.normalize_placement_scores, state, group, scores)
        except Exception as error:
            status = status_of_exception(plugin, error)
            text = (
                f'running NormalizePlacementScore on PlacementScore plugins: plugin "{plugin.name}" failed with: '
                f"{status.message}"
            )
            raise SchedulingError(text, plugin.name) from error
