"""Structural schemas applied to objects: pruning, defaults, embedded objects and unique items."""

from typing import Any

import pytest

from kubeloop.devcluster.apiextensions.structural_schema import (
    apply_defaults,
    check_embedded,
    check_unique_items,
    pruned_object,
    walk,
)
from kubeloop.devcluster.validation.common.error_list import ErrorList
from support.objects.validation_causes import validator_causes

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


def test_duplicate_keys_of_a_list_map_are_reported():
    items = {"type": "array", "items": {}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    schema = {"type": "object", "properties": {"l": items}}
    value = {"l": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}
    assert validator_causes(check_unique_items, value, schema) == ['l[2]: Duplicate value: {"name":"a"}']


@pytest.mark.parametrize(
    ("embedded", "errors"),
    [
        pytest.param({"apiVersion": "v1", "kind": "Pod", "metadata": {}}, [], id="valid"),
        pytest.param({}, ["t.apiVersion: Required value", "t.kind: Required value"], id="no apiVersion and kind"),
        pytest.param(
            {"apiVersion": "", "kind": "Pod"},
            ['t.apiVersion: Invalid value: "": must not be empty'],
            id="empty apiVersion",
        ),
        pytest.param(
            {"apiVersion": "a/b/c", "kind": "Pod"},
            ['t.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c'],
            id="invalid apiVersion",
        ),
    ],
)
def test_embedded_object_needs_api_version_and_kind(embedded: JSON, errors: list[str]):
    schema = {"type": "object", "properties": {"t": {"type": "object", "x-kubernetes-embedded-resource": True}}}
    assert validator_causes(check_embedded, {"t": embedded}, schema) == errors


def test_walk_returns_subschemas_with_their_paths():
    schema: JSON = {
        "properties": {"a": {"items": {"type": "string"}}},
        "anyOf": [{"minProperties": 1}],
    }
    assert walk(schema, "s") == [
        ("s", schema),
        ("s.properties[a]", {"items": {"type": "string"}}),
        ("s.properties[a].items", {"type": "string"}),
        ("s.anyOf[0]", {"minProperties": 1}),
    ]
