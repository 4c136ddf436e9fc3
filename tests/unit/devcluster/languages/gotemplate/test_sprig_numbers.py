"""Sprig's arithmetic, by the examples of its documentation."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kubeloop.devcluster.languages.gotemplate.sprig_numbers import FUNCTIONS
from kubeloop.devcluster.languages.gotemplate.values import FunctionError, JsonNumber, type_of


@pytest.mark.parametrize(
    ("name", "args", "expected", "type_name"),
    [
        ("int", ("7",), 7, "int"),
        ("int64", (7.9,), 7, "int64"),
        ("float64", ("1.5",), 1.5, "float64"),
        ("atoi", ("-12",), -12, "int"),
        ("atoi", ("0x1",), 0, "int"),
        ("atoi", ("9223372036854775808",), 0, "int"),
        ("toDecimal", ("0777",), 511, "int64"),
        ("toDecimal", (9,), 0, "int64"),
        ("add", (1, 2, 3), 6, "int64"),
        ("add", (JsonNumber("2"), "3", None), 5, "int64"),
        ("add", (2**63 - 1, 1), -(2**63), "int64"),
        ("add", (), 0, "int64"),
        ("add1", (JsonNumber("2"),), 3, "int64"),
        ("sub", (1, 3), -2, "int64"),
        ("mul", (1, 2, 3), 6, "int64"),
        ("div", (-7, 2), -3, "int64"),
        ("mod", (-7, 2), -1, "int64"),
        ("mod", (7, -2), 1, "int64"),
        ("max", (1, 2, 3), 3, "int64"),
        ("biggest", (1, "5", 3), 5, "int64"),
        ("min", (1, 2, 3), 1, "int64"),
        ("addf", (1.5, 2, 2), 5.5, "float64"),
        ("addf", (0.1, 0.2), 0.3, "float64"),
        ("add1f", (1.5,), 2.5, "float64"),
        ("subf", (7.5, 2, 3), 2.5, "float64"),
        ("mulf", (1.5, 2, 2), 6.0, "float64"),
        ("divf", (10, 2, 4), 1.25, "float64"),
        ("divf", (2e-10, 3), 6.66667e-11, "float64"),
        ("maxf", (1, 2.5, 3), 3.0, "float64"),
        ("minf", (1.5, 2, 3), 1.5, "float64"),
        ("floor", (123.9999,), 123.0, "float64"),
        ("floor", ("inf",), math.inf, "float64"),
        ("ceil", (123.001,), 124.0, "float64"),
        ("round", (123.555555, 3), 123.556, "float64"),
        ("round", (-1.5, 0), -2.0, "float64"),
        ("round", (1.3, 0, 0.25), 2.0, "float64"),
        ("until", (5,), [0, 1, 2, 3, 4], "[]interface {}"),
        ("until", (-2,), [0, -1], "[]interface {}"),
        ("untilStep", (3, 6, 2), [3, 5], "[]interface {}"),
        ("untilStep", (6, 3, -2), [6, 4], "[]interface {}"),
        ("untilStep", (3, 6, -1), [], "[]interface {}"),
        ("untilStep", (3, 6, 0), [], "[]interface {}"),
        ("seq", (5,), "1 2 3 4 5", "string"),
        ("seq", (-3,), "1 0 -1 -2 -3", "string"),
        ("seq", (0, 2), "0 1 2", "string"),
        ("seq", (2, -2), "2 1 0 -1 -2", "string"),
        ("seq", (0, 2, 10), "0 2 4 6 8 10", "string"),
        ("seq", (0, -2, -5), "0 -2 -4", "string"),
        ("seq", (5, 1, 0), "", "string"),
        ("seq", (), "", "string"),
    ],
)
def test_value_and_type_of_a_function(name: str, args: tuple[Any, ...], expected: Any, type_name: str):
    value = FUNCTIONS[name](*args)
    assert (value, type_of(value)) == (expected, type_name)


@pytest.mark.parametrize(
    ("name", "args", "problem"),
    [
        ("div", (1, 0), "integer divide by zero"),
        ("mod", (1, 0), "integer divide by zero"),
        ("divf", (1, 0), "decimal division by 0"),
        ("addf", ("inf",), "no decimal value"),
        ("until", (10**9,), "at most 1000000 elements"),
        ("until", ("3",), "expected int; got string"),
        ("round", (1.5, "1"), "expected int; got string"),
        ("atoi", (1,), "expected string; got int"),
    ],
)
def test_unsuitable_arguments_are_an_error(name: str, args: tuple[Any, ...], problem: str):
    with pytest.raises(FunctionError, match=problem):
        FUNCTIONS[name](*args)
