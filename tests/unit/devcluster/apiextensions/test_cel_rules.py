"""Rules in schemas: what they see, what they refuse and in which words, and what may stay as it was."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.apiextensions.cel_rules import RuleTree, check_object
from kubeloop.devcluster.apiextensions.schema_validation import check_schema
from kubeloop.devcluster.validation.common.error_list import ErrorList

JSON = dict[str, Any]
INTEGER: JSON = {"type": "integer"}


def of(spec: JSON, *rules: JSON | str) -> JSON:
    """A root schema with one field, `spec`, and its rules."""
    told = [{"rule": each} if isinstance(each, str) else each for each in rules]
    return {"type": "object", "properties": {"spec": {**spec, "x-kubernetes-validations": told}}}


def causes(schema: JSON, spec: Any, old: Any = None) -> list[str]:
    tree = RuleTree(schema, root=True)
    found = check_object(tree, {"spec": spec}, None if old is None else {"spec": old})
    return [f"{each['field']}: {each['message']}" for each in found.errors]


def refusals(schema: JSON) -> list[str]:
    errors = ErrorList()
    check_schema(errors, schema, "validation", has_status=False)
    return [f"{each['field'].removeprefix('validation.openAPIV3Schema.')}: {each['message']}" for each in errors]


def test_a_broken_rule_is_told_with_its_text_or_its_message():
    schema = of(INTEGER, "self > 3", {"rule": "self % 2 == 0", "message": "must be even"})
    assert causes(schema, 1) == [
        "spec: Invalid value: 1: failed rule: self > 3",
        "spec: Invalid value: 1: must be even",
    ]
    assert causes(schema, 4) == []


def test_a_rule_says_where_and_why():
    schema = of(
        {"type": "object", "properties": {"a": INTEGER, "b": INTEGER}},
        {
            "rule": "self.a < self.b",
            "messageExpression": "'a is ' + string(self.a)",
            "fieldPath": ".a",
            "reason": "FieldValueForbidden",
        },
    )
    assert causes(schema, {"a": 2, "b": 1}) == ["spec.a: Forbidden: a is 2"]
    assert causes(schema, {"a": 2}) == [
        'spec: Invalid value: "object": no such key: b evaluating rule: self.a < self.b'
    ]


def test_rules_of_elements_are_run_on_each():
    items = {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}
    assert causes(of({"type": "array", "items": items}), [1, 0, -1]) == [
        "spec[1]: Invalid value: 0: failed rule: self > 0",
        "spec[2]: Invalid value: -1: failed rule: self > 0",
    ]
    more = {"type": "object", "additionalProperties": items}
    assert causes(of(more), {"a": 1, "b": 0}) == ["spec[b]: Invalid value: 0: failed rule: self > 0"]


def test_old_self_is_what_was_before_and_rules_with_it_run_on_updates_alone():
    schema = of({"type": "string"}, {"rule": "self == oldSelf", "message": "immutable"})
    assert causes(schema, "a") == []
    assert causes(schema, "b", old="a") == ['spec: Invalid value: "b": immutable']
    optional = of({"type": "string"}, {"rule": "oldSelf.hasValue()", "optionalOldSelf": True, "message": "born"})
    assert causes(optional, "a") == ['spec: Invalid value: "a": born']
    assert causes(optional, "b", old="a") == []


def test_items_with_keys_are_compared_with_those_of_the_same_keys():
    item = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "size": INTEGER},
        "x-kubernetes-validations": [{"rule": "self.size >= oldSelf.size"}],
    }
    listed = {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    before = [{"name": "a", "size": 5}, {"name": "b", "size": 1}]
    assert causes(of(listed), [{"name": "b", "size": 1}, {"name": "a", "size": 6}], old=before) == []
    assert causes(of(listed), [{"name": "b", "size": 0}], old=before) == [
        "spec[0]: Invalid value: failed rule: self.size >= oldSelf.size"
    ]


def test_what_has_not_changed_is_a_warning_and_no_error():
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 3"}]},
            "b": {"type": "string"},
        },
    }
    tree = RuleTree(schema, root=True)
    found = check_object(tree, {"a": 1, "b": "y"}, {"a": 1, "b": "x"})
    assert found.errors == []
    assert found.warnings == ["a: Invalid value: 1: failed rule: self > 3"]
    assert check_object(tree, {"a": 2}, {"a": 1}).warnings == []


def test_an_expression_that_runs_away_ends_with_its_budget():
    items = {"type": "array", "items": {"type": "integer"}}
    schema = of(items, "self.all(x, self.all(y, self.all(z, x + y + z >= 0)))", "self.size() < 3")
    assert causes(schema, list(range(200))) == [
        "spec: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation "
        "rules will be run due to call cost exceeds limit for rule: "
        "self.all(x, self.all(y, self.all(z, x + y + z >= 0)))"
    ]


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("self.zz == 1", "undefined field 'zz'"),
        ("self.a == 'x'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.a", "cel expression must evaluate to a bool"),
        ("self.a ==", "Syntax error: mismatched input '<EOF>'"),
        ("int('x') == self.a", "program instantiation failed: type conversion error from 'string' to 'int'"),
        (
            "self.list.all(x, self.list.all(y, x != y))",
            "estimated rule cost exceeds budget by factor of more than 100x",
        ),
    ],
)
def test_a_definition_is_refused_for_a_rule_that_does_not_compile_or_costs_too_much(rule, told):
    texts = {"type": "array", "items": {"type": "string"}}
    schema = of({"type": "object", "properties": {"a": INTEGER, "list": texts}}, rule)
    assert told in refusals(schema)[0]


def test_old_self_is_refused_where_nothing_tells_what_was_before():
    items = {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    schema = of({"type": "array", "maxItems": 3, "items": items}, "true")
    path = "validation.openAPIV3Schema.properties[spec]"
    told = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {path}"
    assert refusals(schema) == [
        f'properties[spec].items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": {told}'
    ]


def test_a_default_obeys_the_rules():
    schema = of({"type": "integer", "default": 1}, "self > 3")
    assert refusals(schema) == ["properties[spec].default: Invalid value: 1: failed rule: self > 3"]
