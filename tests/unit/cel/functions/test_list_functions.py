"""List and set functions."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.cel.functions.list_functions import LIST_FUNCTIONS, contains, sum_values
from kubeloop.cel.values import NONE, CelError, Duration, Optional, Uint


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("isSorted", ([1, 1, 2],), True), ("isSorted", (["b", "a"],), False), ("isSorted", ([],), True),
        ("max", ([1, 3, 2],), 3), ("min", (["b", "a"],), "a"),
        ("indexOf", ([1, 2, 1], 1.0), 0), ("lastIndexOf", ([1, 2, 1], 1), 2), ("indexOf", ([1], True), -1),
        ("indexOf", ("abcb", "b"), 1),
        ("slice", ([1, 2, 3], 1, 3), [2, 3]), ("flatten", ([1, [2, [3]]],), [1, 2, [3]]),
        ("flatten", ([1, [2, [3]]], 2), [1, 2, 3]), ("lists.range", (3,), [0, 1, 2]), ("lists.range", (-1,), []),
        ("reverse", ([1, 2],), [2, 1]), ("distinct", ([1, 1.0, True, "a", "a"],), [1, True, "a"]),
        ("sort", ([3, 1, 2],), [1, 2, 3]), ("@sortByAssociatedKeys", (["a", "b"], [2, 1]), ["b", "a"]),
        ("sets.contains", ([1, 2], [2.0]), True), ("sets.equivalent", ([1, 2, 1], [2, 1]), True),
        ("sets.intersects", ([1, 2], [3]), False), ("first", ([],), NONE),
        ("optional.unwrap", ([Optional(1), NONE],), [1]), ("cel.@mapInsert", ({"a": 1}, "b", 2), {"a": 1, "b": 2}),
    ],
)  # fmt: skip
def test_value_of_a_list_function(name: str, args: tuple[Any, ...], expected: Any):
    assert LIST_FUNCTIONS[name](*args) == expected


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("max", ([],), "max called on empty list"),
        ("slice", ([1], -1, 0), "cannot slice(-1, 0), negative indexes not supported"),
        ("slice", ([1], 1, 0), "cannot slice(1, 0), start index must be less than or equal to end index"),
        ("slice", ([1], 0, 2), "cannot slice(0, 2), list is length 1"),
        ("flatten", ([1], -1), "level must be non-negative"),
        ("sort", ([1, "a"],), "list elements must have the same type"),
        ("sort", ([[1]],), "list elements must be comparable"),
        (
            "@sortByAssociatedKeys",
            ([1, 2], [1]),
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got 2 and 1 "
            "elements respectively",
        ),
        ("cel.@mapInsert", ({"a": 1}, "a", 2), "insert failed: key a already exists"),
    ],
)
def test_error_of_a_list_function(name: str, args: tuple[Any, ...], message: str):
    with pytest.raises(CelError) as raised:
        LIST_FUNCTIONS[name](*args)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("overload", "values", "expected"),
    [
        ("list_uint_sum_uint", [], Uint(0)),
        ("", [1, 2], 3),
        ("", [], 0),
        ("", [Uint(1)], Uint(1)),
        ("", [Duration(1), Duration(2)], Duration(3)),
        ("list_duration_sum_duration", [Duration(1), Duration(2)], Duration(3)),
    ],
)
def test_sum_has_the_type_of_its_overload(overload: str, values: list[Any], expected: Any):
    result = sum_values(overload, values)
    assert (result, type(result)) == (expected, type(expected))


@pytest.mark.parametrize(("value", "expected"), [(1, True), (1.0, True), (True, False), ("1", False)])
def test_membership_compares_numbers_by_value(value: Any, expected: bool):
    assert contains([1], value) is expected
