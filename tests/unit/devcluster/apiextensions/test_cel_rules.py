"""Evaluation of x-kubernetes-validations: error messages, paths, oldSelf, ratcheting and the cost budget."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.apiextensions.cel_rules import RuleTree, check_object

JSON = dict[str, Any]
INTEGER: JSON = {"type": "integer"}


def with_rules(spec: JSON, *rules: JSON | str) -> JSON:
    """Return a root schema with one field, `spec`, and its validation rules."""
    validations = [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]
    return {"type": "object", "properties": {"spec": {**spec, "x-kubernetes-validations": validations}}}


def rule_errors(schema: JSON, spec: Any, old: Any = None) -> list[str]:
    tree = RuleTree(schema, root=True)
    evaluation = check_object(tree, {"spec": spec}, None if old is None else {"spec": old})
    return [f"{cause['field']}: {cause['message']}" for cause in evaluation.errors]


def test_violation_has_the_message_or_text_of_its_rule():
    schema = with_rules(INTEGER, "self > 3", {"rule": "self % 2 == 0", "message": "must be even"})
    assert rule_errors(schema, 1) == [
        "spec: Invalid value: 1: failed rule: self > 3",
        "spec: Invalid value: 1: must be even",
    ]
    assert rule_errors(schema, 4) == []


def test_violation_has_the_field_path_and_reason_of_its_rule():
    schema = with_rules(
        {"type": "object", "properties": {"a": INTEGER, "b": INTEGER}},
        {
            "rule": "self.a < self.b",
            "messageExpression": "'a is ' + string(self.a)",
            "fieldPath": ".a",
            "reason": "FieldValueForbidden",
        },
    )
    assert rule_errors(schema, {"a": 2, "b": 1}) == ["spec.a: Forbidden: a is 2"]
    assert rule_errors(schema, {"a": 2}) == [
        'spec: Invalid value: "object": no such key: b evaluating rule: self.a < self.b'
    ]


def test_rule_of_items_runs_on_every_list_item_and_map_value():
    items = {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}
    assert rule_errors(with_rules({"type": "array", "items": items}), [1, 0, -1]) == [
        "spec[1]: Invalid value: 0: failed rule: self > 0",
        "spec[2]: Invalid value: -1: failed rule: self > 0",
    ]
    mapping = {"type": "object", "additionalProperties": items}
    assert rule_errors(with_rules(mapping), {"a": 1, "b": 0}) == ["spec[b]: Invalid value: 0: failed rule: self > 0"]


def test_rule_with_old_self_runs_on_updates_only():
    schema = with_rules({"type": "string"}, {"rule": "self == oldSelf", "message": "immutable"})
    assert rule_errors(schema, "a") == []
    assert rule_errors(schema, "b", old="a") == ['spec: Invalid value: "b": immutable']
    optional = with_rules({"type": "string"}, {"rule": "oldSelf.hasValue()", "optionalOldSelf": True, "message": "new"})
    assert rule_errors(optional, "a") == ['spec: Invalid value: "a": new']
    assert rule_errors(optional, "b", old="a") == []


def test_old_self_of_a_list_map_item_has_the_same_keys():
    item = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "size": INTEGER},
        "x-kubernetes-validations": [{"rule": "self.size >= oldSelf.size"}],
    }
    list_map = {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    old_items = [{"name": "a", "size": 5}, {"name": "b", "size": 1}]
    assert rule_errors(with_rules(list_map), [{"name": "b", "size": 1}, {"name": "a", "size": 6}], old=old_items) == []
    assert rule_errors(with_rules(list_map), [{"name": "b", "size": 0}], old=old_items) == [
        "spec[0]: Invalid value: failed rule: self.size >= oldSelf.size"
    ]


def test_violation_of_an_unchanged_value_is_a_warning():
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 3"}]},
            "b": {"type": "string"},
        },
    }
    tree = RuleTree(schema, root=True)
    evaluation = check_object(tree, {"a": 1, "b": "y"}, {"a": 1, "b": "x"})
    assert evaluation.errors == []
    assert evaluation.warnings == ["a: Invalid value: 1: failed rule: self > 3"]
    assert check_object(tree, {"a": 2}, {"a": 1}).warnings == []


def test_rule_above_the_cost_limit_is_cancelled():
    items = {"type": "array", "items": {"type": "integer"}}
    schema = with_rules(items, "self.all(x, self.all(y, self.all(z, x + y + z >= 0)))", "self.size() < 3")
    assert rule_errors(schema, list(range(200))) == [
        "spec: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation "
        "rules will be run due to call cost exceeds limit for rule: "
        "self.all(x, self.all(y, self.all(z, x + y + z >= 0)))"
    ]
