"""Sprig's functions for defaults, types, JSON and errors, by the examples of its documentation."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.languages.gotemplate.sprig_values import FUNCTIONS
from kubeloop.devcluster.languages.gotemplate.values import FunctionError, Int64, JsonNumber


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("default", ("foo", ""), "foo"),
        ("default", ("foo", "bar"), "bar"),
        ("default", ("foo",), "foo"),
        ("default", (5, JsonNumber("0")), "0"),
        ("empty", (None,), True),
        ("empty", ({},), True),
        ("empty", (1,), False),
        ("coalesce", (0, 1, 2), 1),
        ("coalesce", (None, "", "Matt"), "Matt"),
        ("coalesce", (0, ""), None),
        ("all", (0, 1, 2), False),
        ("all", (), True),
        ("any", (0, 1, 2), True),
        ("any", (), False),
        ("ternary", ("foo", "bar", True), "foo"),
        ("ternary", ("foo", "bar", False), "bar"),
        ("fromJson", ('{"foo": 55}',), {"foo": 55.0}),
        ("fromJson", ("{",), None),
        ("mustFromJson", ("[1.5,null]",), [1.5, None]),
        ("toJson", ({"b": "<", "a": [1, 2.0]},), '{"a":[1,2],"b":"\\u003c"}'),
        ("mustToJson", (None,), "null"),
        ("toPrettyJson", ({"a": [1], "b": {}},), '{\n  "a": [\n    1\n  ],\n  "b": {}\n}'),
        ("toRawJson", ({"a": "<&>"},), '{"a":"<&>"}'),
        ("typeOf", (1,), "int"),
        ("typeOf", ([],), "[]interface {}"),
        ("typeIs", ("int64", Int64(1)), True),
        ("typeIsLike", ("*string", "a"), False),
        ("typeIsLike", ("string", "a"), True),
        ("kindOf", ({},), "map"),
        ("kindIs", ("string", JsonNumber("1")), True),
        ("deepEqual", ([1], [1]), True),
        ("deepEqual", ([1], [True]), False),
        ("toString", (JsonNumber("5"),), "5"),
        ("toString", (None,), "<nil>"),
        ("hello", (), "Hello!"),
    ],
)
def test_value_of_a_function(name: str, args: tuple[Any, ...], expected: Any):
    value = FUNCTIONS[name](*args)
    assert value == expected
    assert isinstance(value, bool) == isinstance(expected, bool)


def test_numbers_of_from_json_are_float64():
    assert type(FUNCTIONS["fromJson"]("[1]")[0]) is float


def test_deep_copy_shares_nothing():
    value = {"a": [{"b": 1}]}
    copy = FUNCTIONS["deepCopy"](value)
    copy["a"][0]["b"] = 2
    assert value == {"a": [{"b": 1}]}


@pytest.mark.parametrize(
    ("name", "args", "problem"),
    [
        ("fail", ("stop here",), "stop here"),
        ("mustFromJson", ("{",), "Expecting property name"),
        ("mustFromJson", ("[" * 100_000,), "recursion"),
        ("ternary", (1, 2, "true"), "expected bool; got string"),
        ("ternary", (1, 2, None), "invalid value; expected bool"),
        ("fromJson", ({},), "expected string"),
        ("typeIs", (1, 1), "expected string"),
    ],
)
def test_unsuitable_arguments_are_an_error(name: str, args: tuple[Any, ...], problem: str):
    with pytest.raises(FunctionError, match=problem):
        FUNCTIONS[name](*args)
