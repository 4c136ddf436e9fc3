"""Closures that evaluate nodes."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.cel.closures import (
    ConstantClosure,
    EvaluationRun,
    function_call,
    get_field,
    get_optional_field,
    has_field,
    in_string_set,
    library_call,
)
from kubeloop.cel.values import NONE, CelError


def run() -> EvaluationRun:
    return EvaluationRun([], 1000, "context")


@pytest.mark.parametrize(("value", "expected"), [("a", True), ("b", False), (1, False)])
def test_membership_in_a_set_of_strings(value: Any, expected: bool):
    assert in_string_set(ConstantClosure(value), frozenset({"a"}))(run()) is expected


@pytest.mark.parametrize(("cost", "expected"), [(None, 1), (lambda args: len(args[0]), 3)])
def test_cost_of_a_function_call(cost: Any, expected: int):
    state = run()
    assert function_call(str.upper, [ConstantClosure("abc")], cost, "upper")(state) == "ABC"
    assert state.cost == expected


@pytest.mark.parametrize(("name", "message"), [("f", "no such overload: f(int, string)"), ("", "no such overload")])
def test_arguments_of_unsupported_types(name: str, message: str):
    call = function_call(lambda one, other: one + other, [ConstantClosure(1), ConstantClosure("a")], None, name)
    with pytest.raises(CelError) as raised:
        call(run())
    assert str(raised.value) == message


def test_library_function_receives_the_context():
    state = run()
    call = library_call(lambda *values: values, [ConstantClosure(1)], lambda _args, result: len(result), "f")
    assert (call(state), state.cost) == (("context", 1), 2)


@pytest.mark.parametrize(("field", "present"), [("a", True), ("b", False)])
def test_fields_of_a_map(field: str, present: bool):
    value = {"a": 1}
    assert has_field(value, field) is present
    if present:
        assert (get_field(value, field), get_optional_field(value, field).value) == (1, 1)
        return
    assert get_optional_field(value, field) is NONE
    with pytest.raises(CelError, match="no such key: b"):
        get_field(value, field)
