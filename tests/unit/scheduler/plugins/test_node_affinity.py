"""NodeAffinity with addedAffinity in the plugin's arguments."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import NodeAffinity, convert
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import Hint
from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.node_affinity import NodeAffinityPlugin
from support.scheduling.plugin_cluster import raw_scores


def test_added_affinity_applies_to_every_pod(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a", labels={"tier": "gold"}), node("b")])
    gold = {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold"]}]}
    terms = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [gold]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": gold}],
    }
    plugin = NodeAffinityPlugin(plugin_args.NodeAffinityArgs(added_affinity=convert(NodeAffinity, terms)), cluster)
    state, new, snapshot = CycleState(), PodInfo(pod("new")), cluster.snapshot
    assert plugin.pre_filter(state, new, snapshot) == (None, None)
    result = plugin.filter_rows(state, new, snapshot, snapshot.all_rows)
    assert result.passed.tolist() == [True, False]
    assert result.explain(1).reasons == ("node(s) didn't match scheduler-enforced node affinity",)
    assert raw_scores(plugin, cluster, new) == [7, 0]


def test_pod_is_tried_again_after_a_node_begins_to_match(plugin_cluster: Any, node: Any, pod: Any) -> None:
    gold = {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold"]}]}
    added = convert(NodeAffinity, {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [gold]}})
    cluster = plugin_cluster([node("a")])
    incoming = pod("new", nodeSelector={"zone": "1"})
    matching, other_zone = node("b", labels={"tier": "gold", "zone": "1"}), node("b", labels={"tier": "gold"})
    other_tier = node("b", labels={"zone": "1"})
    for arguments, before in (
        (plugin_args.NodeAffinityArgs(added_affinity=added), other_tier),
        (plugin_args.NodeAffinityArgs(), other_zone),
    ):
        (registered,) = NodeAffinityPlugin(arguments, cluster).events_to_register()
        hint = registered.hint
        assert hint is not None
        assert [hint(incoming, old, matching) for old in (None, before, other_zone)] == [Hint.QUEUE] * 3
        assert [hint(incoming, *nodes) for nodes in ((matching, None), (None, before), (matching, matching))] == [
            Hint.SKIP
        ] * 3


def test_scores_of_many_nodes_are_the_sums_of_matching_weights(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node(f"n{index}", labels={"zone": "ab"[index % 2]}) for index in range(200)])
    preferred = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": values}]}}
        for weight, values in ((7, ["a"]), (20, ["a", "b"]))
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    plugin = NodeAffinityPlugin(plugin_args.NodeAffinityArgs(), cluster)
    new, state, snapshot = PodInfo(pod("new", affinity=affinity)), CycleState(), cluster.snapshot
    assert plugin.pre_score(state, new, snapshot, snapshot.all_rows) is None
    scores = plugin.score_rows(state, new, snapshot, snapshot.all_rows).tolist()
    assert scores == [27 if int(info.name[1:]) % 2 == 0 else 20 for info in snapshot.node_infos]


def in_field(*names: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]} for name in names]}


@pytest.mark.parametrize(
    ("terms", "names", "rejected"),
    [
        pytest.param([in_field("a")], {"a"}, False, id="one node"),
        pytest.param([in_field("a"), in_field("b")], {"a", "b"}, False, id="terms are alternatives"),
        pytest.param([in_field("a", "b")], None, True, id="two names in one term conflict"),
        pytest.param([in_field("a", "b"), in_field("c")], {"c"}, False, id="one of two terms conflicts"),
        pytest.param(
            [in_field("a"), {"matchExpressions": [{"key": "x", "operator": "Exists"}]}], None, False, id="labels, too"
        ),
    ],
)
def test_nodes_that_pre_filter_leaves(terms, names, rejected, plugin_cluster, node, pod):
    cluster = plugin_cluster([node("a")])
    plugin = NodeAffinityPlugin(plugin_args.NodeAffinityArgs(), cluster)
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    result, status = plugin.pre_filter(
        CycleState(), PodInfo(pod("new", affinity={"nodeAffinity": required})), cluster.snapshot
    )
    assert (None if result is None else set(result.node_names)) == names
    assert (status is not None) is rejected
    if status is not None:
        assert (status.code, status.message) == (
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
            "pod affinity terms conflict",
        )


def test_reasons_name_the_added_affinity_first(plugin_cluster: Any, node: Any, pod: Any) -> None:
    gold = {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold"]}]}
    added = convert(NodeAffinity, {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [gold]}})
    nodes = [node("a"), node("b", labels={"tier": "gold"}), node("c", labels={"zone": "1"})]
    cluster = plugin_cluster(nodes)
    plugin = NodeAffinityPlugin(plugin_args.NodeAffinityArgs(added_affinity=added), cluster)
    state, new, snapshot = CycleState(), PodInfo(pod("new", nodeSelector={"zone": "1"})), cluster.snapshot
    plugin.pre_filter(state, new, snapshot)
    assert not plugin.filter_rows(state, new, snapshot, snapshot.all_rows).passed.any()
    explained = plugin.explain_rows(state, new, snapshot, snapshot.all_rows)
    own, enforced = (
        "node(s) didn't match Pod's node affinity/selector",
        "node(s) didn't match scheduler-enforced node affinity",
    )
    for index, info in enumerate(snapshot.node_infos):
        status = explained.statuses[explained.codes[index]]
        assert status.message == (own if info.name == "b" else enforced)
        assert status == plugin.filter(state, new, info)


def test_malformed_preference_fails_pre_score(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a", labels={"zone": "1"})])
    plugin, snapshot = NodeAffinityPlugin(plugin_args.NodeAffinityArgs(), cluster), cluster.snapshot

    def preferring(operator: str) -> PodInfo:
        term = {"matchExpressions": [{"key": "zone", "operator": operator, "values": ["1"]}]}
        preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": term}]}
        return PodInfo(pod(f"new-{operator}", affinity={"nodeAffinity": preferred}))

    status = plugin.pre_score(CycleState(), preferring("Unknown"), snapshot, snapshot.all_rows)
    assert status is not None
    assert status.code is Code.ERROR
    # a plugin that is called without PreScore, as by other tools, scores alike
    assert plugin.score(CycleState(), preferring("In"), snapshot.node_infos[0]) == 3
    assert plugin.score(CycleState(), PodInfo(pod("other")), snapshot.node_infos[0]) == 0


@pytest.mark.parametrize(
    ("own", "added", "skipped"),
    [(False, False, True), (True, False, False), (False, True, False), (True, True, False)],
)
def test_score_is_skipped_without_any_preference(
    own: bool, added: bool, skipped: bool, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    ssd = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    terms = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": ssd}]}
    cluster = plugin_cluster([node("n")])
    args = plugin_args.NodeAffinityArgs(added_affinity=convert(NodeAffinity, terms) if added else None)
    info = PodInfo(pod("p", affinity={"nodeAffinity": terms} if own else {}))
    status = NodeAffinityPlugin(args, cluster).pre_score(
        CycleState(), info, cluster.snapshot, cluster.snapshot.all_rows
    )
    assert (status is not None and status.code is Code.SKIP) is skipped


def test_affinity_is_parsed_once_per_attempt(plugin_cluster: Any, node: Any, pod: Any) -> None:
    """Filter and Score use the affinity that PreFilter and PreScore have parsed."""
    cluster = plugin_cluster([node("n", labels={"disk": "ssd"})])
    plugin, snapshot = NodeAffinityPlugin(plugin_args.NodeAffinityArgs(), cluster), cluster.snapshot

    def with_disk(disk: str) -> PodInfo:
        term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": [disk]}]}
        preferred = [{"weight": 5, "preference": term}]
        affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
        return PodInfo(pod(disk, affinity=affinity, nodeSelector={"disk": disk}))

    state = CycleState()
    plugin.pre_filter(state, with_disk("ssd"), snapshot)
    plugin.pre_score(state, with_disk("ssd"), snapshot, snapshot.all_rows)
    assert plugin.filter(state, with_disk("hdd"), snapshot.node_infos[0]) is None
    assert plugin.score(state, with_disk("hdd"), snapshot.node_infos[0]) == 5
