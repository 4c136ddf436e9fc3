"""PodGroupPodsCount: placements that have room for more pods of the group score higher.

Source: plugins/podgrouppodscount of v1.36.
"""

from __future__ import annotations

from kubeloop.scheduler.api.cycle_state import PodGroupCycleState
from kubeloop.scheduler.api.extension_points import MAX_NODE_SCORE, PodGroupAssignments, PodGroupInfo
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.cache.arrays import Scores
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import NoArgs


class PodGroupPodsCount:
    name = "PodGroupPodsCount"

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        pass

    def score_placement(
        self, state: PodGroupCycleState, group: PodGroupInfo, snapshot: Snapshot, proposed: PodGroupAssignments
    ) -> int:
        """Return the number of pods of the group that would have a node, including those that have one already."""
        return state.pods.scheduled_count + len(proposed.assignments)

    def normalize_placement_scores(self, state: PodGroupCycleState, group: PodGroupInfo, scores: Scores) -> Scores:
        """Return 100 for the most pods, and the others in proportion: minCount plays no part."""
        most = int(scores.max(initial=0))
        if most == 0:
            raise ValueError("no pods from pod group are assigned to any of the candidate placements")
        return scores * MAX_NODE_SCORE // most
