"""Interned and label columns of the snapshot."""

from __future__ import annotations

from typing import Any

import numpy as np

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
