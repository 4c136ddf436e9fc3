"""Patches of objects."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.handlers.writing.patch import (
    APPLY,
    patch_option_causes,
    patch_type,
    patched,
    read_configuration,
    repeated_key_warnings,
)
from kubeloop.kube.objects.resources import CONFIG_MAPS

JSON = dict[str, Any]
JSON_PATCH, MERGE = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
LIVE: JSON = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}}


@pytest.mark.parametrize(
    ("header", "type_"), [(f"{MERGE}; charset=utf-8", MERGE), (MERGE.upper(), MERGE.upper()), ("", "")]
)
def test_type_of_a_patch(header: str, type_: str):
    assert patch_type(ApiRequest.of("PATCH", "/x", {"Content-Type": header})) == type_


@pytest.mark.parametrize(
    ("query", "type_", "reason"),
    [
        ("", APPLY, "fieldManager: Required value: is required for apply patch"),
        ("?force=true&fieldManager=x", MERGE, "force: Forbidden: may not be specified for non-apply patch"),
        ("?force=true&fieldManager=x", APPLY, ""),
        ("", MERGE, ""),
    ],
)
def test_options_fit_the_type_of_a_patch(query: str, type_: str, reason: str):
    causes = patch_option_causes(ApiRequest.of("PATCH", f"/x{query}"), type_)
    assert [f"{cause['field']}: {cause['message']}" for cause in causes] == ([reason] if reason else [])


@pytest.mark.parametrize(
    ("body", "type_", "data"),
    [
        (b'{"data":{"a":null,"c":"3"}}', MERGE, {"b": "2", "c": "3"}),
        (b'{"data":{"$patch":"replace","c":"3"}}', STRATEGIC, {"c": "3"}),
        (b'[{"op":"remove","path":"/data/a"}]', JSON_PATCH, {"b": "2"}),
    ],
    ids=["merge", "strategic", "json"],
)
def test_patched_object(body: bytes, type_: str, data: JSON):
    assert patched(LIVE, body, type_, CONFIG_MAPS, "Strict").obj["data"] == data


@pytest.mark.parametrize(
    ("body", "type_", "code", "message"),
    [
        (b"null", MERGE, 400, "Invalid JSON Patch"),
        (
            b"[]",
            STRATEGIC,
            400,
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            b"{}",
            JSON_PATCH,
            400,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            b'[{"op":1}]',
            JSON_PATCH,
            400,
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        ),
        (
            b"[" + b",".join([b"{}"] * 10_001) + b"]",
            JSON_PATCH,
            413,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
        ),
    ],
    ids=["null", "list", "no list", "operation", "too many operations"],
)
def test_malformed_patch_is_refused(body: bytes, type_: str, code: int, message: str):
    with pytest.raises(StatusError) as raised:
        patched(LIVE, body, type_, CONFIG_MAPS, "Strict")
    assert (raised.value.code, raised.value.message) == (code, message)


@pytest.mark.parametrize(("mode", "warnings"), [("Warn", ['unknown field "x"']), ("Ignore", [])])
def test_unknown_fields_of_a_patch_warn(mode: str, warnings: list[str]):
    assert patched(LIVE, b'{"x":1}', MERGE, CONFIG_MAPS, mode).warnings == warnings


def test_unknown_fields_of_a_patch_are_refused_in_strict_mode():
    with pytest.raises(StatusError) as raised:
        patched(LIVE, b'{"x":1}', MERGE, CONFIG_MAPS, "Strict")
    assert raised.value.code == 422
    assert raised.value.message.endswith(': strict decoding error: unknown field "x"')


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (b"a: b: c", 400, "error decoding YAML: error converting YAML to JSON"),
        (
            b"[1]",
            400,
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go "
            "value of type map[string]interface {}",
        ),
        (b"apiVersion: v1\nkind: Pod", 400, "invalid object type: /v1, Kind=Pod"),
        (
            b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"managedFields":[]}}',
            400,
            "metadata.managedFields must be nil",
        ),
        (
            b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"x":1}',
            500,
            "failed to create typed patch object (/c; /v1, Kind=ConfigMap): .x: field not declared in schema",
        ),
    ],
    ids=["YAML", "list", "another kind", "managed fields", "unknown field"],
)
def test_invalid_configuration_is_refused(body: bytes, code: int, message: str):
    with pytest.raises(StatusError) as raised:
        read_configuration(body, CONFIG_MAPS)
    assert (raised.value.code, raised.value.message[: len(message)]) == (code, message)


def test_repeated_keys_of_a_configuration_warn():
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  name: b\n"
    configuration, repeated = read_configuration(body, CONFIG_MAPS)
    assert (configuration["metadata"], repeated) == (
        {"name": "b"},
        ['line 5: key "name" already set in map'],
    )
    assert (repeated_key_warnings(repeated, "Warn"), repeated_key_warnings(repeated, "Ignore")) == (repeated, [])
    with pytest.raises(StatusError, match="error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal"):
        repeated_key_warnings(repeated, "Strict")


@pytest.mark.parametrize(
    ("form", "patch", "strict"),
    [
        pytest.param(
            "application/merge-patch+json",
            b'{"x": 1, "metadata": {"z": 1, "y": 1}, "b": 1, "x": 2}',
            ['duplicate field "x"', *(f'unknown field "{name}"' for name in ("b", "metadata.y", "metadata.z", "x"))],
            id="merge patch",
        ),
        pytest.param(
            "application/json-patch+json",
            b'[{"op": "test", "x": 1, "path": "/kind", "op": "test", "value": "ConfigMap", "y": 1}]',
            [
                f"json patch {error}"
                for error in ('unknown field "[0].x"', 'duplicate field "[0].op"', 'unknown field "[0].y"')
            ],
            id="JSON patch",
        ),
    ],
)
def test_strict_errors_of_the_patch_precede_those_of_the_sorted_object(form: str, patch: bytes, strict: list[str]):
    live = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}}
    assert patched(live, patch, form, CONFIG_MAPS, "Warn").warnings == strict
