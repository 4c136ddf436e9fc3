"""Signatures of template functions: arity, and types of the arguments."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.languages.gotemplate.signature import Function
from kubeloop.devcluster.languages.gotemplate.values import FunctionError, JsonNumber


@pytest.mark.parametrize(
    ("parameters", "arity"),
    [("", (0, 0)), ("int string", (2, 2)), ("...any", (0, None)), ("any ...any", (1, None))],
)
def test_arity_follows_the_parameters(parameters: str, arity: tuple[int, int | None]):
    assert Function(print, parameters).arity == arity


@pytest.mark.parametrize(
    ("parameter", "argument"),
    [
        ("any", None),
        ("string", "a"),
        ("int", 1),
        ("...int", 1),
    ],
)
def test_argument_of_the_type_is_passed(parameter: str, argument: Any):
    assert Function(lambda value: [value], parameter)(argument) == [argument]


@pytest.mark.parametrize(
    ("parameter", "argument", "problem"),
    [
        ("string", 1, "wrong type for value; expected string; got int"),
        ("string", JsonNumber("1"), "wrong type for value; expected string; got json.Number"),
        ("string", None, "invalid value; expected string"),
        ("int", True, "wrong type for value; expected int; got bool"),
        ("int", 1.0, "wrong type for value; expected int; got float64"),
        ("...int", "a", "wrong type for value; expected int; got string"),
    ],
)
def test_argument_of_another_type_is_refused(parameter: str, argument: Any, problem: str):
    with pytest.raises(FunctionError) as raised:
        Function(lambda value: value, parameter)(argument)
    assert str(raised.value) == problem


def test_number_out_of_range_is_refused():
    with pytest.raises(FunctionError, match="a number is out of range"):
        Function(lambda power: 10.0**power, "int")(400)
