"""Structural schemas applied to objects: pruning, defaults and unique items."""

from typing import Any

from kubeloop.devcluster.apiextensions.structural_schema import apply_defaults, check_unique_items, pruned_object
from kubeloop.devcluster.validation.common.error_list import ErrorList

JSON = dict[str, Any]


def test_pruning_keeps_preserved_and_prunes_declared_fields():
    inner = {"type": "object", "properties": {"c": {"type": "string"}}}
    schema = {
        "type": "object",
        "properties": {
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"known": inner}},
            "shut": inner,
            "map": {"type": "object", "additionalProperties": inner},
        },
    }
    value = {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "x", "odd": 1},
        "open": {"any": {"thing": 1}, "known": {"c": "1", "d": "2"}},
        "shut": {"c": "1", "d": {"e": 1}},
        "map": {"x": {"d": 1}},
        "more": 1,
    }
    pruned, unknown = pruned_object(value, schema)
    assert unknown == ["metadata.odd", "map.x.d", "more", "open.known.d", "shut.d"]
    assert pruned["open"] == {"any": {"thing": 1}, "known": {"c": "1"}}
    assert (pruned["shut"], pruned["map"]) == ({"c": "1"}, {"x": {}})
    assert value["shut"] == {"c": "1", "d": {"e": 1}}


def test_defaults_replace_missing_and_disallowed_null_values():
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


def test_duplicate_items_of_a_set_are_reported_once():
    errors = ErrorList()
    schema = {"type": "object", "properties": {"s": {"type": "array", "items": {}, "x-kubernetes-list-type": "set"}}}
    check_unique_items(errors, {"s": ["a", "b", "a", "a"]}, schema)
    assert [(cause["field"], cause["message"]) for cause in errors] == [("s[2]", 'Duplicate value: "a"')]
