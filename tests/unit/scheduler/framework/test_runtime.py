"""The framework: filters and scores of the default profile over a snapshot."""

import numpy as np
import pytest

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus
from kubeloop.scheduler.framework.runtime import Framework, SchedulingError
from support.plugin_cluster import PluginCluster, make_node, make_pod

GPU = "example.com/gpu"


def cluster() -> PluginCluster:
    nodes = [make_node("a"), make_node("b", allocatable={GPU: "1"}), make_node("c", allocatable={GPU: "2"})]
    return PluginCluster(nodes)


def filtered(cluster: PluginCluster, framework: Framework, pod: PodInfo, *, all_rows: bool) -> list[str]:
    state, snapshot = CycleState(), cluster.snapshot
    framework.run_pre_filter(state, pod, snapshot)
    rows = snapshot.all_rows if all_rows else np.array([0, 1], np.intp)
    diagnosis = Diagnosis(NodeToStatus(snapshot))
    return [snapshot.node_infos[row].name for row in framework.run_filters(state, pod, snapshot, rows, diagnosis)]


@pytest.mark.parametrize("class_cache", [True, False])
def test_filters_return_the_feasible_rows(class_cache):
    nodes = cluster()
    framework = nodes.make_framework(class_cache=class_cache)
    pod = PodInfo(make_pod("web", containers=[{"name": "c", "resources": {"requests": {GPU: "1"}}}]))
    assert filtered(nodes, framework, pod, all_rows=True) == ["b", "c"]
    assert filtered(nodes, framework, pod, all_rows=False) == ["b"]


def test_totals_are_the_sum_of_the_weighted_scores():
    nodes = cluster()
    framework = nodes.make_framework()
    pod, state, snapshot = PodInfo(make_pod("web", cpu="1")), CycleState(), nodes.snapshot
    framework.run_pre_filter(state, pod, snapshot)
    framework.run_pre_score(state, pod, snapshot, snapshot.all_rows)
    scored = framework.run_scores(state, pod, snapshot, snapshot.all_rows)
    assert framework.has_score_plugins
    assert list(scored.totals) == list(sum(scored.by_plugin.values()))


def test_failing_plugin_is_named_in_the_error(monkeypatch):
    nodes = cluster()
    framework = nodes.make_framework()
    plugin = framework.pre_score[0]
    monkeypatch.setattr(type(plugin), "pre_score", lambda *_: 1 / 0)
    with pytest.raises(SchedulingError, match=f'running PreScore plugin "{plugin.name}"') as raised:
        framework.run_pre_score(CycleState(), PodInfo(make_pod("web")), nodes.snapshot, nodes.snapshot.all_rows)
    assert raised.value.plugin == plugin.name
