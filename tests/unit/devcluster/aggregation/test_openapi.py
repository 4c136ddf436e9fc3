"""OpenAPI of aggregated API servers: merging, conflicts of names, conversion from v2 to v3."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.devcluster.aggregation.openapi import (
    AggregatedOpenApi,
    ServerDocuments,
    converted_documents,
    merged,
    read_index,
    read_spec,
    to_v3,
)
from support.apiserver.aggregated_server import GROUP, PATH, SPEC, VERSION

JSON = dict[str, Any]
KEY = (GROUP, VERSION)
KINDS = "x-kubernetes-group-version-kind"


def read(spec: JSON) -> JSON:
    return read_spec(json.dumps(spec).encode(), KEY)


def document(paths: JSON, definitions: JSON, parameters: JSON | None = None) -> JSON:
    return {"paths": paths, "definitions": definitions, "parameters": parameters or {}}


def uses(*names: str) -> JSON:
    return {"get": {"schemas": [{"$ref": f"#/definitions/{name}"} for name in names]}}


def service(group: str, version: str, priority: int) -> JSON:
    return {"spec": {"group": group, "version": version, "groupPriorityMinimum": priority, "versionPriority": 1}}


def test_spec_of_a_group_version_has_its_paths_and_what_they_use():
    spec = read(SPEC)
    assert list(spec["paths"]) == [f"{PATH}/things"]
    assert list(spec["definitions"]) == ["com.example.Thing"]
    assert spec["parameters"] == {}


def test_definitions_used_by_parameters_and_definitions_are_kept():
    parameters = {"body-1": {"name": "body", "in": "body", "schema": {"$ref": "#/definitions/a"}}}
    paths = {f"{PATH}/x": {"parameters": [{"$ref": "#/parameters/body-1"}]}, "/other": uses("d")}
    nested = {"properties": {"b": {"items": {"$ref": "#/definitions/b"}}, "$ref": {"type": "string"}}}
    spec = read(document(paths, {"a": nested, "b": {}, "unused": {}, "d": {}}, parameters))
    assert sorted(spec["definitions"]) == ["a", "b", "unused"]


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        b'{"paths": {"/x": 1}}',
        b'{"definitions": {"a": {"x-kubernetes-group-version-kind": [1]}}}',
        json.dumps({"paths": {f"{PATH}/x": {"get": {"parameters": 1}}}}).encode(),
    ],
)
def test_invalid_spec_is_a_value_error(body: bytes):
    with pytest.raises(ValueError, match=r"."):
        read_spec(body, KEY)


def test_present_paths_and_their_definitions_win():
    own = document({"/a": {"own": {}}}, {"A": {"type": "string"}})
    result = merged(own, document({"/a": uses("A", "B"), "/c": uses("C")}, {"A": {}, "B": {}, "C": {}}))
    assert result["paths"] == {"/a": {"own": {}}, "/c": uses("C")}
    assert result["definitions"] == {"A": {"type": "string"}, "C": {}}
    assert merged(own, document({"/a": {}}, {"B": {}})) is own


def test_definition_with_another_value_gets_another_name():
    own = document({}, {"A": {"type": "string"}, "A_v2": {"type": "number"}, "B": {"description": "ours"}})
    definitions = {"A": {"type": "object", "items": {"$ref": "#/definitions/B"}}, "B": {"description": "theirs"}}
    first = merged(own, document({"/a": uses("A")}, definitions))
    assert first["paths"] == {"/a": uses("A_v3")}
    assert first["definitions"] == own["definitions"] | {"A_v3": definitions["A"]}
    second = merged(first, document({"/b": uses("A")}, definitions))
    assert second["paths"]["/b"] == uses("A_v3")
    assert second["definitions"] == first["definitions"]


def test_description_counts_if_it_is_the_name_of_a_property():
    own = document({}, {"A": {"properties": {"description": {"type": "string"}}}})
    result = merged(own, document({"/a": uses("A")}, {"A": {"properties": {"description": {"type": "number"}}}}))
    assert "A_v2" in result["definitions"]


def test_parameter_with_another_value_gets_another_name():
    own = document({}, {}, {"limit": {"type": "integer"}})
    paths = {"/a": {"parameters": [{"$ref": "#/parameters/limit"}]}}
    result = merged(own, document(paths, {}, {"limit": {"type": "string"}}))
    assert result["parameters"] == {"limit": {"type": "integer"}, "limit_v2": {"type": "string"}}
    assert result["paths"] == {"/a": {"parameters": [{"$ref": "#/parameters/limit_v2"}]}}


def test_kinds_of_equal_definitions_are_joined():
    def options(*groups: str) -> JSON:
        return {"Options": {KINDS: [{"group": group, "version": "v1", "kind": "Options"} for group in groups]}}

    result = merged(document({}, options("b", "c")), document({"/a": uses("Options")}, options("a", "c")))
    assert result["definitions"] == options("a", "b", "c")


def test_version_two_document_has_groups_by_priority():
    openapi = AggregatedOpenApi()
    for group, version, color in (("low", "v1", "red"), ("high", "v1", "green"), ("high", "v2", "blue")):
        spec = document({f"/{group}/{version}": uses("Color")}, {"Color": {"default": color}})
        openapi.set((group, version), ServerDocuments(spec=spec))
    services = [service("low", "v1", 1), service("high", "v1", 5), service("high", "v2", 9), service("none", "v1", 1)]
    own = json.dumps(document({}, {})).encode()
    merge = json.loads(openapi.v2(own, "application/json", lambda: services))
    colors = {name: definition["default"] for name, definition in merge["definitions"].items()}
    assert colors == {"Color": "green", "Color_v2": "blue", "Color_v3": "red"}
    assert openapi.v2(own, "application/json", lambda: []) is openapi.v2(own, "application/json", lambda: [])
    openapi.set(("low", "v1"), None)
    assert b"red" not in openapi.v2(own, "application/json", lambda: services)


def test_index_has_own_documents_first():
    openapi = AggregatedOpenApi()
    urls = {"version": "/openapi/v3/version?hash=theirs", "apis/g/v1": "/openapi/v3/apis/g/v1?hash=1"}
    openapi.set(("g", "v1"), ServerDocuments(urls))
    index = json.loads(openapi.index(b'{"paths": {"version": {"serverRelativeURL": "/openapi/v3/version?hash=own"}}}'))
    assert index["paths"] == {
        "apis/g/v1": {"serverRelativeURL": "/openapi/v3/apis/g/v1?hash=1"},
        "version": {"serverRelativeURL": "/openapi/v3/version?hash=own"},
    }
    assert openapi.server_of("apis/g/v1") == ("g", "v1")
    assert openapi.server_of("apis/g/v2") is None
    assert openapi.converted("apis/g/v1") is None


def test_server_without_version_three_gets_a_converted_document():
    openapi = AggregatedOpenApi()
    documents = converted_documents(read(SPEC), "etag", KEY)
    openapi.set(KEY, documents)
    name = f"apis/{GROUP}/{VERSION}"
    assert openapi.server_of(name) is None
    content = openapi.converted(name)
    assert content is not None
    operation = json.loads(content)["paths"][f"{PATH}/things"]["get"]
    schema = {"$ref": "#/components/schemas/com.example.Thing"}
    assert operation == {
        "operationId": "listThings",
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
    }
    assert json.loads(content)["components"]["schemas"] == read(SPEC)["definitions"]


def test_bodies_parameters_and_references_are_converted():
    item = {
        "parameters": [{"name": "x", "in": "path", "type": "string", "required": True}],
        "post": {
            "consumes": ["application/json"],
            "parameters": [
                {"name": "body", "in": "body", "schema": {"$ref": "#/definitions/A"}},
                {"$ref": "#/parameters/limit"},
            ],
            "responses": {"204": {"description": "none"}},
        },
    }
    definitions = {"A": {"properties": {"b": {"description": "B", "$ref": "#/definitions/B"}}}}
    spec = document({"/a": item}, definitions) | {
        "info": {"title": "t"},
        "securityDefinitions": {"t": {"type": "apiKey"}},
    }
    reference = "#/components/schemas/"
    assert to_v3(spec) == {
        "openapi": "3.0.0",
        "info": {"title": "t"},
        "paths": {
            "/a": {
                "parameters": [{"name": "x", "in": "path", "required": True, "schema": {"type": "string"}}],
                "post": {
                    "requestBody": {"content": {"application/json": {"schema": {"$ref": f"{reference}A"}}}},
                    "parameters": [{"$ref": "#/components/parameters/limit"}],
                    "responses": {"204": {"description": "none"}},
                },
            }
        },
        "components": {
            "schemas": {"A": {"properties": {"b": {"description": "B", "allOf": [{"$ref": f"{reference}B"}]}}}},
            "securitySchemes": {"t": {"type": "apiKey"}},
        },
    }


def test_index_of_another_shape_is_a_value_error():
    assert read_index(b'{"paths": {"a": {"serverRelativeURL": "/a"}}}') == {"a": "/a"}
    with pytest.raises(ValueError, match="paths"):
        read_index(b'{"paths": []}')
