"""PreFilter and Filter of the default profile over a snapshot."""

from __future__ import annotations

import numpy as np
import pytest

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.filter_points import FilterPoints
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus
from support.plugin_cluster import PluginCluster, make_node, make_pod

GPU = "example.com/gpu"


def cluster() -> PluginCluster:
    nodes = [make_node("a"), make_node("b", allocatable={GPU: "1"}), make_node("c", allocatable={GPU: "2"})]
    return PluginCluster(nodes)


def filtered(cluster: PluginCluster, filters: FilterPoints, pod: PodInfo, *, all_rows: bool) -> list[str]:
    state, snapshot = CycleState(), cluster.snapshot
    filters.run_pre_filter(state, pod, snapshot)
    rows = snapshot.all_rows if all_rows else np.array([0, 1], np.intp)
    diagnosis = Diagnosis(NodeToStatus(snapshot))
    return [snapshot.node_infos[row].name for row in filters.run_filters(state, pod, snapshot, rows, diagnosis)]


@pytest.mark.parametrize("class_cache", [True, False])
def test_filters_return_the_feasible_rows(class_cache):
    nodes = cluster()
    filters = nodes.make_framework(class_cache=class_cache).filters
    pod = PodInfo(make_pod("web", containers=[{"name": "c", "resources": {"requests": {GPU: "1"}}}]))
    assert filtered(nodes, filters, pod, all_rows=True) == ["b", "c"]
    assert filtered(nodes, filters, pod, all_rows=False) == ["b"]
