"""Text of values as Go prints them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.devcluster.languages.go_text import go_float, go_print


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "<nil>"),
        (True, "true"),
        (3, "3"),
        (0.5, "0.5"),
        ([1, None, "a"], "[1 <nil> a]"),
        ({"b": 1e6, "a": []}, "map[a:[] b:1e+06]"),
    ],
)
def test_value_is_printed_as_in_go(value: Any, text: str):
    assert go_print(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (123456.0, "123456"),
        (1000000.0, "1e+06"),
        (1234567.5, "1.2345675e+06"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1e100, "1e+100"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_float_is_printed_as_in_go(value: float, text: str):
    assert go_float(value) == text


@given(st.floats(allow_nan=False))
def test_printed_float_is_the_same_number(value: float):
    assert float(go_float(value)) == value
