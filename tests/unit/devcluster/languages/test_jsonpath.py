"""JSON paths of printer columns and the scale subresource."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.languages.jsonpath import PathError, field_names, find, to_string

OBJECT = {
    "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True", "n": 3}]},
    "metadata": {"labels": {"a.b/c": "v"}},
    "list": [1, 2, 3],
}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (".list[1]", [2]),
        (".list[-1]", [3]),
        (".list[0:2]", [1, 2]),
        (".list[*]", [1, 2, 3]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.n>2)].type", ["Ready"]),
        (".status.conditions[?(@.n)].type", ["Ready"]),
        (r".metadata.labels.a\.b/c", ["v"]),
        (".metadata.labels['a.b/c']", ["v"]),
        (".nothing.here", []),
        ("..type", ["A", "Ready"]),
        pytest.param(f".list[{'9' * 5000}]", [], id="index of more digits than int() accepts"),
        pytest.param(f".list[2:{'9' * 5000}]", [3], id="end of more digits than int() accepts"),
    ],
)
def test_find_returns_values_at_the_path(path: str, values: list[Any]):
    assert find(path, OBJECT) == values


def test_invalid_path_is_rejected():
    with pytest.raises(PathError):
        find(".list[1", OBJECT)


def test_to_string_prints_like_client_go():
    assert [to_string(value) for value in ("x", True, {"b": 1, "a": 2})] == ["x", "true", '{"a":2,"b":1}']


def test_field_names_of_a_simple_path():
    assert field_names(".spec.replicas") == ["spec", "replicas"]
