"""Plugins with arguments other than the defaults; the defaults are what the oracle records."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.errors import UserError
from kubeloop.kube.objects.api_types import NodeAffinity as NodeAffinityTerms
from kubeloop.kube.objects.api_types import ReplicaSet, Service, convert
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus
from kubeloop.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from kubeloop.scheduler.plugins.node_affinity import NodeAffinity
from kubeloop.scheduler.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from kubeloop.scheduler.plugins.node_resources_fit import NodeResourcesFit
from kubeloop.scheduler.plugins.pod_topology_spread import PodTopologySpread


def fit_args(**strategy: Any) -> plugin_args.NodeResourcesFitArgs:
    return convert(plugin_args.NodeResourcesFitArgs, {"scoringStrategy": strategy})


def both_forms(plugin: Any, cluster: Any, pod: PodInfo) -> list[int]:
    """Raw scores of all nodes, the same in both forms."""
    state, snapshot = CycleState(), cluster.snapshot
    plugin.pre_score(state, pod, snapshot, snapshot.all_rows)
    per_node = [plugin.score(state, pod, info) for info in snapshot.node_infos]
    assert plugin.score_rows(state, pod, snapshot, snapshot.all_rows).tolist() == per_node
    return per_node


CPU = [{"name": "cpu", "weight": 1}]


@pytest.mark.parametrize(
    ("strategy", "scores"),
    [
        pytest.param({"type": "LeastAllocated", "resources": CPU}, [75, 50, 0, 75, 75, 75], id="least: free CPU"),
        pytest.param({"type": "MostAllocated", "resources": CPU}, [25, 50, 100, 25, 25, 25], id="most: used CPU"),
        pytest.param(
            {
                "type": "RequestedToCapacityRatio",
                "resources": CPU,
                "requestedToCapacityRatio": {
                    "shape": [{"utilization": 0, "score": 0}, {"utilization": 50, "score": 10}, {"utilization": 100}]
                },
            },
            [50, 100, 0, 50, 50, 50],
            id="ratio: half used is best",
        ),
    ],
)
def test_scoring_strategies(
    strategy: dict[str, Any], scores: list[int], plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster(
        [node(f"n{number}") for number in range(6)], [pod("one", "n1", cpu="1"), pod("full", "n2", cpu="4")]
    )
    plugin = NodeResourcesFit(fit_args(**strategy), cluster)
    assert both_forms(plugin, cluster, PodInfo(pod("new", cpu="1"))) == scores


def test_an_unknown_scoring_strategy_is_a_user_error(plugin_cluster: Any) -> None:
    with pytest.raises(UserError, match="scoring strategy Fullest is not supported"):
        NodeResourcesFit(fit_args(type="Fullest"), plugin_cluster())


def test_ignored_extended_resources_are_not_filtered(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("n")])
    wanted = {"limits": {}, "requests": {"example.com/gpu": "1", "other.io/nic": "1", "cpu": "100"}}
    new = pod("new", containers=[{"name": "c", "resources": wanted}])
    ignoring = plugin_args.NodeResourcesFitArgs(
        ignored_resources=("example.com/gpu",), ignored_resource_groups=("other.io",)
    )
    plugin = NodeResourcesFit(ignoring, cluster)
    status = plugin.filter(CycleState(), PodInfo(new), cluster.snapshot.node_infos[0])
    assert status is not None
    assert status.reasons == ("Insufficient cpu",)


def test_balance_over_three_resources_takes_the_standard_deviation(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node(f"n{number}", allocatable={"ephemeral-storage": "8Gi"}) for number in range(5)])
    names = ("cpu", "memory", "ephemeral-storage")
    resources = tuple(plugin_args.ResourceSpec(name=name) for name in names)
    plugin = NodeResourcesBalancedAllocation(
        plugin_args.NodeResourcesBalancedAllocationArgs(resources=resources), cluster
    )
    # shares 0.5, 0, 0: deviation 0.2357 after, 0 before
    assert both_forms(plugin, cluster, PodInfo(pod("new", cpu="2"))) == [63] * 5


def test_added_affinity_counts_for_every_pod(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a", labels={"tier": "gold"}), node("b")])
    gold = {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold"]}]}
    terms = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [gold]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": gold}],
    }
    plugin = NodeAffinity(plugin_args.NodeAffinityArgs(added_affinity=convert(NodeAffinityTerms, terms)), cluster)
    state, new, snapshot = CycleState(), PodInfo(pod("new")), cluster.snapshot
    assert plugin.pre_filter(state, new, snapshot) == (None, None)
    verdicts = plugin.filter_rows(state, new, snapshot, snapshot.all_rows)
    assert verdicts.passed.tolist() == [True, False]
    assert verdicts.explain(1).reasons == ("node(s) didn't match scheduler-enforced node affinity",)
    assert both_forms(plugin, cluster, new) == [7, 0]


@pytest.mark.parametrize(("weight", "expected"), [(5, [5, 0]), (0, None)])
def test_hard_pod_affinity_of_existing_pods_scores_with_its_weight(
    weight: int, expected: list[int] | None, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    friend = pod("friend", "a", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    cluster = plugin_cluster([node("a"), node("b")], [friend])
    plugin = InterPodAffinity(plugin_args.InterPodAffinityArgs(hard_pod_affinity_weight=weight), cluster)
    state, new, snapshot = CycleState(), PodInfo(pod("new", labels={"app": "web"})), cluster.snapshot
    skipped = plugin.pre_score(state, new, snapshot, snapshot.all_rows)
    if expected is None:
        assert skipped is not None
    else:
        assert plugin.score_rows(state, new, snapshot, snapshot.all_rows).tolist() == expected


def test_preferences_of_existing_pods_can_be_ignored(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    plugin = InterPodAffinity(plugin_args.InterPodAffinityArgs(ignore_preferred_terms_of_existing_pods=True), cluster)
    state, new = CycleState(), PodInfo(pod("new"))
    assert plugin.pre_score(state, new, cluster.snapshot, cluster.snapshot.all_rows) is not None


OWNER = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}]


@pytest.mark.parametrize("by", ["replica set", "service"])
def test_list_defaulting_spreads_by_owner_or_service(by: str, plugin_cluster: Any, node: Any, pod: Any) -> None:
    labels = {"app": "web"}
    cluster = plugin_cluster([node("a"), node("b")], [pod("old", "a", labels=labels)])
    metadata = {"name": "web", "namespace": "default"}
    if by == "replica set":
        cluster.put(
            "replica_sets", convert(ReplicaSet, {"metadata": metadata, "spec": {"selector": {"matchLabels": labels}}})
        )
    else:
        cluster.put("services", convert(Service, {"metadata": metadata, "spec": {"selector": labels}}))
    default = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    arguments = {"defaultingType": "List", "defaultConstraints": [default]}
    plugin = PodTopologySpread(convert(plugin_args.PodTopologySpreadArgs, arguments), cluster)
    new = PodInfo(pod("new", labels=labels, owner=OWNER if by == "replica set" else []))
    state, snapshot = CycleState(), cluster.snapshot
    assert plugin.pre_filter(state, new, snapshot) == (None, None)
    assert plugin.filter_rows(state, new, snapshot, snapshot.all_rows).passed.tolist() == [False, True]


def test_a_new_service_is_noticed_by_the_next_pod_of_the_class(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a"), node("b")], [pod("old", "a", labels={"app": "web"})])
    plugin = PodTopologySpread(plugin_args.PodTopologySpreadArgs(), cluster)
    snapshot = cluster.snapshot

    def skips() -> bool:
        new = PodInfo(pod("new", labels={"app": "web"}))
        return plugin.pre_score(CycleState(), new, snapshot, snapshot.all_rows) is not None

    assert skips()
    cluster.put(
        "services",
        convert(Service, {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}),
    )
    assert not skips()


def test_absurd_requests_fit_nowhere_and_break_nothing(plugin_cluster: Any, node: Any, pod: Any) -> None:
    absurd = [pod(name, "full", cpu="9e15", memory="9e18") for name in ("x", "y")]
    cluster = plugin_cluster(
        [node("full"), *[node(f"n{number}", allocatable={"memory": "9E"}) for number in range(6)]], absurd
    )
    for wish in (pod("p", cpu="1"), pod("q", memory="1e30"), pod("r")):
        state, info = CycleState(), PodInfo(wish)
        cluster.framework.run_pre_filter(state, info, cluster.snapshot)
        diagnosis = Diagnosis(NodeToStatus(cluster.snapshot))
        rows = cluster.framework.run_filters(state, info, cluster.snapshot, cluster.snapshot.all_rows, diagnosis)
        names = {cluster.snapshot.node_infos[row].name for row in rows}
        assert names == ({f"n{number}" for number in range(6)} if wish.metadata.name != "q" else set()) | (
            {"full"} if wish.metadata.name == "r" else set()
        )
        if names:
            cluster.framework.run_pre_score(state, info, cluster.snapshot, rows)
            assert cluster.framework.run_scores(state, info, cluster.snapshot, rows).totals.min() >= 0
