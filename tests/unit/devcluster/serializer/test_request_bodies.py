"""Texts of requests: what is wrong with JSON and YAML in Go's words, YAML's scalars, and configurations by type."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.devcluster.managedfields.typed_validation import conversion_error, type_error
from kubeloop.devcluster.serializer.go_json_errors import go_json_error, summarize_body
from kubeloop.devcluster.serializer.patches import PatchError, json_patch
from kubeloop.devcluster.serializer.request_bodies import parse_json
from kubeloop.kube import schema

DEPLOYMENT = schema.type_for("apps", "v1", "Deployment")


@pytest.mark.parametrize(("text", "told"), [
    ("", "unexpected end of JSON input"),
    ("{}x", "invalid character 'x' after top-level value"),
    ('{"a" 1}', "invalid character '1' after object key"),
    ('{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
    ("[1 2]", "invalid character '2' after array element"),
    ("{'a':1}", r"invalid character '\'' looking for beginning of object key string"),
    ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
    ("nul", "unexpected end of JSON input"),
    ("trux", "invalid character 'x' in literal true (expecting 'e')"),
    ('"a\nb"', r"invalid character '\n' in string literal"),
    (r'"\x"', "invalid character 'x' in string escape code"),
    (r'"\u12G4"', r"invalid character 'G' in \u hexadecimal character escape"),
    ("-a", "invalid character 'a' in numeric literal"),
    ("1.x", "invalid character 'x' after decimal point in numeric literal"),
    ("1e", "unexpected end of JSON input"),
    ("[" * 100_000, "exceeded max depth"),
])  # fmt: skip
def test_a_syntax_error_is_told_as_by_go(text: str, told: str):
    assert go_json_error(text.encode()) == told


@pytest.mark.parametrize(
    "value", [None, True, -1.5e-7, 'a"\\\u2028ü', [[], {}], {"a": [1, {"b": None}]}, 12345678901234]
)
def test_what_is_json_has_no_error(value: Any):
    assert go_json_error(json.dumps(value, indent=1).encode()) == ""


def test_half_a_character_is_replaced_and_a_whole_one_kept():
    value, _ = parse_json(rb'{"a": "\ud800", "b": "\ud83d\ude00", "c": "\\ud800"}')
    assert value == {"a": "\ufffd", "b": "\U0001f600", "c": r"\ud800"}


def test_of_a_body_its_beginning_is_shown():
    assert summarize_body(b"") == "<empty>"
    assert summarize_body(b'{"kind": "ConfigMap", "apiVersion": "v1"}') == '{"kind": "ConfigMap", "apiVers ...'
    assert summarize_body(b"[1]") == "5b315d"


def container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"name": "c", **fields}]}}}}


IN = '.spec.template.spec.containers[name="c"]'


@pytest.mark.parametrize(("configuration", "told"), [
    (container(image="i"), ""),
    (container(image=1), f"{IN}.image: expected string, got &value.valueUnstructured{{Value:1}}"),
    (container(stdin="x"), f"{IN}.stdin: expected boolean, got &{{x}}"),
    (container(foo=1), f"{IN}.foo: field not declared in schema"),
    (container(env={}), f"{IN}.env: expected list, got &{{map[]}}"),
    (container(ports=[{"containerPort": 1}, {"containerPort": 1, "protocol": "TCP"}]),
     f'{IN}.ports: duplicate entries for key [containerPort=1,protocol="TCP"]'),
    (container(env=[None]), f"{IN}.env: element 0: associative list with keys may not have a null element"),
    ({"spec": {"replicas": "x"}}, ".spec.replicas: expected numeric (int or float), got string"),
    ({"metadata": {"finalizers": ["a", "a"]}}, '.metadata.finalizers: duplicate entries for key [="a"]'),
    ({"metadata": {"labels": []}, "spec": []},
     "errors:\n  .metadata.labels: expected map, got &{[]}\n  .spec: expected map, got &{[]}"),
])  # fmt: skip
def test_a_configuration_is_told_what_does_not_fit_its_type(configuration: dict[str, Any], told: str):
    assert DEPLOYMENT is not None
    assert type_error(DEPLOYMENT, configuration) == told


@pytest.mark.parametrize(("patched", "told"), [
    ({"spec": {"replicas": "x"}}, "unrecognized type: int32"),
    ({"spec": {"replicas": 1.5}}, "cannot convert float64 to int32"),
    ({"spec": []}, "cannot restore struct from: slice"),
    ({"metadata": {"labels": []}}, "cannot restore map from slice"),
    ({"metadata": {"name": 1}}, "cannot convert int64 to string"),
    (container(env="x"), "cannot restore slice from string"),
    (container(image="i"), ""),
])  # fmt: skip
def test_the_result_of_a_strategic_merge_is_converted_with_these_words(patched: dict[str, Any], told: str):
    assert DEPLOYMENT is not None
    assert conversion_error(schema.TypeRef("", "struct", named=DEPLOYMENT.name), patched) == told


@pytest.mark.parametrize(("operation", "result"), [
    ({"op": "add", "path": "/b"}, {"a": [1, 2], "b": None}),
    ({"op": "replace", "path": "/b", "value": 1}, {"a": [1, 2], "b": 1}),
    ({"op": "add", "path": "x/b", "value": 1}, {"a": [1, 2], "b": 1}),
    ({"op": "add", "path": "/a/-1", "value": 3}, {"a": [1, 2, 3]}),
    ({"op": "remove", "path": "/a/-1"}, {"a": [1]}),
    ({"op": "test", "path": "/b", "value": None}, {"a": [1, 2]}),
    ({"op": "replace", "path": "", "value": {}}, {}),
    ({"op": "test", "path": "/a/0", "value": True}, None),
    ({"op": "replace", "path": "/a/2", "value": 1}, None),
    ({"op": "add", "path": "", "value": {}}, None),
    ({"op": "remove", "path": "/b"}, None),
    ({"op": "add", "path": "/a/_1", "value": 1}, None),
])  # fmt: skip
def test_a_json_patch_does_what_kubernetes_library_does(operation: dict[str, Any], result: Any):
    live = {"a": [1, 2]}
    if result is None:
        with pytest.raises(PatchError):
            json_patch(live, [operation])
    else:
        assert json_patch(live, [operation]) == result
