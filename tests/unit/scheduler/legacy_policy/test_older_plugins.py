"""Plugins of older schedulers that Policy documents name."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from kubeloop.kube.objects.api_types import NodeStatus, Service, convert
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.legacy_policy.node_prefer_avoid_pods import NodePreferAvoidPods
from kubeloop.scheduler.legacy_policy.node_pressure import (
    NodeDiskPressure,
    NodeMemoryPressure,
    NodePIDPressure,
    is_best_effort,
)
from kubeloop.scheduler.legacy_policy.selector_spread import SelectorSpread
from support.scheduling.plugin_cluster import rejections

ZONE = "topology.kubernetes.io/zone"


def with_condition(node: Any, condition: str) -> Any:
    status = convert(NodeStatus, {"conditions": [{"type": condition, "status": "True"}]})
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, conditions=status.conditions))


@pytest.mark.parametrize(
    ("plugin_type", "condition", "reason", "requests_too"),
    [
        (NodeMemoryPressure, "MemoryPressure", "node(s) had memory pressure", False),
        (NodeDiskPressure, "DiskPressure", "node(s) had disk pressure", True),
        (NodePIDPressure, "PIDPressure", "node(s) had pid pressure", True),
    ],
)
def test_node_pressure(
    plugin_type: Any, condition: str, reason: str, requests_too: bool, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster([with_condition(node("pressed"), condition), node("healthy")])
    plugin = plugin_type(plugin_args.NoArgs(), cluster)
    rejected = {"pressed": (reason,)}
    assert rejections(plugin, cluster, pod("best-effort")) == rejected
    assert rejections(plugin, cluster, pod("burstable", cpu="1")) == (rejected if requests_too else {})


def test_best_effort_pods_have_no_cpu_or_memory_requests(pod: Any) -> None:
    assert is_best_effort(pod("p"))
    assert not is_best_effort(pod("p", memory="1Mi"))


def test_selector_spread_prefers_nodes_and_zones_with_fewer_pods(plugin_cluster: Any, node: Any, pod: Any) -> None:
    labels = {"app": "web"}
    nodes = [node(name, labels={ZONE: zone}) for name, zone in (("a", "x"), ("b", "x"), ("c", "y"))]
    cluster = plugin_cluster(nodes, [pod("existing", "a", labels=labels)])
    service = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": labels}}
    cluster.put("services", convert(Service, service))
    plugin, state, incoming = (
        SelectorSpread(plugin_args.NoArgs(), cluster),
        CycleState(),
        PodInfo(pod("p", labels=labels)),
    )
    snapshot, rows = cluster.snapshot, np.array([cluster.snapshot.row_of[name] for name in "abc"])
    plugin.pre_score(state, incoming, snapshot, rows)
    counts = [plugin.score(state, incoming, snapshot.node_infos[row]) for row in rows]
    assert counts == [1, 0, 0]
    # a third of the score by node, two thirds by zone
    assert plugin.normalize_scores(state, incoming, snapshot, rows, np.array(counts)).tolist() == [0, 33, 100]


def test_node_prefer_avoid_pods(plugin_cluster: Any, node: Any, pod: Any) -> None:
    entry = {"podSignature": {"podController": {"kind": "ReplicaSet", "uid": "rs"}}}
    annotation = {"scheduler.alpha.kubernetes.io/preferAvoidPods": json.dumps({"preferAvoidPods": [entry]})}
    avoiding = node("a")
    metadata = msgspec.structs.replace(avoiding.metadata, annotations=annotation)
    cluster = plugin_cluster([msgspec.structs.replace(avoiding, metadata=metadata)])
    plugin, (info,) = NodePreferAvoidPods(plugin_args.NoArgs(), cluster), cluster.snapshot.node_infos
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    assert plugin.score(CycleState(), PodInfo(pod("p", owner=[owner])), info) == 0
    assert plugin.score(CycleState(), PodInfo(pod("q", owner=[owner | {"uid": "other"}])), info) == 100
    assert plugin.score(CycleState(), PodInfo(pod("r")), info) == 100


def test_annotation_avoids_no_pods_of_other_kinds_of_controllers(plugin_cluster: Any, node: Any, pod: Any) -> None:
    entry = {"podSignature": {"podController": {"kind": "StatefulSet", "uid": "sts"}}}
    annotations = {"scheduler.alpha.kubernetes.io/preferAvoidPods": json.dumps({"preferAvoidPods": [entry]})}
    avoiding = node("a")
    metadata = msgspec.structs.replace(avoiding.metadata, annotations=annotations)
    cluster = plugin_cluster([msgspec.structs.replace(avoiding, metadata=metadata)])
    plugin, (info,) = NodePreferAvoidPods(plugin_args.NoArgs(), cluster), cluster.snapshot.node_infos
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "sts", "controller": True}
    assert plugin.score(CycleState(), PodInfo(pod("p", owner=[owner])), info) == 100


def test_selector_spread_leaves_other_pods_alone(plugin_cluster: Any, node: Any, pod: Any) -> None:
    labels = {"app": "web"}
    others = [pod("x", "a", labels=labels, namespace="other"), pod("y", "a", labels={"app": "db"})]
    cluster = plugin_cluster([node("a"), node("b")], [pod("existing", "a", labels=labels), *others])
    service = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": labels}}
    cluster.put("services", convert(Service, service))
    plugin, snapshot = SelectorSpread(plugin_args.NoArgs(), cluster), cluster.snapshot
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    own_constraints = pod("p", labels=labels, topologySpreadConstraints=[constraint])
    for incoming, counts, scores in (
        (pod("q", labels=labels), [1, 0], [0, 100]),
        (pod("r", labels={"app": "other"}), [0, 0], [100, 100]),
        (own_constraints, [0, 0], [0, 0]),
    ):
        state, info = CycleState(), PodInfo(incoming)
        plugin.pre_score(state, info, snapshot, snapshot.all_rows)
        scored = {node.name: plugin.score(state, info, node) for node in snapshot.node_infos}
        assert [scored["a"], scored["b"]] == counts
        rows = np.array([snapshot.row_of["a"], snapshot.row_of["b"]])
        assert plugin.normalize_scores(state, info, snapshot, rows, np.array(counts)).tolist() == scores


@pytest.mark.parametrize(
    "annotation",
    [
        "{",
        "{}",
        "[]",
        '{"preferAvoidPods": 1}',
        '{"preferAvoidPods": [{}]}',
        '{"preferAvoidPods": [{"podSignature": 1}]}',
    ],
)
def test_malformed_annotation_avoids_no_pods(annotation: str, plugin_cluster: Any, node: Any, pod: Any) -> None:
    avoiding = node("a")
    annotations = {"scheduler.alpha.kubernetes.io/preferAvoidPods": annotation}
    metadata = msgspec.structs.replace(avoiding.metadata, annotations=annotations)
    cluster = plugin_cluster([msgspec.structs.replace(avoiding, metadata=metadata)])
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}]
    plugin = NodePreferAvoidPods(plugin_args.NoArgs(), cluster)
    assert plugin.score(CycleState(), PodInfo(pod("p", owner=owner)), cluster.snapshot.node_infos[0]) == 100
