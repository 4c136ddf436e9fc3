"""PodGroupPodsCount: scores of placements by the number of pods."""

from __future__ import annotations

import numpy as np
import pytest

from kubeloop.scheduler.api.cycle_state import PodGroupCycleState
from kubeloop.scheduler.api.extension_points import Placement, PodGroupAssignments, PodGroupInfo
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.pod_groups import PodGroupState
from kubeloop.scheduler.config.plugin_args import NoArgs
from kubeloop.scheduler.plugins.pod_groups.pod_group_pods_count import PodGroupPodsCount
from support.scheduling.plugin_cluster import PluginCluster, make_member

GROUP = PodGroupInfo("default", "g")


def test_score_is_the_number_of_pods_with_a_node():
    cluster = PluginCluster()
    state = PodGroupState()
    for pod in (make_member("bound", "n"), make_member("assumed"), make_member("p"), make_member("pending")):
        state.put(pod)
    state.assume(make_member("assumed", "n"))
    proposed = PodGroupAssignments(Placement("", np.zeros(0, np.intp)), ((PodInfo(make_member("p")), "n"),))
    plugin = PodGroupPodsCount(NoArgs(), cluster)
    assert plugin.score_placement(PodGroupCycleState(state), GROUP, cluster.snapshot, proposed) == 3


def test_scores_are_relative_to_the_most_pods():
    plugin, state = PodGroupPodsCount(NoArgs(), PluginCluster()), PodGroupCycleState(PodGroupState())
    assert plugin.normalize_placement_scores(state, GROUP, np.array([2, 3, 1])).tolist() == [66, 100, 33]
    with pytest.raises(ValueError, match="no pods from pod group are assigned to any of the candidate placements"):
        plugin.normalize_placement_scores(state, GROUP, np.array([0, 0]))
