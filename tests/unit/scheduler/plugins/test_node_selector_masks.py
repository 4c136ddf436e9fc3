"""Masks of node selectors equal the selectors' results per node."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import NodeSelector, convert
from kubeloop.kube.selectors.node_selectors import NodeSelectorMatcher, RequiredNodeAffinity
from kubeloop.scheduler.plugins.node_selector_masks import labels_of, node_selector_mask, required_affinity_rows

LABELS: list[dict[str, str]] = [{}, {"disk": "ssd"}, {"disk": "hdd", "cores": "8"}, {"disk": "ssd", "cores": "16"}]


@pytest.mark.parametrize(
    "expression",
    [
        {"key": "disk", "operator": "In", "values": ["ssd", "nvme"]},
        {"key": "disk", "operator": "NotIn", "values": ["ssd"]},
        {"key": "disk", "operator": "Exists"},
        {"key": "disk", "operator": "DoesNotExist"},
        {"key": "cores", "operator": "Gt", "values": ["8"]},
        {"key": "cores", "operator": "Lt", "values": ["16"]},
    ],
    ids=lambda expression: expression["operator"],
)
def test_mask_of_each_operator(expression: dict[str, Any], plugin_cluster: Any, node: Any) -> None:
    snapshot = plugin_cluster([node(f"n{number}", labels=labels) for number, labels in enumerate(LABELS)]).snapshot
    field = {"key": "metadata.name", "operator": "In", "values": ["n0"]}
    terms = [{"matchExpressions": [expression]}, {"matchFields": [field]}]
    matcher = NodeSelectorMatcher(convert(NodeSelector, {"nodeSelectorTerms": terms}))
    names = [info.name for info in snapshot.node_infos]
    expected = [matcher.matches(name, labels_of(snapshot, row)) for row, name in enumerate(names)]
    assert node_selector_mask(snapshot, matcher).tolist() == expected


@pytest.mark.parametrize("count", [4, 40], ids=["per row", "arrays"])
def test_required_affinity_rows_of_few_and_many_nodes(count: int, plugin_cluster: Any, node: Any) -> None:
    cluster = plugin_cluster([node(f"n{number:02}", labels=LABELS[number % 4]) for number in range(count)])
    snapshot, required = cluster.snapshot, RequiredNodeAffinity({"disk": "ssd"}, None)
    mask = required_affinity_rows(snapshot, required, snapshot.all_rows)
    assert mask.sum() == count // 2
    assert required_affinity_rows(snapshot, required, snapshot.all_rows[::2].copy()).tolist() == mask[::2].tolist()


def test_terms_with_errors_match_no_node(plugin_cluster: Any, node: Any) -> None:
    """Terms are alternatives: another one may match."""
    snapshot = plugin_cluster([node(f"n{number}", labels=labels) for number, labels in enumerate(LABELS)]).snapshot
    malformed = {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["many"]}]}
    ssd = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    for terms, expected in (([malformed], [False] * 4), ([malformed, ssd], [False, True, False, True])):
        matcher = NodeSelectorMatcher(convert(NodeSelector, {"nodeSelectorTerms": terms}))
        assert node_selector_mask(snapshot, matcher).tolist() == expected
