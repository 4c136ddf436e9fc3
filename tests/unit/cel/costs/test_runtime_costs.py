"""Run-time cost of calls."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.cel.costs.runtime_costs import CALLS, equality, size_of
from kubeloop.cel.values import NONE, Optional


@pytest.mark.parametrize(
    ("value", "size"),
    [("abc", 3), (b"ab", 2), ([1, 2], 2), ({"a": 1}, 1), (7, 1), (Optional("abc"), 3), (NONE, 1)],
)
def test_size_of_a_value(value: Any, size: int):
    assert size_of(value) == size


@pytest.mark.parametrize(
    ("name", "args", "cost"),
    [
        ("_+_", ("a" * 15, "b" * 10), 3), ("_+_", (1, 2), 1), ("_<_", ("a" * 25, "b" * 11), 2), ("_<_", (1, 2), 1),
        ("startsWith", ("a" * 11, "b"), 2), ("contains", ("a" * 20, "b" * 20), 4), ("matches", ("a" * 19, "b" * 8), 4),
        ("replace", ("a" * 10, "a", "b"), 2), ("lists.range", (5,), 16), ("slice", ([1, 2, 3], 1, 9), 13),
        ("join", (["a" * 10, "b" * 8], ", "), 4),
    ],
)  # fmt: skip
def test_cost_of_a_call(name: str, args: tuple[Any, ...], cost: int):
    assert CALLS[name](args) == cost


@pytest.mark.parametrize(("one", "other", "cost"), [("a" * 100, "b" * 21, 3), (1, 2, 1), ([1] * 20, [1] * 20, 2)])
def test_equality_costs_the_shorter_value(one: Any, other: Any, cost: int):
    assert equality(one, other) == cost
