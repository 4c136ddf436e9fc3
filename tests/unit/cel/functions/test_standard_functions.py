"""Standard functions: conversions, getters, sizes."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.cel.functions.standard_functions import FUNCTIONS, contained
from kubeloop.cel.values import CelError, Duration, Uint


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("size", ("a\u00e9",), 2), ("size", (b"\xc3\xa9",), 2), ("size", ([1],), 1), ("bool", ("TRUE",), True),
        ("bytes", ("\u00e9",), b"\xc3\xa9"), ("double", ("1.5",), 1.5), ("duration", ("1m",), Duration(60 * 10**9)),
        ("int", (1.9,), 1), ("int", ("-7",), -7), ("uint", (7,), Uint(7)), ("string", (True,), "true"),
        ("string", (1.0,), "1"), ("string", (Uint(7),), "7"),
    ],
)  # fmt: skip
def test_conversion(name: str, args: tuple[Any, ...], expected: Any):
    result = FUNCTIONS[name](*args)
    assert (result, type(result)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("int", "x", "type conversion error from 'string' to 'int'"),
        ("int", 1e30, "integer overflow"),
        ("uint", -1, "unsigned integer overflow"),
        ("duration", "1 hour", "type conversion error from 'string' to 'google.protobuf.Duration'"),
        ("timestamp", "today", "type conversion error from 'string' to 'google.protobuf.Timestamp'"),
        ("bool", 1, "no such overload"),
    ],
)
def test_conversion_error(name: str, value: Any, message: str):
    with pytest.raises(CelError) as raised:
        FUNCTIONS[name](value)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("getFullYear", (), 2026), ("getMonth", (), 0), ("getDate", (), 1), ("getDayOfMonth", (), 0),
        ("getDayOfYear", (), 0), ("getDayOfWeek", (), 4), ("getHours", (), 1), ("getHours", ("+02:30",), 3),
        ("getMinutes", ("+02:30",), 32), ("getHours", ("Europe/Berlin",), 2), ("getFullYear", ("-02:00",), 2025),
        ("getSeconds", (), 3), ("getMilliseconds", (), 4),
    ],
)  # fmt: skip
def test_part_of_a_timestamp(name: str, args: tuple[str, ...], expected: int):
    timestamp = FUNCTIONS["timestamp"]("2026-01-01T01:02:03.004Z")
    assert FUNCTIONS[name](timestamp, *args) == expected


@pytest.mark.parametrize(
    ("value", "container", "expected"),
    [(1, [1.0], True), (True, [1], False), ("a", {"a": 1}, True), (1, {1: "a"}, True), ("b", {"a": 1}, False)],
)
def test_membership(value: Any, container: Any, expected: bool):
    assert contained(value, container) is expected
