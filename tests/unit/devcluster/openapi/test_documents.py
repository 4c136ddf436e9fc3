"""OpenAPI documents, as kubectl uses them to apply, explain and patch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.served_resources import BY_PATH, all_api_gates, group_versions
from kubeloop.devcluster.openapi.documents import get_openapi_document
from kubeloop.devcluster.serializer.protobuf.wire import wire_values

JSON_TYPE = "application/json"
PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


def document(path: str, accept: str = JSON_TYPE, gates: frozenset[str] = frozenset()) -> dict[str, Any]:
    response = get_openapi_document(path, accept, gates=gates)
    assert response is not None
    decoded: dict[str, Any] = msgspec.json.decode(response[0])
    return decoded


APPS = document("/openapi/v3/apis/apps/v1")
SCHEMAS = APPS["components"]["schemas"]


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):  # JSON schemas have a field of that name
            yield value["$ref"]
        for member in value.values():
            yield from references(member)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


@pytest.mark.parametrize("gates", [frozenset(), all_api_gates()], ids=["default", "all gates"])
def test_v3_index_links_every_document(gates: frozenset[str]):
    paths = document("/openapi/v3", gates=gates)["paths"]
    versions = {f"apis/{group}/{version}" if group else f"api/{version}" for group, version in group_versions(gates)}
    root_paths = {f"apis/{group}" for group, _ in group_versions(gates) if group} | {
        "api", "apis", "version", ".well-known/openid-configuration", "openid/v1/jwks"
    }  # fmt: skip
    assert set(paths) == versions | root_paths
    for path, entry in paths.items():
        url, _, query = entry["serverRelativeURL"].partition("?")
        assert url == f"/openapi/v3/{path}"
        assert query.startswith("hash=")
        assert get_openapi_document(url, JSON_TYPE, gates=gates) is not None


def test_patch_operation_has_kind_and_field_validation():
    patch = APPS["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "apps", "kind": "Deployment", "version": "v1"}
    assert patch["x-kubernetes-action"] == "patch"
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    assert "application/apply-patch+yaml" in patch["requestBody"]["content"]


def test_every_served_resource_has_paths():
    for (group, version, plural), served in BY_PATH.items():
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        paths = document("/openapi/v3" + root, gates=all_api_gates())["paths"]
        scope = "/namespaces/{namespace}" if served.resource.namespaced else ""
        assert f"{root}{scope}/{plural}" in paths
        if served.is_stored:
            item = paths[f"{root}{scope}/{plural}/{{name}}"]
            assert {"get", "put", "patch", "delete"} <= set(item)


def test_common_parameters_are_declared_once_per_path():
    item = document("/openapi/v3/api/v1")["paths"]["/api/v1/namespaces/{namespace}/bindings"]
    assert [parameter["name"] for parameter in item["parameters"]] == [
        "dryRun", "fieldManager", "fieldValidation", "namespace", "pretty"
    ]  # fmt: skip
    assert "parameters" not in item["post"]


def test_connect_subresources_have_options_and_methods():
    paths = document("/openapi/v3/api/v1")["paths"]
    item = paths["/api/v1/namespaces/{namespace}/pods/{name}/exec"]
    assert [parameter["name"] for parameter in item["parameters"]] == [
        "command", "container", "name", "namespace", "stderr", "stdin", "stdout", "tty"
    ]  # fmt: skip
    assert {method for method in item if method != "parameters"} == {"get", "post"}
    proxy = paths["/api/v1/nodes/{name}/proxy/{path}"]
    assert {method for method in proxy if method != "parameters"} == {
        "delete", "get", "head", "options", "patch", "post", "put"
    }  # fmt: skip
    assert proxy["head"]["operationId"] == "connectCoreV1HeadNodeProxyWithPath"
    assert [(parameter["name"], parameter["in"]) for parameter in proxy["parameters"]] == [
        ("name", "path"), ("path", "path"), ("path", "query")
    ]  # fmt: skip


def test_deprecated_watch_paths():
    paths = APPS["paths"]
    operations = {
        "/apis/apps/v1/watch/deployments": ("watchAppsV1DeploymentListForAllNamespaces", "watchlist"),
        "/apis/apps/v1/watch/namespaces/{namespace}/deployments": ("watchAppsV1NamespacedDeploymentList", "watchlist"),
        "/apis/apps/v1/watch/namespaces/{namespace}/deployments/{name}": ("watchAppsV1NamespacedDeployment", "watch"),
    }
    for path, operation in operations.items():
        assert (paths[path]["get"]["operationId"], paths[path]["get"]["x-kubernetes-action"]) == operation


def test_scale_subresource_has_kind_scale():
    scale = APPS["paths"]["/apis/apps/v1/namespaces/{namespace}/replicasets/{name}/scale"]
    assert scale["get"]["x-kubernetes-group-version-kind"] == {"group": "autoscaling", "kind": "Scale", "version": "v1"}


def test_kind_schema_has_group_version_kind():
    kinds = SCHEMAS["io.k8s.api.apps.v1.Deployment"]["x-kubernetes-group-version-kind"]
    assert kinds == [{"group": "apps", "kind": "Deployment", "version": "v1"}]


def test_list_fields_have_patch_strategy_and_keys():
    containers = SCHEMAS["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert {name: value for name, value in containers.items() if name not in ("description", "nullable")} == {
        "type": "array",
        "items": {"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"},
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": "name",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    assert SCHEMAS["io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"]["x-kubernetes-map-type"] == "atomic"


def test_fields_have_types_and_required():
    spec = SCHEMAS["io.k8s.api.apps.v1.DeploymentSpec"]
    replicas = spec["properties"]["replicas"]
    assert (replicas["type"], replicas["format"]) == ("integer", "int32")
    assert "selector" in spec["required"]
    assert "replicas" not in spec["required"]
    assert SCHEMAS["io.k8s.apimachinery.pkg.api.resource.Quantity"] == {
        "oneOf": [{"type": "string"}, {"type": "number"}]
    }


@pytest.mark.parametrize("path", sorted(document("/openapi/v3")["paths"]))
def test_every_reference_resolves(path: str):
    openapi = document(f"/openapi/v3/{path}")
    existing = {f"#/components/schemas/{name}" for name in openapi.get("components", {}).get("schemas", ())}
    assert set(references(openapi)) <= existing


def test_v2_document_has_all_groups():
    openapi = document("/openapi/v2")
    assert openapi["swagger"] == "2.0"
    assert "/api/v1/namespaces/{namespace}/pods" in openapi["paths"]
    assert "/apis/apps/v1/namespaces/{namespace}/deployments" in openapi["paths"]
    strategy = openapi["definitions"]["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["strategy"]
    assert strategy["$ref"] == "#/definitions/io.k8s.api.apps.v1.DeploymentStrategy"
    existing = {f"#/{section}/{name}" for section in ("definitions", "parameters") for name in openapi[section]}
    assert set(references(openapi)) <= existing


def test_v2_document_as_protobuf():
    response = get_openapi_document("/openapi/v2", PROTOBUF)
    assert response is not None
    assert response[1] == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    fields = {number: value for number, _wire, value in wire_values(response[0])}
    assert fields[1] == b"2.0"
    for number, section in ((9, "definitions"), (10, "parameters"), (13, "securityDefinitions")):
        names = [next(wire_values(entry))[2] for _number, _wire, entry in wire_values(fields[number])]
        assert [name.decode() for name in names] == list(document("/openapi/v2")[section])


def test_v2_protobuf_encodes_body_parameters():
    openapi = document("/openapi/v2")
    name = next(name for name, parameter in openapi["parameters"].items() if "Patch" in str(parameter))
    response = get_openapi_document("/openapi/v2", PROTOBUF)
    assert response is not None
    document_fields = {number: value for number, _wire, value in wire_values(response[0])}
    entries = [
        {number: value for number, _, value in wire_values(entry)} for _, _, entry in wire_values(document_fields[10])
    ]
    parameter = next(entry[2] for entry in entries if entry[1].decode() == name)
    ((_, _, body),) = wire_values(parameter)
    fields = {number: value for number, _wire, value in wire_values(body)}
    assert (fields[2], fields[3], fields[4]) == (b"body", b"body", 1)
    assert list(wire_values(fields[5])) == [(1, 2, openapi["parameters"][name]["schema"]["$ref"].encode())]


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        pytest.param("/openapi/v3/apis/nosuch/v1", JSON_TYPE, id="unserved group"),
        pytest.param("/openapi/v3/apis/apps/v1", "text/html", id="unsupported media type"),
        pytest.param("/openapi/v3/apis/apps/v1", PROTOBUF, id="protobuf of version 3"),
    ],
)
def test_no_document_for_other_paths_and_forms(path: str, accept: str):
    assert get_openapi_document(path, accept) is None


def test_scalar_fields_have_descriptions_of_the_client_library():
    replicas = SCHEMAS["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["replicas"]
    assert replicas["description"].startswith("Number of desired pods.")
    policy = SCHEMAS["io.k8s.api.core.v1.PodSpec"]["properties"]["dnsPolicy"]["description"]
    assert 'Defaults to "ClusterFirst".' in policy  # quotes are escaped in the library's source
    described = [
        name
        for schema in SCHEMAS.values()
        for name, value in schema.get("properties", {}).items()
        if "description" in value
    ]
    assert len(described) > 500
