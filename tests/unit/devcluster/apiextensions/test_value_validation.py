"""Schemas at work: values, patterns, formats, pruning and paths. What is wrong is told in kube-apiserver's words."""

from typing import Any

import pytest

from kubeloop.devcluster.apiextensions.served_version import version_rank
from kubeloop.devcluster.apiextensions.structural_schema import apply_defaults, check_unique_items, pruned_object
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


def test_pruning_keeps_what_is_preserved_and_looks_into_what_is_known_there():
    inner = {"type": "object", "properties": {"c": {"type": "string"}}}
    schema = {
        "type": "object",
        "properties": {
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"known": inner}},
            "shut": inner,
            "map": {"type": "object", "additionalProperties": inner},
        },
    }
    given = {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "x", "odd": 1},
        "open": {"any": {"thing": 1}, "known": {"c": "1", "d": "2"}},
        "shut": {"c": "1", "d": {"e": 1}},
        "map": {"x": {"d": 1}},
        "more": 1,
    }
    pruned, unknown = pruned_object(given, schema)
    assert unknown == ["metadata.odd", "map.x.d", "more", "open.known.d", "shut.d"]
    assert pruned["open"] == {"any": {"thing": 1}, "known": {"c": "1"}}
    assert (pruned["shut"], pruned["map"]) == ({"c": "1"}, {"x": {}})
    assert given["shut"] == {"c": "1", "d": {"e": 1}}


def test_defaults_fill_what_is_missing_or_null_where_null_is_not_allowed():
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 1}}},
            "c": {"type": "string", "nullable": True, "default": "x"},
            "d": {
                "type": "array",
                "items": {"type": "object", "properties": {"e": {"type": "string", "default": "y"}}},
            },
        },
    }
    value: JSON = {"c": None, "d": [{}]}
    apply_defaults(value, schema)
    assert value == {"a": {"b": 1}, "c": None, "d": [{"e": "y"}]}


def test_items_of_sets_and_keyed_lists_are_there_once():
    errors = ErrorList()
    schema = {"type": "object", "properties": {"s": {"type": "array", "items": {}, "x-kubernetes-list-type": "set"}}}
    check_unique_items(errors, {"s": ["a", "b", "a", "a"]}, schema)
    assert [(each["field"], each["message"]) for each in errors] == [("s[2]", 'Duplicate value: "a"')]


def test_values_are_printed_as_go_prints_them():
    assert [go_number(each) for each in (3, 3.0, 0.5, 1e21, 1e-7)] == ["3", "3", "0.5", "1e+21", "1e-07"]


def test_versions_come_in_the_order_of_discovery():
    names = ["v1alpha1", "v10", "v2", "v1beta2", "v1", "foo", "v11beta1", "v1beta1"]
    assert sorted(names, key=version_rank) == ["v10", "v2", "v1", "v11beta1", "v1beta2", "v1beta1", "v1alpha1", "foo"]
