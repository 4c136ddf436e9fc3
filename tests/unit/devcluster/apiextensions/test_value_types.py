"""Field ownership and server-side apply of custom resources."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.apiextensions.value_types import object_type, schema_type
from kubeloop.devcluster.managedfields.apply import atomic_paths_in, merge
from kubeloop.devcluster.managedfields.field_sets import all_fields, changed_fields, item_key, removed_fields
from kubeloop.devcluster.managedfields.typed_validation import type_error

JSON = dict[str, Any]
STRING: JSON = {"type": "string"}
SET: JSON = {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}
LIST_MAP: JSON = {
    "type": "array",
    "items": {"type": "object", "properties": {"name": STRING, "port": {"type": "integer", "default": 80}}},
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name", "port"],
}
ATOMIC_MAP: JSON = {"type": "object", "additionalProperties": STRING, "x-kubernetes-map-type": "atomic"}
SCHEMA: JSON = {
    "type": "object",
    "properties": {"tags": SET, "ports": LIST_MAP, "atomic": ATOMIC_MAP, "list": {"type": "array", "items": STRING}},
}
TYPE = object_type(SCHEMA)


def test_item_key_of_a_list_map_includes_key_defaults():
    assert item_key(schema_type(LIST_MAP), {"name": "a"}) == 'k:{"name":"a","port":80}'


def test_item_key_of_a_set_is_the_value():
    assert item_key(schema_type(SET), "a") == 'v:"a"'


def test_all_fields_lists_members_of_granular_values_only():
    config = {"tags": ["x"], "ports": [{"name": "a", "port": 1}], "atomic": {"k": "v"}, "list": ["x"]}
    assert all_fields(TYPE, config) == {
        "f:tags": {'v:"x"': {}},
        "f:ports": {'k:{"name":"a","port":1}': {".": {}, "f:name": {}, "f:port": {}}},
        "f:atomic": {},
        "f:list": {},
    }


@pytest.mark.parametrize(
    ("old", "new", "changed", "removed"),
    [
        pytest.param({"tags": ["x"]}, {"tags": ["x"]}, None, {}, id="equal"),
        pytest.param({"tags": ["x"]}, {"tags": ["x", "y"]}, {"f:tags": {'v:"y"': {}}}, {}, id="new item of a set"),
        pytest.param({"tags": ["x", "y"]}, {"tags": ["y"]}, None, {"f:tags": {'v:"x"': {}}}, id="removed item"),
        pytest.param({"list": ["x"]}, {"list": ["y"]}, {"f:list": {}}, {}, id="changed atomic list"),
        pytest.param({"number": 1}, {"number": 1.0}, None, {}, id="equal number"),
        pytest.param({"a": 1, "b": 1}, {"a": True, "b": 2}, {"f:a": {}, "f:b": {}}, {}, id="boolean for a number"),
        pytest.param({"list": ["x"]}, {}, None, {"f:list": {}}, id="removed field"),
    ],
)
def test_changed_and_removed_fields_of_an_update(old: JSON, new: JSON, changed: JSON | None, removed: JSON):
    assert (changed_fields(TYPE, old, new), removed_fields(TYPE, old, new)) == (changed, removed)


def test_merge_adds_items_of_sets_and_replaces_atomic_values():
    current = {"tags": ["x"], "ports": [{"name": "a", "port": 1}], "atomic": {"k": "v"}, "list": ["x"]}
    config = {"tags": ["y"], "ports": [{"name": "b", "port": 1}], "atomic": {"l": "w"}, "list": ["y"]}
    assert merge(TYPE, current, config) == {
        "tags": ["x", "y"],
        "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 1}],
        "atomic": {"l": "w"},
        "list": ["y"],
    }


def test_merge_of_null_keeps_the_members_of_granular_values_only():
    current = {"tags": ["x"], "ports": [{"name": "a"}], "atomic": {"k": "v"}, "list": ["x"]}
    nulls = dict.fromkeys(current)
    assert merge(TYPE, current, nulls) == {"tags": ["x"], "ports": [{"name": "a"}], "atomic": None, "list": None}


@pytest.mark.parametrize(
    ("config", "error"),
    [
        pytest.param({"tags": ["x"], "metadata": {"name": "a"}}, "", id="valid"),
        pytest.param({"tags": {}}, ".tags: expected list, got &{map[]}", id="map for a list"),
        pytest.param({"other": 1}, ".other: field not declared in schema", id="undeclared field"),
        pytest.param({"tags": ["x", "x"]}, '.tags: duplicate entries for key [="x"]', id="duplicate item"),
        pytest.param(
            {"tags": ["x", None]},
            ".tags: element 1: associative list without keys has an element that's an explicit null",
            id="null in a set",
        ),
        pytest.param(
            {"ports": ["x"]},
            ".ports: element 0: associative list with keys may not have non-map elements",
            id="text in a list map",
        ),
    ],
)
def test_type_error_describes_an_invalid_configuration(config: JSON, error: str):
    assert type_error(TYPE, config) == error


def test_atomic_paths_are_those_of_atomic_maps_and_lists():
    assert [*atomic_paths_in(TYPE, {"tags": ["x"], "atomic": {"k": "v"}, "list": ["x"]})] == [".atomic", ".list"]
