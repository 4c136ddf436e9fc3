"""NodeAffinity with addedAffinity in the plugin's arguments."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.objects.api_types import NodeAffinity as NodeAffinityTerms
from kubeloop.kube.objects.api_types import convert
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.node_affinity import NodeAffinity
from support.plugin_cluster import raw_scores


def test_added_affinity_applies_to_every_pod(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a", labels={"tier": "gold"}), node("b")])
    gold = {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold"]}]}
    terms = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [gold]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": gold}],
    }
    plugin = NodeAffinity(plugin_args.NodeAffinityArgs(added_affinity=convert(NodeAffinityTerms, terms)), cluster)
    state, new, snapshot = CycleState(), PodInfo(pod("new")), cluster.snapshot
    assert plugin.pre_filter(state, new, snapshot) == (None, None)
    result = plugin.filter_rows(state, new, snapshot, snapshot.all_rows)
    assert result.passed.tolist() == [True, False]
    assert result.explain(1).reasons == ("node(s) didn't match scheduler-enforced node affinity",)
    assert raw_scores(plugin, cluster, new) == [7, 0]
