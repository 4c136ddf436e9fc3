"""Validation of the schemas in definitions: CEL rules and defaults."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.apiextensions.schema_validation import check_schema
from kubeloop.devcluster.validation.common.error_list import ErrorList

JSON = dict[str, Any]
INTEGER: JSON = {"type": "integer"}


def with_rules(spec: JSON, *rules: str) -> JSON:
    """Return a root schema with one field, `spec`, and its validation rules."""
    validations = [{"rule": rule} for rule in rules]
    return {"type": "object", "properties": {"spec": {**spec, "x-kubernetes-validations": validations}}}


def schema_errors(schema: JSON) -> list[str]:
    errors = ErrorList()
    check_schema(errors, schema, "validation", has_status=False)
    return [f"{cause['field'].removeprefix('validation.openAPIV3Schema.')}: {cause['message']}" for cause in errors]


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        pytest.param("self.zz == 1", "undefined field 'zz'", id="undefined field"),
        pytest.param(
            "self.a == 'x'", "found no matching overload for '_==_' applied to '(int, string)'", id="no overload"
        ),
        pytest.param("self.a", "cel expression must evaluate to a bool", id="not a bool"),
        pytest.param("self.a ==", "Syntax error: mismatched input '<EOF>'", id="syntax error"),
        pytest.param(
            "int('x') == self.a",
            "program instantiation failed: type conversion error from 'string' to 'int'",
            id="constant fails",
        ),
        pytest.param(
            "self.list.all(x, self.list.all(y, x != y))",
            "estimated rule cost exceeds budget by factor of more than 100x",
            id="too expensive",
        ),
    ],
)
def test_rule_must_compile_within_the_cost_limit(rule: str, error: str):
    strings = {"type": "array", "items": {"type": "string"}}
    schema = with_rules({"type": "object", "properties": {"a": INTEGER, "list": strings}}, rule)
    assert error in schema_errors(schema)[0]


def test_old_self_is_invalid_below_an_atomic_list():
    items = {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    schema = with_rules({"type": "array", "maxItems": 3, "items": items}, "true")
    path = "validation.openAPIV3Schema.properties[spec]"
    error = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {path}"
    assert schema_errors(schema) == [
        f'properties[spec].items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": {error}'
    ]


def test_default_must_pass_the_rules():
    schema = with_rules({"type": "integer", "default": 1}, "self > 3")
    assert schema_errors(schema) == ["properties[spec].default: Invalid value: 1: failed rule: self > 3"]
