"""Expressions at the limits of numbers, times and sizes return a value, an error or a cost, and never crash."""

from __future__ import annotations

import pytest

from kubeloop.cel.program import COST_LIMIT_EXCEEDED, CelProgram
from kubeloop.cel.schema_values import SchemaView
from kubeloop.cel.syntax import ExpressionError, InstantiationError
from kubeloop.cel.types import STRING, schema_decl_type

DIGITS = "9" * 5000  # int() rejects that many


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("int(x)", "type conversion error from 'string' to 'int'"),
        ("uint(x)", "type conversion error from 'string' to 'uint'"),
        ("duration(x + 's')", "type conversion error from 'string' to 'google.protobuf.Duration'"),
        ("timestamp(0).getHours('999999999999:00')", "timestamp overflow"),
        ("timestamp(0).getHours('a:00')", 'strconv.Atoi: parsing "a": invalid syntax'),
        ("'%.999999999f'.format([1.0])", COST_LIMIT_EXCEEDED),
        ("'%.999999999e'.format([1.0])", COST_LIMIT_EXCEEDED),
        ("x.replace('', x + x + x)", COST_LIMIT_EXCEEDED),
        ("lists.range(9999999)", COST_LIMIT_EXCEEDED),
        ("[1, 2, 3].slice(0, 99999999999)", "cannot slice(0, 99999999999), list is length 3"),
    ],
)
def test_oversized_arguments_return_an_error(expression: str, error: str):
    assert CelProgram(expression, {"x": STRING}).run({"x": DIGITS}).error == error


@pytest.mark.parametrize("expression", [f"{DIGITS} > 0", f"{DIGITS}u > 0u", f"'%.{DIGITS}f'.format([1.0])"])
def test_oversized_literals_are_rejected(expression: str):
    with pytest.raises((ExpressionError, InstantiationError)):
        CelProgram(expression, {})


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("int('" + "0" * 5000 + "7')", 7),
        ("duration('0." + DIGITS + "s') == duration('1s')", True),
        ("timestamp('9999-12-31T23:59:59Z').getHours('+01:00')", 0),
        ("timestamp('9999-12-31T23:59:59Z').getFullYear('+01:00')", 10000),
        ("timestamp('9999-12-31T23:59:59Z').getDayOfWeek()", 5),
        ("timestamp('9999-12-31T23:59:59Z').getDayOfWeek('+01:00')", 6),
        ("timestamp('0001-01-01T00:00:00Z').getFullYear('-01:00')", 0),
        ("timestamp('0001-01-01T00:00:00Z').getHours('America/New_York')", 19),
        ("timestamp('2020-01-01T00:00:00Z').getHours('+25:30')", 1),
        ("timestamp('2020-01-01T00:00:00Z').getMinutes('-00:30')", 30),
        ("string(timestamp('2020-01-01T00:00:00+24:00'))", "2020-01-01T00:00:00+24:00"),
        ("'aXbX'.replace('X', 'y', 1)", "aybX"),
    ],
)
def test_values_beyond_limits_of_python_types_are_supported(expression: str, value: object):
    result = CelProgram(expression, {}).run({})
    assert (result.value, result.error) == (value, "")


@pytest.mark.parametrize("expression", ["self.distinct()", "self.sort()", "sets.contains(self, self)"])
def test_pairwise_functions_stop_at_the_cost_limit_before_they_run(expression: str):
    items = {"type": "array", "items": {"type": "string"}}
    decl_type = schema_decl_type(items, root=False)
    assert decl_type is not None
    values = [str(number) for number in range(200_000)]  # comparing all pairs would take hours
    result = CelProgram(expression, {"self": decl_type.type}).run({"self": SchemaView(items).convert(values)})
    assert result.error == COST_LIMIT_EXCEEDED


def test_objects_with_a_schema_compare_by_value():
    plain = {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}}
    timed = {"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}
    schema = {"type": "object", "properties": {}}
    schema["properties"] = {"a": {"type": "array", "items": plain}, "b": {"type": "array", "items": timed}}
    decl_type = schema_decl_type(schema, root=False)
    assert decl_type is not None
    data = {
        "a": [{"name": "x", "size": 1}, {"name": "x", "size": 2}, {"size": 1, "name": "x"}],
        "b": [{"at": "2026-01-01T00:00:00Z"}, {"at": "2026-01-01T01:00:00+01:00"}],
    }
    values = {"self": SchemaView(schema).convert(data)}
    for expression in (
        "self.a[0] == self.a[2]",
        "self.a[0] != self.a[1]",
        "self.a[2] in self.a",
        "self.b[0] == self.b[1]",
    ):
        assert CelProgram(expression, {"self": decl_type.type}).run(values).value is True, expression
    assert CelProgram("self.a.distinct().size()", {"self": decl_type.type}).run(values).value == 2
