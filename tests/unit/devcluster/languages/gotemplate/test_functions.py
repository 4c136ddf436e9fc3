"""Functions of Go templates."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.languages.gotemplate.functions import ARITIES, FUNCTIONS, FunctionError, go_print, kind_of


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "invalid", "<no value>"), (True, "bool", "true"), (3, "int", "3"), (0.5, "float64", "0.5"),
        ("a", "string", "a"), ([1, None, "a"], "slice", "[1 <nil> a]"), ({"b": 1, "a": []}, "map", "map[a:[] b:1]"),
    ],
)  # fmt: skip
def test_kind_and_text_of_a_value(value: Any, kind: str, text: str):
    assert (kind_of(value), go_print(value)) == (kind, text)


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("eq", (1, 2, 1), True), ("lt", (1, 1.5), True), ("index", ({"a": [1, 2]}, "a", 1), 2),
        ("slice", ("abcd", 1, 3), "bc"),
        ("printf", ("%s-%d", "a", 7), "a-7"), ("Quote", ("a\"",), '"a\\""'), ("default", ("x", ""), "x"),
        ("ternary", ("y", "n", False), "n"), ("coalesce", (0, "", "a"), "a"), ("add", (1, "2", 3), 6),
        ("div", (-7, 2), -3), ("mod", (-7, 2), -1), ("until", (3,), [0, 1, 2]), ("trunc", (-2, "abc"), "bc"),
        ("nindent", (2, "a\nb"), "\n  a\n  b"), ("join", ("-", [1, "a"]), "1-a"), ("b64dec", ("YQ==",), "a"),
        ("uniq", (["a", "b", "a"],), ["a", "b"]), ("dict", ("a", 1, "b"), {"a": 1, "b": ""}),
        ("omit", ({"a": 1, "b": 2}, "a"), {"b": 2}), ("split", (".", "a.b"), {"_0": "a", "_1": "b"}),
    ],
)  # fmt: skip
def test_value_of_a_function(name: str, args: tuple[Any, ...], expected: Any):
    assert FUNCTIONS[name](*args) == expected


@pytest.mark.parametrize(
    ("name", "args"),
    [("index", ([1], 1)), ("len", (1,)), ("lt", (1, "a")), ("required", ("x is required", "")), ("fail", ("no",))],
)
def test_unsupported_arguments_are_an_error(name: str, args: tuple[Any, ...]):
    with pytest.raises(FunctionError):
        FUNCTIONS[name](*args)


@pytest.mark.parametrize(("name", "arity"), [("not", (1, 1)), ("slice", (1, 3)), ("list", (0, None))])
def test_arity_of_a_function(name: str, arity: tuple[int, int | None]):
    assert ARITIES[name] == arity
