"""PreScore and Score of the default profile over a snapshot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.plugin_calls import SchedulingError
from kubeloop.scheduler.framework.points.score_points import ScorePoints, _check_range
from support.scheduling.plugin_cluster import PluginCluster, make_node, make_pod
from support.scheduling.scheduler_strategies import QUICKLY, pods, populated


def default_scores(cluster: PluginCluster) -> ScorePoints:
    return cluster.make_framework().scores


@QUICKLY
@given(cluster_objects=populated(), incoming=pods("incoming"))
def test_totals_are_the_sum_of_the_weighted_scores_of_all_plugins(cluster_objects, incoming, plugin_cluster):
    nodes = plugin_cluster(*cluster_objects)
    scores = default_scores(nodes)
    pod, state, snapshot = PodInfo(incoming), CycleState(), nodes.snapshot
    scores.run_pre_score(state, pod, snapshot, snapshot.all_rows)
    details = scores.score_details(state, pod, snapshot, snapshot.all_rows)
    assert {each.plugin for each in details} == {scorer.name for scorer in scores.scorers} - state.skip_score
    expected = np.zeros(len(snapshot), np.int64)
    for each, scorer in zip(details, (x for x in scores.scorers if x.name not in state.skip_score), strict=True):
        raw = scorer.plugin.score_rows(state, pod, snapshot, snapshot.all_rows)
        assert each.raw.tolist() == raw.tolist()
        expected += each.normalized * scorer.weight
    assert scores.run_scores(state, pod, snapshot, snapshot.all_rows).tolist() == expected.tolist()


def test_failing_plugin_is_named_in_the_error(monkeypatch):
    nodes = PluginCluster([make_node(name) for name in "abc"])
    scores = default_scores(nodes)
    plugin = scores.pre_score[0]
    monkeypatch.setattr(type(plugin), "pre_score", lambda *_: 1 / 0)
    with pytest.raises(SchedulingError, match=f'running PreScore plugin "{plugin.name}"') as raised:
        scores.run_pre_score(CycleState(), PodInfo(make_pod("web")), nodes.snapshot, nodes.snapshot.all_rows)
    assert raised.value.plugin == plugin.name


FEW, MANY = [100, 0], [100, 0] * 50


@pytest.mark.parametrize(
    ("scores", "wrong"),
    [
        pytest.param(FEW, None, id="limits"),
        pytest.param([*FEW, 101, 102], 101, id="above: the first is named"),
        pytest.param([*FEW, -1], -1, id="below"),
        pytest.param(MANY, None, id="limits, many nodes"),
        pytest.param([*MANY, 101], 101, id="above, many nodes"),
        pytest.param([*MANY, -1], -1, id="below, many nodes"),
    ],
)
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_scores_are_between_0_and_100(scores, wrong, dtype):
    plugin = type("Mine", (), {"name": "Mine"})()
    if wrong is None:
        _check_range(plugin, np.array(scores, dtype))
        return
    message = rf'plugin "Mine" returns an invalid score {wrong}, it should in the range of \[0, 100\]'
    with pytest.raises(SchedulingError, match=message):
        _check_range(plugin, np.array(scores, dtype))
