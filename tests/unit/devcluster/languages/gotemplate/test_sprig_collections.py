"""Sprig's functions for lists and dicts, by the examples of its documentation."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.languages.gotemplate.sprig_collections import FUNCTIONS
from kubeloop.devcluster.languages.gotemplate.values import FunctionError, Int64, JsonNumber

NUMBERS = [1, 2, 3, 4, 5]
PERSON = {"user": {"role": {"humanName": "curator"}}}


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("list", (1, "a", None), [1, "a", None]),
        ("tuple", (), []),
        ("first", (NUMBERS,), 1),
        ("mustFirst", ([],), None),
        ("rest", (NUMBERS,), [2, 3, 4, 5]),
        ("mustRest", ([],), None),
        ("last", (NUMBERS,), 5),
        ("mustLast", ([],), None),
        ("initial", (NUMBERS,), [1, 2, 3, 4]),
        ("mustInitial", ([],), None),
        ("append", (NUMBERS, 6), [1, 2, 3, 4, 5, 6]),
        ("mustAppend", ([], None), [None]),
        ("push", ([1], 2), [1, 2]),
        ("mustPush", ([1], 2), [1, 2]),
        ("prepend", (NUMBERS, 0), [0, 1, 2, 3, 4, 5]),
        ("mustPrepend", ([], 0), [0]),
        ("concat", (NUMBERS, [6, 7], [8]), [1, 2, 3, 4, 5, 6, 7, 8]),
        ("reverse", (NUMBERS,), [5, 4, 3, 2, 1]),
        ("mustReverse", ([],), []),
        ("uniq", ([1, 1, 1, 2],), [1, 2]),
        ("mustUniq", ([[1], [1], {"a": 1}, {"a": 1}],), [[1], {"a": 1}]),
        ("without", (NUMBERS, 3), [1, 2, 4, 5]),
        ("mustWithout", (NUMBERS, 1, 3, 5), [2, 4]),
        ("has", (4, NUMBERS), True),
        ("has", ("hello", NUMBERS), False),
        ("mustHas", (4, None), False),
        ("compact", ([1, "a", "foo", "", None, JsonNumber("0")],), [1, "a", "foo", "0"]),
        ("mustCompact", ([0],), []),
        ("slice", (NUMBERS,), [1, 2, 3, 4, 5]),
        ("slice", (NUMBERS, 3), [4, 5]),
        ("slice", (NUMBERS, 1, 3), [2, 3]),
        ("mustSlice", (NUMBERS, "0", Int64(3)), [1, 2, 3]),
        ("slice", ([], 1), None),
        ("chunk", (3, [1, 2, 3, 4, 5, 6, 7, 8]), [[1, 2, 3], [4, 5, 6], [7, 8]]),
        ("mustChunk", (3, []), []),
        ("sortAlpha", (["b", "a", 10, 9],), ["10", "9", "a", "b"]),
        ("sortAlpha", ("b",), ["b"]),
        ("toStrings", ([1, None, True, JsonNumber("2")],), ["1", "true", "2"]),
        ("toStrings", (None,), []),
        ("join", ("_", ["hello", None, "world"]), "hello_world"),
        ("join", ("+", [1, 2, 3]), "1+2+3"),
        ("join", ("-", 5), "5"),
        ("dict", ("a", 1, 2, "b", "c"), {"a": 1, "2": "b", "c": ""}),
        ("get", ({"a": 1}, "a"), 1),
        ("get", ({"a": 1}, "b"), ""),
        ("get", (None, "b"), ""),
        ("set", ({"a": 1}, "b", 2), {"a": 1, "b": 2}),
        ("unset", ({"a": 1}, "a"), {}),
        ("unset", ({"a": 1}, "b"), {"a": 1}),
        ("unset", (None, "b"), None),
        ("hasKey", ({"a": None}, "a"), True),
        ("hasKey", (None, "a"), False),
        ("pluck", ("a", {"a": 1}, {"b": 2}, None, {"a": ""}), [1, ""]),
        ("keys", ({"b": 1, "a": 2}, {"a": 3}), ["a", "b", "a"]),
        ("keys", (None,), []),
        ("values", ({"b": 1, "a": 2},), [2, 1]),
        ("pick", ({"a": 1, "b": 2}, "a", "c"), {"a": 1}),
        ("omit", ({"a": 1, "b": 2}, "a"), {"b": 2}),
        ("omit", (None, "a"), {}),
        ("dig", ("user", "role", "humanName", "guest", PERSON), "curator"),
        ("dig", ("user", "name", "guest", PERSON), "guest"),
        ("dig", ("team", "role", "guest", PERSON), "guest"),
        ("merge", ({"a": 1, "b": ""}, {"a": 2, "b": 3}, {"b": 4, "c": None}), {"a": 1, "b": 3}),
        ("mustMerge", ({"a": {"x": 1}}, {"a": {"x": 2, "y": 3}}), {"a": {"x": 1, "y": 3}}),
        ("merge", (None, {"a": 1}, None), {"a": 1}),
        (
            "mergeOverwrite",
            (
                {"default": "default", "overwrite": "me", "key": True, "deep": {"a": 1, "b": 2}},
                {"overwrite": "overwritten", "key": False, "deep": {"b": 3}},
            ),
            {"default": "default", "overwrite": "overwritten", "key": False, "deep": {"a": 1, "b": 3}},
        ),
        ("mustMergeOverwrite", ({"a": [1]}, {"a": [2]}, {"a": [3]}), {"a": [3]}),
    ],
)
def test_value_of_a_function(name: str, args: tuple[Any, ...], expected: Any):
    assert FUNCTIONS[name](*args) == expected


@pytest.mark.parametrize("other", [True, 1.0, Int64(1), JsonNumber("1"), "1", [1]])
def test_elements_of_another_type_are_different(other: Any):
    assert FUNCTIONS["has"](other, [1]) is False
    assert FUNCTIONS["without"]([1, other], other) == [1]
    assert len(FUNCTIONS["uniq"]([1, other, 1])) == 2


def test_set_and_merge_change_the_first_dict():
    target = {"a": 1}
    assert FUNCTIONS["set"](target, "b", 2) is target
    assert FUNCTIONS["merge"](target, {"c": 3}) is target
    assert target == {"a": 1, "b": 2, "c": 3}


def test_list_functions_leave_the_list_unchanged():
    values = [1, 2]
    for name in ("append", "prepend", "without"):
        FUNCTIONS[name](values, 2)
    FUNCTIONS["reverse"](values)
    assert values == [1, 2]


@pytest.mark.parametrize(
    ("name", "args", "problem"),
    [
        ("first", (None,), "Cannot find first on type invalid"),
        ("first", ("abc",), "Cannot find first on type string"),
        ("append", ({}, 1), "Cannot push on type map"),
        ("uniq", ("a",), "Cannot find uniq on type string"),
        ("has", (1, "a"), "Cannot find has on type string"),
        ("concat", ([1], None), "Cannot concat a type invalid"),
        ("slice", ("abcd", 1, 3), "list should be type of slice or array but string"),
        ("slice", (NUMBERS, 3, 9), r"3:9 is out of range \(length 5\)"),
        ("slice", (NUMBERS, -1), "out of range"),
        ("chunk", (0, NUMBERS), "must be positive"),
        ("chunk", ("3", NUMBERS), "expected int"),
        ("set", (None, "a", 1), "assignment to entry in nil map"),
        ("get", ([], "a"), r"expected map\[string\]interface {}"),
        ("hasKey", ({}, 1), "expected string"),
        ("dig", ("user", "role", "humanName", "first", "guest", PERSON), "there is a string"),
        ("dig", (1, "guest", PERSON), "there is a map"),
    ],
)
def test_unsuitable_arguments_are_an_error(name: str, args: tuple[Any, ...], problem: str):
    with pytest.raises(FunctionError, match=problem):
        FUNCTIONS[name](*args)
