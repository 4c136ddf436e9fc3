"""PodTopologySpread: default constraints and the selectors derived for them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from kubeloop.kube.objects.api_types import ReplicaSet, Service, convert
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.pod_topology_spread import pod_topology_spread
from kubeloop.scheduler.plugins.pod_topology_spread.pod_topology_spread import (
    PodTopologySpread,
    _round_all,
    _TopologyDomains,
)
from support.scheduling.plugin_cluster import rejections

OWNER = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}]


@pytest.mark.parametrize("selector_source", ["replica set", "service"])
def test_list_defaulting_spreads_by_owner_or_service(
    selector_source: str, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    labels = {"app": "web"}
    cluster = plugin_cluster([node("a"), node("b")], [pod("old", "a", labels=labels)])
    metadata = {"name": "web", "namespace": "default"}
    if selector_source == "replica set":
        cluster.put(
            "replica_sets", convert(ReplicaSet, {"metadata": metadata, "spec": {"selector": {"matchLabels": labels}}})
        )
    else:
        cluster.put("services", convert(Service, {"metadata": metadata, "spec": {"selector": labels}}))
    default = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    arguments = {"defaultingType": "List", "defaultConstraints": [default]}
    plugin = PodTopologySpread(convert(plugin_args.PodTopologySpreadArgs, arguments), cluster)
    new = PodInfo(pod("new", labels=labels, owner=OWNER if selector_source == "replica set" else []))
    state, snapshot = CycleState(), cluster.snapshot
    assert plugin.pre_filter(state, new, snapshot) == (None, None)
    assert plugin.filter_rows(state, new, snapshot, snapshot.all_rows).passed.tolist() == [False, True]


def test_new_service_applies_to_next_pod_of_class(plugin_cluster: Any, node: Any, pod: Any) -> None:
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


def spread_by_host(**fields: Any) -> list[dict[str, Any]]:
    constraint = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    return [constraint | {"labelSelector": {"matchLabels": {"app": "web"}}} | fields]


@pytest.mark.parametrize("enabled", [False, True])
def test_match_label_keys_need_their_feature_gate(enabled: bool, plugin_cluster: Any, node: Any, pod: Any) -> None:
    old = [pod("old", "a", labels={"app": "web", "revision": "1"})]
    cluster = plugin_cluster([node("a"), node("b")], old, {"MatchLabelKeysInPodTopologySpread": enabled})
    plugin = PodTopologySpread(plugin_args.PodTopologySpreadArgs(), cluster)
    new = pod(
        "new",
        labels={"app": "web", "revision": "2"},
        topologySpreadConstraints=spread_by_host(matchLabelKeys=["revision"]),
    )
    skew = ("node(s) didn't match pod topology spread constraints",)
    assert rejections(plugin, cluster, new) == ({} if enabled else {"a": skew})


@pytest.mark.parametrize("enabled", [False, True])
def test_node_taints_policy_obeys_comparison_operators(enabled: bool, plugin_cluster: Any, node: Any, pod: Any) -> None:
    """The empty node `b` determines the skew of `a` only if it counts as a domain, also when a pod is removed there."""
    tainted = node("b", taints=[{"key": "sla", "value": "7", "effect": "NoSchedule"}])
    old = [pod(name, "a", labels={"app": "web"}) for name in ("one", "two")]
    other = pod("three", "b", labels={"app": "web"})
    cluster = plugin_cluster([node("a"), tainted], [*old, other], {"TaintTolerationComparisonOperators": enabled})
    plugin = PodTopologySpread(plugin_args.PodTopologySpreadArgs(), cluster)
    new = PodInfo(
        pod(
            "new",
            labels={"app": "web"},
            tolerations=[{"key": "sla", "operator": "Gt", "value": "5"}],
            topologySpreadConstraints=spread_by_host(nodeTaintsPolicy="Honor"),
        )
    )
    state, snapshot = CycleState(), cluster.snapshot
    plugin.pre_filter(state, new, snapshot)
    passed = [plugin.filter(state, new, info) is None for info in snapshot.node_infos]
    assert passed == ([False, True] if enabled else [True, True])
    b = snapshot.get("b")
    plugin.remove_pod(state, new, PodInfo(other), b)
    plugin.remove_pod(state, new, PodInfo(old[0]), snapshot.get("a"))
    assert (plugin.filter(state, new, snapshot.get("a")) is None) is not enabled


def test_halves_of_scores_are_rounded_up() -> None:
    assert _round_all(np.array([0.4, 0.5, 1.5, 2.5, 2.6])).tolist() == [0, 1, 2, 3, 3]


def test_domains_of_some_rows_are_not_those_of_all(plugin_cluster: Any, node: Any) -> None:
    labels = [{"zone": "a"}, {"zone": "b"}, {"zone": "b"}, {}]
    snapshot = plugin_cluster([node(f"n{index}", labels=label) for index, label in enumerate(labels)]).snapshot
    domains = _TopologyDomains(snapshot.columns.labels("zone"), None)
    row_of = snapshot.row_of
    for _ in range(2):
        assert domains.count_domains(np.array([row_of["n1"], row_of["n2"]]), snapshot) == 1
        assert domains.count_domains(np.array([row_of["n0"], row_of["n3"]]), snapshot) == 2
        assert domains.count_domains(snapshot.all_rows, snapshot) == 3


def test_rejections_name_a_missing_label_or_the_skew(plugin_cluster: Any, node: Any, pod: Any) -> None:
    """The first of the constraints that a node fails counts, in both forms of the reasons."""
    nodes = [
        node("full", labels={"zone": "z", "rack": "r1"}),
        node("unlabelled", labels={"rack": "r1"}),
        node("full-unlabelled", labels={"zone": "z"}),
        node("free", labels={"zone": "y", "rack": "r2"}),
        node("free-unlabelled", labels={"zone": "y"}),
    ]
    labels = {"app": "web"}
    cluster = plugin_cluster(nodes, [pod("old", "full", labels=labels)])
    constraints = [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }
        for key in ("zone", "rack")
    ]
    plugin = PodTopologySpread(plugin_args.PodTopologySpreadArgs(), cluster)
    new, state, snapshot = (
        PodInfo(pod("new", labels=labels, topologySpreadConstraints=constraints)),
        CycleState(),
        cluster.snapshot,
    )
    assert plugin.pre_filter(state, new, snapshot) == (None, None)
    result = plugin.filter_rows(state, new, snapshot, snapshot.all_rows)
    rejected = np.flatnonzero(~result.passed)
    explained = plugin.explain_rows(state, new, snapshot, rejected)
    misses_label = {}
    for position, row in enumerate(rejected.tolist()):
        status = explained.statuses[explained.codes[position]]
        assert status == result.explain(row) == plugin.filter(state, new, snapshot.node_infos[row])
        misses_label[snapshot.node_infos[row].name] = status.reasons[0].endswith("(missing required label)")
    assert misses_label == {"full": False, "unlabelled": True, "full-unlabelled": False, "free-unlabelled": True}


ZONE = "topology.kubernetes.io/zone"
WEB = {"app": "web"}
DEDICATED = [{"key": "dedicated", "effect": "NoSchedule"}]


def zone_constraint(max_skew: int = 1, **fields: Any) -> dict[str, Any]:
    selector = {"matchLabels": WEB}
    return {
        "maxSkew": max_skew,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
        **fields,
    }


@pytest.mark.parametrize(
    ("placed", "constraint", "spec", "passing"),
    [
        pytest.param("", {}, {}, "abc", id="no pods"),
        pytest.param("a", {}, {}, "c", id="one pod: the other zone"),
        pytest.param("ac", {}, {}, "abc", id="one pod in each zone"),
        pytest.param("bc", {}, {}, "abc", id="one pod in each zone, on the other node"),
        pytest.param("aac", {}, {}, "c", id="two and one"),
        pytest.param("abc", {}, {}, "c", id="two on different nodes, and one"),
        pytest.param("a", {"maxSkew": 2}, {}, "abc", id="skew of two"),
        pytest.param("aa", {"maxSkew": 2}, {}, "c", id="above the skew of two"),
        pytest.param("d", {}, {}, "abc", id="pods of nodes without the label do not count"),
        pytest.param("ac", {"minDomains": 2}, {}, "abc", id="as many domains as minDomains"),
        pytest.param("ac", {"minDomains": 3}, {}, "", id="fewer domains than minDomains: the minimum is 0"),
        pytest.param("", {"minDomains": 3}, {}, "abc", id="fewer domains than minDomains, no pods"),
        pytest.param("a", {}, {"labels": {"app": "db"}}, "abc", id="the pod itself does not count"),
        pytest.param("aa", {}, {"labels": {"app": "db"}}, "c", id="the pod itself does not count: two pods"),
        pytest.param("aaa", {}, {"nodeSelector": {"disk": "ssd"}}, "abc", id="zones without eligible nodes"),
        pytest.param("ccc", {}, {"nodeSelector": {"disk": "ssd"}}, "abc", id="the only eligible zone is the minimum"),
        pytest.param(
            "aaa", {"nodeAffinityPolicy": "Ignore"}, {"nodeSelector": {"disk": "ssd"}}, "c", id="affinity is ignored"
        ),
        pytest.param("aac", {"nodeTaintsPolicy": "Ignore"}, {}, "c", id="taints are ignored"),
        pytest.param("aa", {"nodeTaintsPolicy": "Honor"}, {}, "abc", id="tainted nodes do not count"),
        pytest.param(
            "aa",
            {"nodeTaintsPolicy": "Honor"},
            {"tolerations": [{"key": "dedicated", "operator": "Exists"}]},
            "c",
            id="tolerated nodes count",
        ),
    ],
)
def test_skew_of_zones(placed, constraint, spec, passing, plugin_cluster, node, pod):
    """Nodes: a and b in zone x; c in zone y, with label and taint; d without zone."""
    nodes = [
        node("a", labels={ZONE: "x"}),
        node("b", labels={ZONE: "x"}),
        node("c", labels={ZONE: "y", "disk": "ssd"}, taints=DEDICATED),
        node("d", labels={"disk": "ssd"}),
    ]
    others = [
        pod("elsewhere", "c", labels=WEB, namespace="other"),
        pod("db", "c", labels={"app": "db"}),
    ]
    pods = [pod(f"web-{number}", name, labels=WEB) for number, name in enumerate(placed)]
    cluster = plugin_cluster(nodes, [*pods, *others])
    plugin, state = PodTopologySpread(plugin_args.PodTopologySpreadArgs(), cluster), CycleState()
    new = PodInfo(pod("new", **{"labels": WEB, "topologySpreadConstraints": [zone_constraint(**constraint)], **spec}))
    snapshot = cluster.snapshot
    assert plugin.pre_filter(state, new, snapshot) == (None, None)
    result = plugin.filter_rows(state, new, snapshot, snapshot.all_rows)
    names = [info.name for info in snapshot.node_infos]
    assert sorted(name for name, passed in zip(names, result.passed.tolist(), strict=True) if passed) == list(passing)
    rows = np.flatnonzero(~result.passed)
    explained = plugin.explain_rows(state, new, snapshot, rows)
    for index, info in enumerate(snapshot.node_infos):
        status = plugin.filter(state, new, info)
        assert (status is None) is (info.name in passing)
        if status is not None:
            reason = "node(s) didn't match pod topology spread constraints"
            is_missing = info.name == "d"
            assert status.message == reason + " (missing required label)" * is_missing
            code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if is_missing else Code.UNSCHEDULABLE
            assert status.code is code
            assert result.explain(index) == status
            assert explained.statuses[explained.codes[rows.tolist().index(index)]] == status


@pytest.mark.parametrize(
    ("placed", "passing"),
    [
        pytest.param("", "abc", id="no pods"),
        pytest.param("a", "c", id="zone a is above its skew"),
        pytest.param("ac", "b", id="hosts a and c are above their skew"),
        pytest.param("abc", "c", id="each host has one: zone y"),
    ],
)
def test_all_constraints_must_hold(placed, passing, plugin_cluster, node, pod):
    nodes = [node(name, labels={ZONE: zone}) for name, zone in (("a", "x"), ("b", "x"), ("c", "y"))]
    cluster = plugin_cluster(nodes, [pod(f"w{number}", name, labels=WEB) for number, name in enumerate(placed)])
    constraints = [zone_constraint(), zone_constraint(topologyKey="kubernetes.io/hostname")]
    plugin, state = PodTopologySpread(plugin_args.PodTopologySpreadArgs(), cluster), CycleState()
    new, snapshot = PodInfo(pod("new", labels=WEB, topologySpreadConstraints=constraints)), cluster.snapshot
    assert plugin.pre_filter(state, new, snapshot) == (None, None)
    result = plugin.filter_rows(state, new, snapshot, snapshot.all_rows)
    names = [info.name for info in snapshot.node_infos]
    assert sorted(name for name, passed in zip(names, result.passed.tolist(), strict=True) if passed) == list(passing)
    fitting = sorted(info.name for info in snapshot.node_infos if plugin.filter(state, new, info) is None)
    assert fitting == list(passing)
    on_b, info_b = PodInfo(pod("x", "b", labels=WEB)), snapshot.node_infos[snapshot.row_of["b"]]
    assert plugin.add_pod(state, new, on_b, info_b) is None  # as preemption does
    assert plugin.filter(state, new, info_b) is not None, "host b has more pods than another"
    assert plugin.remove_pod(state, new, on_b, info_b) is None
    assert sorted(info.name for info in snapshot.node_infos if plugin.filter(state, new, info) is None) == fitting


def test_pods_count_only_on_nodes_with_all_keys(plugin_cluster, node, pod):
    nodes = [node("a", labels={ZONE: "x"}), node("b", labels={ZONE: "x", "rack": "r"}), node("c", labels={ZONE: "y"})]
    cluster = plugin_cluster(nodes, [pod(f"w{number}", "a", labels=WEB) for number in range(3)])
    plugin = PodTopologySpread(plugin_args.PodTopologySpreadArgs(), cluster)
    both = [zone_constraint(), zone_constraint(topologyKey="rack")]
    missing = ("node(s) didn't match pod topology spread constraints (missing required label)",)
    assert rejections(plugin, cluster, pod("new", labels=WEB, topologySpreadConstraints=both)) == {
        "a": missing,
        "c": missing,
    }


@pytest.mark.parametrize(
    ("change", "is_counted"),
    [
        pytest.param({}, True, id="matching pod"),
        pytest.param({"pod": {"labels": {"app": "db"}}}, False, id="other labels"),
        pytest.param({"pod": {"namespace": "other"}}, False, id="other namespace"),
        pytest.param({"node": "d"}, False, id="node without the label"),
        pytest.param({"node": "tainted"}, True, id="taints are ignored by default"),
        pytest.param({"node": "tainted", "constraint": {"nodeTaintsPolicy": "Honor"}}, False, id="tainted node"),
        pytest.param(
            {
                "node": "tainted",
                "constraint": {"nodeTaintsPolicy": "Honor"},
                "spec": {"tolerations": [{"key": "dedicated", "operator": "Exists"}]},
            },
            True,
            id="tolerated node",
        ),
        pytest.param({"spec": {"nodeSelector": {"disk": "ssd"}}}, False, id="node of another affinity"),
        pytest.param(
            {"spec": {"nodeSelector": {"disk": "ssd"}}, "constraint": {"nodeAffinityPolicy": "Ignore"}},
            True,
            id="affinity is ignored",
        ),
    ],
)
def test_pod_added_to_a_zone_raises_its_skew(change, is_counted, plugin_cluster, node, pod):
    """One pod more in zone x, as preemption tries it, excludes the zone's node `b` if the constraint counts it."""
    nodes = [
        node("a", labels={ZONE: "x"}),
        node("b", labels={ZONE: "x", "disk": "ssd"}),
        node("c", labels={ZONE: "y", "disk": "ssd"}),
        node("d"),
        node("tainted", labels={ZONE: "x"}, taints=DEDICATED),
    ]
    cluster = plugin_cluster(nodes)
    plugin, state, snapshot = (
        PodTopologySpread(plugin_args.PodTopologySpreadArgs(), cluster),
        CycleState(),
        cluster.snapshot,
    )
    constraints = [zone_constraint(**change.get("constraint", {}))]
    new = PodInfo(pod("new", labels=WEB, topologySpreadConstraints=constraints, **change.get("spec", {})))
    assert plugin.pre_filter(state, new, snapshot) == (None, None)
    original = state.clone()
    name = change.get("node", "a")
    other, info = PodInfo(pod("other", name, **{"labels": WEB, **change.get("pod", {})})), snapshot.get(name)

    def fits(state: CycleState) -> bool:
        return plugin.filter(state, new, snapshot.get("b")) is None

    assert plugin.add_pod(state, new, other, info) is None
    assert fits(state) is not is_counted
    assert plugin.filter(state, new, snapshot.get("c")) is None
    assert fits(original), "a clone has its own counts"
    assert plugin.remove_pod(state, new, other, info) is None
    assert fits(state)


