"""Validation of values by OpenAPI schemas, with the error messages of kube-apiserver, and ratcheting."""

from typing import Any

import pytest

from kubeloop.devcluster.apiextensions.value_validation import MISSING, go_number, validate
from kubeloop.devcluster.validation.common.error_list import ErrorList

JSON = dict[str, Any]


def validation_errors(schema: JSON, value: Any, old: Any = MISSING) -> list[str]:
    """Return the errors of the value of field `a`, which replaces `old`."""
    errors = ErrorList()
    old_object = MISSING if old is MISSING else {"a": old}
    validate(errors, {"a": value}, {"type": "object", "properties": {"a": schema}}, old=old_object)
    return [f"{cause['field']}: {cause['message']}" for cause in errors]


@pytest.mark.parametrize(
    ("schema", "value", "error"),
    [
        pytest.param(
            {"type": "integer"},
            True,
            'a: Invalid value: "boolean": a in body must be of type integer: "boolean"',
            id="boolean for an integer",
        ),
        pytest.param(
            {"type": "integer"},
            None,
            'a: Invalid value: "null": a in body must be of type integer: "null"',
            id="null for an integer",
        ),
        pytest.param({"type": "integer"}, 2.0, None, id="whole float for an integer"),
        pytest.param({"type": "number"}, 2, None, id="integer for a number"),
        pytest.param({"type": "string", "nullable": True}, None, None, id="nullable"),
        pytest.param(
            {"type": "integer", "maximum": 5, "exclusiveMaximum": True},
            5,
            "a: Invalid value: 5: a in body should be less than 5",
            id="exclusive maximum",
        ),
        pytest.param(
            {"type": "number", "minimum": 0.5},
            0.25,
            "a: Invalid value: 0.25: a in body should be greater than or equal to 0.5",
            id="minimum",
        ),
        pytest.param(
            {"type": "integer", "multipleOf": 3},
            10,
            "a: Invalid value: 10: a in body should be a multiple of 3",
            id="multipleOf",
        ),
        pytest.param(
            {"type": "string", "enum": ["x", "y"]},
            "z",
            'a: Unsupported value: "z": supported values: "x", "y"',
            id="enum",
        ),
        pytest.param(
            {"type": "string", "maxLength": 2}, "äöü", "a: Too long: may not be more than 2 bytes", id="maxLength"
        ),
        pytest.param(
            {"type": "string", "pattern": "^a$"},
            "a\n",
            "a: Invalid value: \"a\\n\": a in body should match '^a$'",
            id="pattern",
        ),
        pytest.param(
            {"type": "array", "items": {"type": "string"}, "maxItems": 1},
            ["a", "b"],
            "a: Too many: 2: must have at most 1 item",
            id="maxItems",
        ),
        pytest.param(
            {"type": "object", "minProperties": 1},
            {},
            "a: Invalid value: 0: a in body should have at least 1 properties",
            id="minProperties",
        ),
        pytest.param({"type": "object", "properties": {}, "required": ["b"]}, {}, "a.b: Required value", id="required"),
        pytest.param({"x-kubernetes-int-or-string": True}, "80", None, id="int or string"),
        pytest.param(
            {"type": "string", "format": "uuid"},
            "no",
            'a: Invalid value: "no": a in body must be of type uuid: "no"',
            id="format",
        ),
        pytest.param({"type": "string", "format": "whatever"}, "yes", None, id="unknown format"),
    ],
)
def test_validate_reports_each_violation(schema: JSON, value: Any, error: str | None):
    assert validation_errors(schema, value) == ([error] if error else [])


def test_ratcheting_allows_only_unchanged_invalid_values():
    items = {"type": "object", "properties": {"k": {"type": "string"}, "n": {"type": "integer", "maximum": 3}}}
    keyed = {"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    old = [{"k": "a", "n": 9}]
    assert validation_errors(keyed, [{"k": "b", "n": 1}, {"k": "a", "n": 9}], old=old) == []
    assert len(validation_errors(keyed, [{"k": "b", "n": 9}], old=old)) == 1
    assert (
        len(validation_errors({"type": "array", "items": items}, [{"k": "a", "n": 9}, {"k": "c"}], old=old)) == 1
    )  # atomic
    many = [{"k": str(number), "n": 9} for number in range(30_000)]  # comparing all pairs would take minutes
    assert validation_errors(keyed, many, old=many[::-1]) == []


def test_go_number_formats_like_go():
    assert [go_number(number) for number in (3, 3.0, 0.5, 1e21, 1e-7)] == ["3", "3", "0.5", "1e+21", "1e-07"]
