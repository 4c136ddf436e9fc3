"""TaintToleration: NoSchedule taints filter, PreferNoSchedule taints lower the score."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import Hint
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.taint_toleration import TaintToleration
from support.scheduling.plugin_cluster import rejections


def taint(key: str, effect: str) -> dict[str, str]:
    return {"key": key, "effect": effect}


def test_untolerated_taints_are_rejected(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a", taints=[taint("gpu", "NoSchedule")]), *[node(name) for name in "bcde"]])
    plugin = TaintToleration(plugin_args.NoArgs(), cluster)
    assert rejections(plugin, cluster, pod("p")) == {"a": ("node(s) had untolerated taint(s)",)}
    assert rejections(plugin, cluster, pod("q", tolerations=[{"key": "gpu", "operator": "Exists"}])) == {}


def test_prefer_no_schedule_taints_lower_the_score(plugin_cluster: Any, node: Any, pod: Any) -> None:
    preferred = [taint("x", "PreferNoSchedule"), taint("y", "PreferNoSchedule")]
    cluster = plugin_cluster([node(name, taints=preferred[:number]) for number, name in enumerate("abc")])
    plugin = TaintToleration(plugin_args.NoArgs(), cluster)
    incoming, snapshot = PodInfo(pod("p")), cluster.snapshot
    counts = {info.name: len(info.node.spec.taints) for info in snapshot.node_infos}
    assert counts == {"a": 0, "b": 1, "c": 2}
    raw = plugin.score_rows(CycleState(), incoming, snapshot, snapshot.all_rows)
    assert raw.tolist() == list(counts.values())
    normalized = plugin.normalize_scores(CycleState(), incoming, snapshot, snapshot.all_rows, raw)
    assert normalized.tolist() == [100, 50, 0]


@pytest.mark.parametrize(("enabled", "rejected"), [(False, "abcde"), (True, "cde")])
def test_comparison_operators_need_their_feature_gate(
    enabled: bool, rejected: str, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    nodes = [
        node(name, taints=[taint("sla", "NoSchedule") | {"value": str(value)}])
        for name, value in zip("abcde", (990, 960, 950, 900, 100), strict=True)
    ]
    cluster = plugin_cluster(nodes, feature_gates={"TaintTolerationComparisonOperators": enabled})
    plugin = TaintToleration(plugin_args.NoArgs(), cluster)
    incoming = pod("p", tolerations=[{"key": "sla", "operator": "Gt", "value": "950"}])
    assert "".join(rejections(plugin, cluster, incoming)) == rejected
    hint = plugin.events_to_register()[0].hint
    assert hint is not None
    assert hint(incoming, None, nodes[0]) is (Hint.QUEUE if enabled else Hint.SKIP)


@pytest.mark.parametrize(("enabled", "scores"), [(False, [0, 1, 1, 1, 1]), (True, [0, 0, 0, 1, 1])])
def test_comparison_operators_count_in_scores(
    enabled: bool, scores: list[int], plugin_cluster: Any, node: Any, pod: Any
) -> None:
    taints: list[list[Any]] = [
        [],
        *([taint("sla", "PreferNoSchedule") | {"value": value}] for value in ("1", "4", "5", "9")),
    ]
    nodes = [node(name, taints=taints[number]) for number, name in enumerate("abcde")]
    cluster = plugin_cluster(nodes, feature_gates={"TaintTolerationComparisonOperators": enabled})
    plugin = TaintToleration(plugin_args.NoArgs(), cluster)
    incoming = PodInfo(pod("p", tolerations=[{"key": "sla", "operator": "Lt", "value": "5"}]))
    snapshot = cluster.snapshot
    assert [plugin.score(CycleState(), incoming, info) for info in snapshot.node_infos] == scores
    assert plugin.score_rows(CycleState(), incoming, snapshot, snapshot.all_rows).tolist() == scores
