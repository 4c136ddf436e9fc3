"""Interned and label columns of the snapshot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kubeloop.kube.objects.api_types import LabelSelector, convert
from kubeloop.kube.selectors.selectors import selector_from
from kubeloop.scheduler.cache.columns import ABSENT, Interned, LabelColumn


def test_interned_values_share_codes() -> None:
    column: Interned[tuple[str, ...]] = Interned(())
    column.codes = np.zeros(3, np.int32)
    for row, value in enumerate([("a",), (), ("a",)]):
        column.set(row, value)
    assert [column.values[code] for code in column.codes.tolist()] == [("a",), (), ("a",)]
    assert len(column.values) == 2
    column.reorder(np.array([1, -1]))
    assert [column.values[code] for code in column.codes.tolist()] == [(), ()]


def test_label_column(node: Any) -> None:
    column = LabelColumn("zone")
    column.fill([node("a", labels={"zone": "x"}), node("b"), None, node("c", labels={"zone": "y"})])
    assert column.codes.tolist() == [column.code_of["x"], ABSENT, ABSENT, column.code_of["y"]]
    assert not column.on_all_nodes
    assert column.sums(np.array([1, 2, 4, 8])).tolist() == [1, 8]
    column.set(1, "x")
    column.set(2, "y")
    assert column.on_all_nodes
    assert column.sums(np.array([1, 2, 4, 8])).tolist() == [3, 12]


def test_values_that_no_row_uses_are_dropped() -> None:
    column: Interned[int] = Interned(0)
    column.codes = np.zeros(3, np.int32)
    for value in range(1, 70):
        column.set(1, value)
        column.drop_unused()
    assert len(column.values) == 70, "64 more than two values per row may stay"
    column.set(1, 70)
    column.drop_unused()
    assert column.values == [0, 70]
    assert [column.values[code] for code in column.codes.tolist()] == [0, 70, 0]
    column.set(2, 70)
    column.set(0, 71)
    assert [column.values[code] for code in column.codes.tolist()] == [71, 70, 70]
    assert column.values == [0, 70, 71]


@pytest.mark.parametrize("count", [1, 200])
def test_used_codes_include_those_of_the_rows(count: int) -> None:
    column: Interned[int] = Interned(0)
    column.codes = np.zeros(count, np.int32)
    for row in range(count):
        column.set(row, row)
    assert set(column.used(column.codes[:1])) >= {0}
    assert set(column.used(column.codes[-1:])) >= {column.codes[-1]}
    if count > 100:
        assert set(column.used(column.codes[:2])) == {0, 1}


def test_label_of_no_node_and_of_all_nodes(node: Any) -> None:
    column = LabelColumn("zone")
    assert column.on_all_nodes, "there are no nodes"
    column.fill([node("a")])
    assert not column.on_all_nodes
    column.set(0, "x")
    assert column.on_all_nodes
    column.set(0, None)
    assert not column.on_all_nodes
    assert column.wide_codes.tolist() == [ABSENT]
    column.codes = np.zeros(2, np.int32)
    assert (column.on_all_nodes, column.wide_codes.tolist()) == (True, [0, 0])


@pytest.mark.parametrize(
    ("operator", "values", "candidates"),
    [
        pytest.param("In", ["web"], {"web"}, id="one value"),
        pytest.param("In", ["none"], set(), id="value of no pod"),
        pytest.param("In", ["web", "db"], {"web", "db", "cache"}, id="two values: not restricted"),
        pytest.param("NotIn", ["web"], {"web", "db", "cache"}, id="not a value: not restricted"),
        pytest.param("Exists", [], {"web", "db", "cache"}, id="any value: not restricted"),
    ],
)
def test_classes_that_a_selector_may_select(
    operator: str, values: list[str], candidates: set[str], plugin_cluster: Any, node: Any, pod: Any
) -> None:
    apps = ("web", "db", "cache")
    cluster = plugin_cluster([node("a")], [pod(app, "a", labels={"app": app}) for app in apps])
    expression = {"key": "app", "operator": operator, "values": values}
    selector = selector_from(convert(LabelSelector, {"matchExpressions": [expression]}))
    classes = cluster.snapshot.columns.pods.selection_candidates("default", selector)
    assert {pod_class.labels["app"] for pod_class in classes} == candidates


def test_least_frequent_label_determines_the_candidates(plugin_cluster: Any, node: Any, pod: Any) -> None:
    labels = [{"app": "web", "track": track} for track in ("stable", "beta", "canary")]
    pods = [pod(f"p{number}", "a", labels=entry) for number, entry in enumerate(labels)]
    cluster = plugin_cluster([node("a")], pods)
    columns = cluster.snapshot.columns.pods
    for labels_of_one in ({"app": "web", "track": "beta"}, {"track": "beta", "app": "web"}):
        selector = selector_from(convert(LabelSelector, {"matchLabels": labels_of_one}))
        (pod_class,) = columns.selection_candidates("default", selector)
        assert pod_class.labels["track"] == "beta"
    assert list(columns.selection_candidates("other", selector)) == []