HOST = "kubernetes.io/hostname"


def soft(key: str = ZONE, max_skew: int = 1, **fields: Any) -> dict[str, Any]:
    return zone_constraint(max_skew, topologyKey=key, whenUnsatisfiable="ScheduleAnyway", **fields)


def spread_scores(
    plugin: PodTopologySpread, cluster: Any, new: PodInfo, candidates: str = "abcd"
) -> tuple[list[int], list[int]]:
    """Return the raw and the normalized scores of the candidates, after a comparison with the score table."""
    state, snapshot = CycleState(), cluster.snapshot
    rows = snapshot.all_rows
    if len(candidates) < len(snapshot):
        rows = np.array([snapshot.row_of[name] for name in candidates])
    assert plugin.pre_score(state, new, snapshot, rows) is None
    raw = plugin.score_rows(state, new, snapshot, rows)
    normalized = plugin.normalize_scores(state, new, snapshot, rows, raw)
    table = plugin.score_table(state, new, snapshot, rows)
    if table is not None:
        assert table.scores[table.indexes].tolist() == normalized.tolist()
    by_name = {snapshot.node_infos[row].name: position for position, row in enumerate(rows.tolist())}
    order = [by_name[name] for name in candidates]
    return raw[order].tolist(), normalized[order].tolist()


