"""PreScore and Score of the default profile over a snapshot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from kubeloop.kube.objects.api_types import Service, convert
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import ScoreTable
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus
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


@pytest.mark.parametrize("weight", [1, 2, 7])
def test_tables_of_scores_count_with_the_weight_of_their_plugin(weight, plugin_cluster):
    """With the class cache, PodTopologySpread returns a table of its default constraints' scores."""
    nodes = [make_node(f"n{n}", labels={"topology.kubernetes.io/zone": "abc"[n % 3]}) for n in range(12)]
    placed = [make_pod(f"p{n}", f"n{n * n % 12}", labels={"app": "web"}) for n in range(9)]
    cluster = plugin_cluster(nodes, placed)
    service = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}
    cluster.put("services", convert(Service, service))
    scored = {"score": {"enabled": [{"name": "PodTopologySpread", "weight": weight}], "disabled": [{"name": "*"}]}}
    snapshot, pod, totals = cluster.snapshot, PodInfo(make_pod("new", labels={"app": "web"})), []
    for class_cache in (True, False):
        framework, state = cluster.make_framework(class_cache=class_cache, plugins=scored), CycleState()
        framework.filters.run_pre_filter(state, pod, snapshot)
        framework.filters.run_filters(state, pod, snapshot, snapshot.all_rows, Diagnosis(NodeToStatus(snapshot)))
        framework.scores.run_pre_score(state, pod, snapshot, snapshot.all_rows)
        assert framework.plugins["PodTopologySpread"].score_table(state, pod, snapshot, snapshot.all_rows) is not None
        totals.append(framework.scores.run_scores(state, pod, snapshot, snapshot.all_rows).tolist())
    assert totals[0] == totals[1]
    assert max(totals[0]) == 100 * weight


@pytest.mark.parametrize(
    ("table", "message"),
    [
        pytest.param(None, r'running Score plugin "PodTopologySpread": .* by zero', id="raises"),
        pytest.param(
            ScoreTable(np.array([0, 101]), np.zeros(3, np.intp)),
            'plugin "PodTopologySpread" returns an invalid score 101',
            id="score above 100, of no node",
        ),
    ],
)
def test_error_of_a_score_table_names_the_plugin(table, message, plugin_cluster, monkeypatch):
    cluster = plugin_cluster([make_node(name, labels={"topology.kubernetes.io/zone": name}) for name in "abc"])
    service = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}
    cluster.put("services", convert(Service, service))
    framework, state, snapshot = cluster.make_framework(class_cache=True), CycleState(), cluster.snapshot
    pod, plugin = PodInfo(make_pod("new", labels={"app": "web"})), framework.plugins["PodTopologySpread"]
    monkeypatch.setattr(type(plugin), "score_table", lambda *_: 1 // 0 if table is None else table)
    framework.filters.run_pre_filter(state, pod, snapshot)
    framework.filters.run_filters(state, pod, snapshot, snapshot.all_rows, Diagnosis(NodeToStatus(snapshot)))
    framework.scores.run_pre_score(state, pod, snapshot, snapshot.all_rows)
    with pytest.raises(SchedulingError, match=message) as raised:
        framework.scores.run_scores(state, pod, snapshot, snapshot.all_rows)
    assert raised.value.plugin == "PodTopologySpread"
