"""Schemas at work: values, patterns, formats, pruning and paths. What is wrong is told in kube-apiserver's words."""

from typing import Any

import pytest

from kubeloop.devcluster.apiextensions.value_validation import go_number, validate
from kubeloop.devcluster.validation.common.error_list import ErrorList

JSON = dict[str, Any]


def told(schema: JSON, value: Any, **more: Any) -> list[str]:
    """What is wrong with a value under the field `a`."""
    errors = ErrorList()
    before = {name: {"a": each} for name, each in more.items()}
    validate(errors, {"a": value}, {"type": "object", "properties": {"a": schema}}, **before)
    return [f"{each['field']}: {each['message']}" for each in errors]


@pytest.mark.parametrize(
    ("schema", "value", "wrong"),
    [
        ({"type": "integer"}, True, 'a: Invalid value: "boolean": a in body must be of type integer: "boolean"'),
        ({"type": "integer"}, None, 'a: Invalid value: "null": a in body must be of type integer: "null"'),
        ({"type": "integer"}, 2.0, None),
        ({"type": "number"}, 2, None),
        ({"type": "string", "nullable": True}, None, None),
        (
            {"type": "integer", "maximum": 5, "exclusiveMaximum": True},
            5,
            "a: Invalid value: 5: a in body should be less than 5",
        ),
        (
            {"type": "number", "minimum": 0.5},
            0.25,
            "a: Invalid value: 0.25: a in body should be greater than or equal to 0.5",
        ),
        ({"type": "integer", "multipleOf": 3}, 10, "a: Invalid value: 10: a in body should be a multiple of 3"),
        ({"type": "string", "enum": ["x", "y"]}, "z", 'a: Unsupported value: "z": supported values: "x", "y"'),
        ({"type": "string", "maxLength": 2}, "äöü", "a: Too long: may not be more than 2 bytes"),
        ({"type": "string", "pattern": "^a$"}, "a\n", "a: Invalid value: \"a\\n\": a in body should match '^a$'"),
        (
            {"type": "array", "items": {"type": "string"}, "maxItems": 1},
            ["a", "b"],
            "a: Too many: 2: must have at most 1 item",
        ),
        (
            {"type": "object", "minProperties": 1},
            {},
            "a: Invalid value: 0: a in body should have at least 1 properties",
        ),
        ({"type": "object", "properties": {}, "required": ["b"]}, {}, "a.b: Required value"),
        ({"x-kubernetes-int-or-string": True}, "80", None),
        ({"type": "string", "format": "uuid"}, "no", 'a: Invalid value: "no": a in body must be of type uuid: "no"'),
        ({"type": "string", "format": "whatever"}, "yes", None),
    ],
)
def test_a_value_is_held_against_its_schema(schema: JSON, value: Any, wrong: str | None):
    assert told(schema, value) == ([wrong] if wrong else [])


def test_what_was_wrong_before_may_stay_where_it_is_and_nothing_new_may_come():
    items = {"type": "object", "properties": {"k": {"type": "string"}, "n": {"type": "integer", "maximum": 3}}}
    keyed = {"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    old = [{"k": "a", "n": 9}]
    assert told(keyed, [{"k": "b", "n": 1}, {"k": "a", "n": 9}], old=old) == []
    assert len(told(keyed, [{"k": "b", "n": 9}], old=old)) == 1
    assert len(told({"type": "array", "items": items}, [{"k": "a", "n": 9}, {"k": "c"}], old=old)) == 1  # atomic
    many = [{"k": str(number), "n": 9} for number in range(30_000)]  # each with each would take minutes
    assert told(keyed, many, old=many[::-1]) == []


def test_values_are_printed_as_go_prints_them():
    assert [go_number(each) for each in (3, 3.0, 0.5, 1e21, 1e-7)] == ["3", "3", "0.5", "1e+21", "1e-07"]