SPREAD_NODES = (("a", "x", {}), ("b", "x", {}), ("c", "y", {"disk": "ssd"}), ("d", "", {"disk": "ssd"}))


def spread_cluster(plugin_cluster, node, pods, *, taint: str = ""):
    """Return a cluster of a and b in zone x, c in zone y, and d without zone."""
    return plugin_cluster(
        [
            node(name, labels=labels | ({ZONE: zone} if zone else {}), taints=DEDICATED if name == taint else [])
            for name, zone, labels in SPREAD_NODES
        ],
        pods,
    )


@pytest.mark.parametrize(
    ("web", "constraints", "spec", "raw", "normalized"),
    [
        # A node's raw score is the sum of pods * ln(domains + 2) + maxSkew - 1, rounded.
        pytest.param("", [soft()], {}, [0, 0, 0, 0], [100, 100, 100, 0], id="no pods: 100, but 0 without the label"),
        pytest.param("aac", [soft()], {}, [3, 3, 1, 0], [33, 33, 100, 0], id="2 and 1 pods in two zones, * ln 4"),
        pytest.param("aac", [soft(max_skew=3)], {}, [5, 5, 3, 0], [60, 60, 100, 0], id="maxSkew 3 adds 2"),
        pytest.param("aacd", [soft(HOST)], {}, [4, 0, 2, 2], [0, 100, 50, 50], id="hosts: * ln 6"),
        pytest.param("aac", [soft(), soft(HOST)], {}, [6, 3, 3, 0], [50, 100, 100, 0], id="zones and three hosts"),
        pytest.param("aac", [soft(HOST), soft()], {}, [6, 3, 3, 0], [50, 100, 100, 0], id="hosts and zones"),
        pytest.param("aac", [soft(), soft()], {}, [6, 6, 3, 0], [50, 50, 100, 0], id="zones twice"),
        pytest.param(
            "aa",
            [soft(), soft(labelSelector={"matchLabels": {"app": "db"}})],
            {},
            [3, 3, 3, 0],
            [100, 100, 100, 0],
            id="pods of another selector, two on c",
        ),
        pytest.param(
            "a",
            [soft(), soft(HOST, labelSelector={"matchLabels": {"app": "db"}})],
            {},
            [1, 1, 3, 0],
            [100, 100, 33, 0],
            id="zones and hosts of another selector",
        ),
        pytest.param(
            "aac", [soft(labelSelector=None)], {}, [0, 0, 0, 0], [100, 100, 100, 0], id="no selector selects no pod"
        ),
        pytest.param(
            "aac", [soft(labelSelector={})], {}, [0, 0, 0, 0], [100, 100, 100, 0], id="empty selector selects no pod"
        ),
        pytest.param(
            "aac",
            [soft()],
            {"nodeSelector": {"disk": "ssd"}},
            [0, 0, 1, 0],
            [100, 100, 0, 0],
            id="pods on nodes of another affinity do not count",
        ),
        pytest.param(
            "aac",
            [soft(nodeAffinityPolicy="Ignore")],
            {"nodeSelector": {"disk": "ssd"}},
            [3, 3, 1, 0],
            [33, 33, 100, 0],
            id="affinity is ignored",
        ),
        pytest.param(
            "abc", [soft(nodeTaintsPolicy="Honor")], {}, [1, 1, 1, 0], [100, 100, 100, 0], id="a is tainted: no pods"
        ),
        pytest.param(
            "abc",
            [soft(nodeTaintsPolicy="Honor")],
            {"tolerations": [{"key": "dedicated", "operator": "Exists"}]},
            [3, 3, 1, 0],
            [33, 33, 100, 0],
            id="a is tolerated",
        ),
    ],
)
def test_scores_of_soft_constraints(web, constraints, spec, raw, normalized, plugin_cluster, node, pod):
    pods = [pod(f"web-{number}", name, labels=WEB) for number, name in enumerate(web)]
    others = [pod(f"db-{number}", "c", labels={"app": "db"}) for number in range(2)]
    elsewhere = [pod("elsewhere", "b", labels=WEB, namespace="other")]
    cluster = spread_cluster(plugin_cluster, node, [*pods, *others, *elsewhere], taint="a")
    plugin = PodTopologySpread(plugin_args.PodTopologySpreadArgs(), cluster)
    new = PodInfo(pod("new", labels=WEB, topologySpreadConstraints=constraints, **spec))
    assert spread_scores(plugin, cluster, new) == (raw, normalized)


