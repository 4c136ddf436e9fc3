"""Functions of text/template, KWOK and Sprig, and the refused ones."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.languages.gotemplate.functions import ARITIES, FUNCTIONS, REFUSED, SPRIG
from kubeloop.devcluster.languages.gotemplate.values import FunctionError, JsonNumber

GO_TEMPLATE_NAMES = "and call eq ge gt html index js le len lt ne not or print printf println slice urlquery"


def test_each_function_of_text_template_is_supported_or_refused():
    assert FUNCTIONS.keys() | REFUSED.keys() >= {*GO_TEMPLATE_NAMES.split(), "Quote", "YAML", "NodeConditions"}
    assert not FUNCTIONS.keys() & REFUSED.keys()


@pytest.mark.parametrize("name", ["toJson", "regexMatch", "env", "now", "uuidv4", "tuple", "add", "osBase"])
def test_other_function_of_sprig_is_refused_with_the_supported_ones(name: str):
    assert REFUSED[name] == "of Sprig, there are only default, dict, int, list, slice"


def test_every_function_of_sprig_is_supported_or_refused():
    assert len(SPRIG.keys() | (REFUSED.keys() - {"call", "js"})) == 211


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("eq", (1, 2, 1), True),
        ("eq", (JsonNumber("3"), "3"), True),
        ("eq", (None, "a"), False),
        ("eq", (None, None), True),
        ("eq", (None, []), False),
        ("ne", (True, False), True),
        ("lt", (1, 2), True),
        ("le", ("a", "a"), True),
        ("gt", (1.5, 1.0), True),
        ("ge", ("a", "b"), False),
        ("index", ({"a": [1, 2]}, "a", 1), 2),
        ("index", ([1, 2], 1), 2),
        ("index", ({"a": 1}, "b"), None),
        ("len", ("aé",), 3),
        ("len", (JsonNumber("12"),), 2),
        ("print", (1, 2, "a", JsonNumber("3"), None), "1 2a3<nil>"),
        ("println", ("a", 1), "a 1\n"),
        ("printf", ("%s-%d", "a", 7), "a-7"),
        ("printf", ("%05d|%-4s|%q|%.2f|%v|%x|%t|%%", 42, "a", "b\n", 1.5, [1], 255, True),
         '00042|a   |"b\\n"|1.50|[1]|ff|true|%'),
        ("printf", ("%g %T %T", 1e6, JsonNumber("1"), {}), "1e+06 json.Number map[string]interface {}"),
        ("printf", ("%d %s", JsonNumber("1"), 1), "%!d(json.Number=1) %!s(int=1)"),
        ("printf", ("%s", "a", 1, None), "a%!(EXTRA int=1, <nil>)"),
        ("printf", ("%s %s", "a"), "a %!s(MISSING)"),
        ("html", ("<a href=\"'&'\">",), "&lt;a href=&#34;&#39;&amp;&#39;&#34;&gt;"),
        ("urlquery", ("a b/ü~?",), "a+b%2F%C3%BC~%3F"),
        ("list", (1, "a"), [1, "a"]),
        ("default", ("x", ""), "x"),
        ("default", ("x", "a"), "a"),
        ("default", ("x",), "x"),
        ("dict", ("a", 1, 2, "b", "c"), {"a": 1, "2": "b", "c": ""}),
        ("int", (JsonNumber("7"),), 7),
        ("slice", ([1, 2, 3], 1), [2, 3]),
        ("slice", ([1, 2, 3], "1", 2), [2]),
        ("slice", ([], 0), None),
        ("Quote", ('a"<',), '"a\\"\\u003c"'),
        ("Quote", (JsonNumber("3"),), '"3"'),
        ("Quote", ({"a": "b"},), '"{\\"a\\":\\"b\\"}"'),
        ("Quote", (None,), '"null"'),
        ("YAML", ({"b": JsonNumber("1"), "a": [True]},), "a:\n- true\nb: 1\n"),
        ("YAML", ({"a": 1}, 2), "\n    a: 1\n    "),
        ("YAML", ({"a": 1}, 0), "a: 1\n"),
    ],
)  # fmt: skip
def test_value_of_a_function(name: str, args: tuple[Any, ...], expected: Any):
    assert FUNCTIONS[name](*args) == expected


def test_node_conditions_are_those_of_a_healthy_node():
    conditions = {condition["type"]: condition["status"] for condition in FUNCTIONS["NodeConditions"]()}
    assert conditions == {
        "Ready": "True",
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "NetworkUnavailable": "False",
    }


@pytest.mark.parametrize(
    ("name", "args", "problem"),
    [
        ("eq", (1, 1.0), "incompatible types for comparison"),
        ("eq", (JsonNumber("3"), 3), "incompatible types for comparison"),
        ("ne", ("1", 1), "incompatible types for comparison"),
        ("eq", ([], []), "non-comparable types"),
        ("lt", (1, 1.5), "incompatible types for comparison"),
        ("lt", (1, "a"), "incompatible types for comparison"),
        ("lt", (True, False), "invalid type for comparison"),
        ("ge", (None, 1), "invalid type for comparison"),
        ("index", ([1], 1), r"index 1 is out of range \(length 1\)"),
        ("index", ([1], JsonNumber("0")), "cannot index slice/array with type json.Number"),
        ("index", ({}, 1), "value has type int; should be string"),
        ("index", (None, 1), "index of untyped nil"),
        ("index", ("a", 0), "can't index item of type string"),
        ("len", (1,), "len of type int"),
        ("len", (None,), "len of type <nil>"),
        ("printf", (1,), "expected string; got int"),
        ("printf", ("%c", 65), "%c is not supported"),
        ("slice", ("text", 1), "list should be type of slice or array but string"),
        ("slice", ([1], 0, 2), r"0:2 is out of range \(length 1\)"),
        ("YAML", ({}, "2"), "expected int; got string"),
    ],
)
def test_unsuitable_arguments_are_an_error(name: str, args: tuple[Any, ...], problem: str):
    with pytest.raises(FunctionError, match=problem):
        FUNCTIONS[name](*args)


@pytest.mark.parametrize(("name", "arity"), [("not", (1, 1)), ("slice", (1, None)), ("dict", (0, None))])
def test_arity_of_a_function(name: str, arity: tuple[int, int | None]):
    assert ARITIES[name] == arity
