"""Declared functions with their overloads."""

from __future__ import annotations

import pytest

from kubeloop.cel.declarations import overloads_by_name
from kubeloop.cel.types import BOOL, DURATION, INT, STRING, TIMESTAMP, UINT, Type, list_of


@pytest.mark.parametrize(
    ("name", "identifier", "arguments", "result", "member"),
    [
        ("_+_", "add_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP, False),
        ("_<_", "less_int64_uint64", (INT, UINT), BOOL, False),
        ("getHours", "timestamp_to_getHours_with_tz", (TIMESTAMP, STRING), INT, True),
        ("sum", "list_int_sum_int", (list_of(INT),), INT, True),
    ],
)
def test_signature_of_an_overload(name: str, identifier: str, arguments: tuple[Type, ...], result: Type, member: bool):
    (overload,) = (overload for overload in overloads_by_name()[name] if overload.id == identifier)
    assert (overload.arguments, overload.result, overload.member) == (arguments, result, member)


@pytest.mark.parametrize(
    ("identifier", "parameters"), [("index_map", {"A", "B"}), ("conditional", {"A"}), ("logical_and", set())]
)
def test_capital_letters_are_type_parameters(identifier: str, parameters: set[str]):
    (overload,) = (
        overload for overloads in overloads_by_name().values() for overload in overloads if overload.id == identifier
    )
    assert overload.parameters == parameters