@pytest.mark.parametrize(
    ("candidates", "raw", "normalized"),
    [
        pytest.param("ab", [2, 2], [100, 100], id="one zone: * ln 3"),
        pytest.param("ac", [3, 1], [33, 100], id="two zones"),
        pytest.param("ad", [2, 0], [100, 0], id="nodes without the label do not count"),
        pytest.param("d", [0], [0], id="none has the label"),
    ],
)
def test_domains_of_the_candidates_determine_the_weight(candidates, raw, normalized, plugin_cluster, node, pod):
    pods = [pod(f"web-{number}", name, labels=WEB) for number, name in enumerate("aac")]
    cluster = spread_cluster(plugin_cluster, node, pods)
    plugin = PodTopologySpread(plugin_args.PodTopologySpreadArgs(), cluster)
    new = PodInfo(pod("new", labels=WEB, topologySpreadConstraints=[soft()]))
    assert spread_scores(plugin, cluster, new, candidates) == (raw, normalized)


@pytest.mark.parametrize(
    ("arguments", "raw", "normalized"),
    [
        # System defaults: host with maxSkew 3, zone with 5. Nodes without zone count as one zone more.
        pytest.param({}, [13, 9, 9, 4], [30, 61, 61, 100], id="System: d counts by its host"),
        pytest.param(
            {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"maxSkew": 3, "topologyKey": HOST, "whenUnsatisfiable": "ScheduleAnyway"},
                    {"maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"},
                ],
            },
            [12, 9, 9, 0],
            [75, 100, 100, 0],
            id="List: d is ignored",
        ),
    ],
)
def test_nodes_without_a_key_count_for_system_defaults_only(arguments, raw, normalized, plugin_cluster, node, pod):
    pods = [pod(f"web-{number}", name, labels=WEB) for number, name in enumerate("aacd")]
    cluster = spread_cluster(plugin_cluster, node, pods)
    metadata = {"name": "web", "namespace": "default"}
    cluster.put("services", convert(Service, {"metadata": metadata, "spec": {"selector": WEB}}))
    plugin = PodTopologySpread(convert(plugin_args.PodTopologySpreadArgs, arguments), cluster)
    assert spread_scores(plugin, cluster, PodInfo(pod("new", labels=WEB))) == (raw, normalized)


