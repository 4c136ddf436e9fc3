"""Integers and percentages as Go parses and computes them."""

from __future__ import annotations

import pytest

from kubeloop.controllers.runtime.integers import (
    InvalidIntOrPercent,
    int_or_none,
    round_half_away_from_zero,
    scaled_value,
    wrap_int32,
)


@pytest.mark.parametrize(
    ("value", "total", "rounded_up", "rounded_down"),
    [
        pytest.param(3, 10, 3, 3, id="an integer is not scaled"),
        pytest.param("25%", 10, 3, 2, id="a percentage is rounded in the given direction"),
        pytest.param("0%", 10, 0, 0, id="zero percent"),
        pytest.param("100%", 7, 7, 7, id="an exact percentage"),
    ],
)
def test_scaled_value(value, total, rounded_up, rounded_down):
    assert scaled_value(value, total, round_up=True) == rounded_up
    assert scaled_value(value, total, round_up=False) == rounded_down


@pytest.mark.parametrize("value", [None, "3", "x%", "%", "1.5%"])
def test_scaled_value_rejects_other_values(value):
    with pytest.raises(InvalidIntOrPercent):
        scaled_value(value, 10, round_up=True)


def test_int_or_none_accepts_integers_that_fit():
    assert [int_or_none(text) for text in ("7", "+7", "-7", "9223372036854775808", "7.0", "", None)] == [
        7,
        7,
        -7,
        None,
        None,
        None,
        None,
    ]


def test_int32_arithmetic_overflows_and_rounds_as_in_go():
    assert wrap_int32(1 << 31) == -(1 << 31)
    assert [round_half_away_from_zero(number) for number in (0.5, 1.4, -0.5, -1.4)] == [1, 1, -1, -1]


def test_more_digits_than_python_converts_are_out_of_range():
    assert int_or_none("9" * 5000) is None
    assert int_or_none("0" * 5000 + "7") == 7
