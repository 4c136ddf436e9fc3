"""Topology pair sums, and terms of incoming and existing pods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kubeloop.kube.objects.api_types import Namespace, convert
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.plugins.inter_pod_affinity.terms import (
    TopologyPairSums,
    all_select,
    incoming_per_node,
    incoming_terms,
)


def required_affinity(**term: Any) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"} | term
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_sums_per_topology_pair(plugin_cluster: Any, node: Any) -> None:
    nodes = [
        node("a", labels={"zone": "x"}),
        node("b", labels={"zone": "x"}),
        node("c", labels={"zone": "y"}),
        node("d"),
    ]
    snapshot = plugin_cluster(nodes).snapshot
    column, sums = snapshot.columns.labels("zone"), TopologyPairSums()
    sums.add_nodes(column, np.array([{"a": 1, "b": 2, "c": 4, "d": 8}[info.name] for info in snapshot.node_infos]))
    assert (sums.sum_of("zone", {"zone": "x"}), sums.sum_of("zone", {"zone": "y"})) == (3, 4)
    assert (sums.sum_of("zone", {"zone": "other"}), sums.sum_of("zone", {})) == (0, None)
    copy = sums.clone()
    copy.add(column, {"zone": "x"}, -3)
    per_node = copy.per_node("zone", absent=-1)
    assert per_node is not None
    assert dict(zip([info.name for info in snapshot.node_infos], per_node.tolist(), strict=True)) == {
        "a": 0,
        "b": 0,
        "c": 4,
        "d": -1,
    }
    assert sums.sum_of("zone", {"zone": "x"}) == 3


@pytest.mark.parametrize(
    ("term", "namespace", "selected"),
    [
        pytest.param({}, "default", True, id="own namespace"),
        pytest.param({}, "other", False, id="other namespace"),
        pytest.param({"namespaces": ["other"]}, "other", True, id="listed namespace"),
        pytest.param({"namespaceSelector": {}}, "third", True, id="all namespaces"),
        pytest.param({"namespaceSelector": {"matchLabels": {"team": "a"}}}, "other", True, id="selected namespace"),
        pytest.param({"namespaceSelector": {"matchLabels": {"team": "b"}}}, "other", False, id="unselected namespace"),
    ],
)
def test_namespaces_of_incoming_terms(
    term: dict[str, Any], namespace: str, selected: bool, plugin_cluster: Any, pod: Any
) -> None:
    cluster = plugin_cluster()
    cluster.put("namespaces", convert(Namespace, {"metadata": {"name": "other", "labels": {"team": "a"}}}))
    incoming = PodInfo(pod("p", affinity=required_affinity(**term)))
    terms = incoming_terms(incoming.affinity_class.required_affinity_terms, cluster.listers)
    assert all_select(terms, namespace, {"app": "db"}) == selected
    assert not all_select(terms, namespace, {"app": "web"})
    assert not all_select((), namespace, {"app": "db"})


def test_matching_pods_per_node(plugin_cluster: Any, node: Any, pod: Any) -> None:
    placed = [pod(f"db-{number}", "a", labels={"app": "db"}) for number in range(2)]
    cluster = plugin_cluster([node("a"), node("b")], [*placed, pod("web", "b", labels={"app": "web"})])
    terms = incoming_terms(
        PodInfo(pod("p", affinity=required_affinity())).affinity_class.required_affinity_terms, cluster.listers
    )
    per_node = incoming_per_node(cluster.snapshot, "all_terms", terms, "zone")
    assert per_node[cluster.snapshot.row_of["a"]] == 2
    assert per_node.sum() == 2