def test_invalid_selector_fails_pre_filter_and_pre_score(plugin_cluster, node, pod):
    cluster = plugin_cluster([node("a", labels={ZONE: "x"})])
    plugin, snapshot = PodTopologySpread(plugin_args.PodTopologySpreadArgs(), cluster), cluster.snapshot
    selector = {"matchExpressions": [{"key": "app", "operator": "Unknown"}]}
    for action in ("DoNotSchedule", "ScheduleAnyway"):
        constraint = zone_constraint(whenUnsatisfiable=action, labelSelector=selector)
        new = PodInfo(pod(f"new-{action}", labels=WEB, topologySpreadConstraints=[constraint]))
        status = (
            plugin.pre_filter(CycleState(), new, snapshot)[1]
            if action == "DoNotSchedule"
            else plugin.pre_score(CycleState(), new, snapshot, snapshot.all_rows)
        )
        assert status is not None
        assert status.code is Code.ERROR
        assert "Unknown" in status.message


def test_cached_domains_are_bounded(plugin_cluster, node, pod, monkeypatch):
    monkeypatch.setattr(pod_topology_spread, "_MAX_CLASSES", 3)
    keys = [f"key-{number}" for number in range(8)]
    cluster = plugin_cluster([node("a", labels=dict.fromkeys(keys, "x"))])
    plugin = PodTopologySpread(plugin_args.PodTopologySpreadArgs(), cluster)
    for key in keys:
        new = PodInfo(pod("new", labels=WEB, topologySpreadConstraints=[zone_constraint(topologyKey=key)]))
        assert plugin.pre_filter(CycleState(), new, cluster.snapshot) == (None, None)
        assert len(plugin._domains) <= 3
        assert len(plugin._domains_over_all_nodes) <= 3


def test_node_without_the_hostname_label_has_no_score_for_its_host(plugin_cluster, node, pod):
    """System defaults: hosts with maxSkew 3, zones with 5. Four candidates, and no zones."""
    bare = node("d")
    metadata = msgspec.structs.replace(bare.metadata, labels={})
    nodes = [node("a"), node("b"), node("c"), msgspec.structs.replace(bare, metadata=metadata)]
    cluster = plugin_cluster(nodes, [pod(f"web-{number}", name, labels=WEB) for number, name in enumerate("aad")])
    service = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": WEB}}
    cluster.put("services", convert(Service, service))
    plugin = PodTopologySpread(plugin_args.PodTopologySpreadArgs(), cluster)
    # 2 * ln 6 + 2 for a, 2 for b and c; d lacks the label
    assert spread_scores(plugin, cluster, PodInfo(pod("new", labels=WEB))) == ([6, 2, 2, 0], [0, 66, 66, 100])
