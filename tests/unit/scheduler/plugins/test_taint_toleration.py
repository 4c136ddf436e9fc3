"""TaintToleration: NoSchedule taints filter, PreferNoSchedule taints lower the score."""

from __future__ import annotations

from typing import Any

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.taint_toleration import TaintToleration
from support.plugin_cluster import rejections


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
