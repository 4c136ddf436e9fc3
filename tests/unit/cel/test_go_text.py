"""Texts of digits as numbers."""

from __future__ import annotations

import pytest

from kubeloop.cel.go_text import parse_integer


@pytest.mark.parametrize(
    ("digits", "number"),
    [
        ("0", 0),
        ("+7", 7),
        ("-007", -7),
        ("0" * 5000 + "5", 5),
        ("9" * 40, 10**40 - 1),
        pytest.param("9" * 41, 10**40, id="too long"),
        pytest.param("-" + "1" * 5000, -(10**40), id="more digits than int() accepts"),
    ],
)
def test_parse_integer(digits, number):
    assert parse_integer(digits) == number
