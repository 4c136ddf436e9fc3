"""OpenAPI documents: what kubectl looks up before it applies, explains and patches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.served_resources import BY_PATH
from kubeloop.devcluster.openapi.documents import openapi
from kubeloop.devcluster.serializer.protobuf.wire import wire_values

JSON_TYPE = "application/json"
PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


def document(path: str, accept: str = JSON_TYPE) -> dict[str, Any]:
    found = openapi(path, accept)
    assert found is not None
    read: dict[str, Any] = msgspec.json.decode(found[0])
    return read


APPS = document("/openapi/v3/apis/apps/v1")
SCHEMAS = APPS["components"]["schemas"]


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):  # JSON schemas have a field of that name
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_the_index_links_the_document_of_every_group_version():
    paths = document("/openapi/v3")["paths"]
    versions = {f"apis/{group}/{version}" if group else f"api/{version}" for group, version, _ in BY_PATH}
    above = {f"apis/{group}" for group, _, _ in BY_PATH if group} | {
        "api", "apis", "version", ".well-known/openid-configuration", "openid/v1/jwks"
    }  # fmt: skip
    assert set(paths) == versions | above
    for path, entry in paths.items():
        url, _, query = entry["serverRelativeURL"].partition("?")
        assert url == f"/openapi/v3/{path}"
        assert query.startswith("hash=")
        assert openapi(url, JSON_TYPE) is not None


def test_patch_operations_name_their_kind_and_take_field_validation():
    patch = APPS["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "apps", "kind": "Deployment", "version": "v1"}
    assert patch["x-kubernetes-action"] == "patch"
    assert "fieldValidation" in [each["name"] for each in patch["parameters"]]
    assert "application/apply-patch+yaml" in patch["requestBody"]["content"]


def test_every_served_resource_has_its_paths():
    for (group, version, plural), served in BY_PATH.items():
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        paths = document("/openapi/v3" + root)["paths"]
        scope = "/namespaces/{namespace}" if served.resource.namespaced else ""
        assert f"{root}{scope}/{plural}" in paths
        if served.stored:
            item = paths[f"{root}{scope}/{plural}/{{name}}"]
            assert {"get", "put", "patch", "delete"} <= set(item)


def test_what_all_operations_of_a_path_take_is_told_once():
    item = document("/openapi/v3/api/v1")["paths"]["/api/v1/namespaces/{namespace}/bindings"]
    assert [each["name"] for each in item["parameters"]] == [
        "dryRun", "fieldManager", "fieldValidation", "namespace", "pretty"
    ]  # fmt: skip
    assert "parameters" not in item["post"]


def test_connections_take_the_options_of_their_kinds_by_every_method():
    paths = document("/openapi/v3/api/v1")["paths"]
    item = paths["/api/v1/namespaces/{namespace}/pods/{name}/exec"]
    assert [each["name"] for each in item["parameters"]] == [
        "command", "container", "name", "namespace", "stderr", "stdin", "stdout", "tty"
    ]  # fmt: skip
    assert {method for method in item if method != "parameters"} == {"get", "post"}
    through = paths["/api/v1/nodes/{name}/proxy/{path}"]
    assert {method for method in through if method != "parameters"} == {
        "delete", "get", "head", "options", "patch", "post", "put"
    }  # fmt: skip
    assert through["head"]["operationId"] == "connectCoreV1HeadNodeProxyWithPath"
    assert [(each["name"], each["in"]) for each in through["parameters"]] == [
        ("name", "path"), ("path", "path"), ("path", "query")
    ]  # fmt: skip


def test_the_watches_of_old_are_listed_beside_the_lists():
    paths = APPS["paths"]
    named = {
        "/apis/apps/v1/watch/deployments": ("watchAppsV1DeploymentListForAllNamespaces", "watchlist"),
        "/apis/apps/v1/watch/namespaces/{namespace}/deployments": ("watchAppsV1NamespacedDeploymentList", "watchlist"),
        "/apis/apps/v1/watch/namespaces/{namespace}/deployments/{name}": ("watchAppsV1NamespacedDeployment", "watch"),
    }
    for path, told in named.items():
        assert (paths[path]["get"]["operationId"], paths[path]["get"]["x-kubernetes-action"]) == told


def test_the_scale_subresource_is_of_kind_scale():
    scale = APPS["paths"]["/apis/apps/v1/namespaces/{namespace}/replicasets/{name}/scale"]
    assert scale["get"]["x-kubernetes-group-version-kind"] == {"group": "autoscaling", "kind": "Scale", "version": "v1"}


def test_a_kind_carries_its_group_version_kind():
    kinds = SCHEMAS["io.k8s.api.apps.v1.Deployment"]["x-kubernetes-group-version-kind"]
    assert kinds == [{"group": "apps", "kind": "Deployment", "version": "v1"}]


def test_lists_say_how_patches_merge_them():
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


def test_fields_have_the_types_that_explain_prints():
    spec = SCHEMAS["io.k8s.api.apps.v1.DeploymentSpec"]
    replicas = spec["properties"]["replicas"]
    assert (replicas["type"], replicas["format"]) == ("integer", "int32")
    assert "selector" in spec["required"]
    assert "replicas" not in spec["required"]
    assert SCHEMAS["io.k8s.apimachinery.pkg.api.resource.Quantity"] == {
        "oneOf": [{"type": "string"}, {"type": "number"}]
    }


@pytest.mark.parametrize("path", sorted(document("/openapi/v3")["paths"]))
def test_every_reference_leads_somewhere(path: str):
    whole = document(f"/openapi/v3/{path}")
    known = {f"#/components/schemas/{name}" for name in whole.get("components", {}).get("schemas", ())}
    assert set(references(whole)) <= known


def test_the_second_version_has_all_groups_in_one_document():
    whole = document("/openapi/v2")
    assert whole["swagger"] == "2.0"
    assert "/api/v1/namespaces/{namespace}/pods" in whole["paths"]
    assert "/apis/apps/v1/namespaces/{namespace}/deployments" in whole["paths"]
    strategy = whole["definitions"]["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["strategy"]
    assert strategy["$ref"] == "#/definitions/io.k8s.api.apps.v1.DeploymentStrategy"
    known = {f"#/{place}/{name}" for place in ("definitions", "parameters") for name in whole[place]}
    assert set(references(whole)) <= known


def test_go_clients_get_the_second_version_as_protobuf():
    found = openapi("/openapi/v2", PROTOBUF)
    assert found is not None
    assert found[1] == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    fields = {number: value for number, _wire, value in wire_values(found[0])}
    assert fields[1] == b"2.0"
    for number, place in ((9, "definitions"), (10, "parameters"), (13, "securityDefinitions")):
        named = [next(wire_values(entry))[2] for _number, _wire, entry in wire_values(fields[number])]
        assert [name.decode() for name in named] == list(document("/openapi/v2")[place])


def test_a_body_is_described_in_protobuf_as_in_json():
    """A schema where a reference to one belongs, or the reverse, is read as garbage."""
    whole = document("/openapi/v2")
    name = next(name for name, each in whole["parameters"].items() if "Patch" in str(each))
    found = openapi("/openapi/v2", PROTOBUF)
    assert found is not None
    of_document = {number: value for number, _wire, value in wire_values(found[0])}
    entries = [{number: value for number, _, value in wire_values(each)} for _, _, each in wire_values(of_document[10])]
    parameter = next(each[2] for each in entries if each[1].decode() == name)
    ((_, _, body),) = wire_values(parameter)
    fields = {number: value for number, _wire, value in wire_values(body)}
    assert (fields[2], fields[3], fields[4]) == (b"body", b"body", 1)
    assert list(wire_values(fields[5])) == [(1, 2, whole["parameters"][name]["schema"]["$ref"].encode())]


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        pytest.param("/openapi/v3/apis/nosuch/v1", JSON_TYPE, id="a group that is not served"),
        pytest.param("/openapi/v3/apis/apps/v1", "text/html", id="a form that is not made"),
        pytest.param("/openapi/v3/apis/apps/v1", PROTOBUF, id="protobuf of version 3"),
    ],
)
def test_there_is_no_document_for_other_paths_and_forms(path: str, accept: str):
    assert openapi(path, accept) is None


def test_plain_fields_are_described_in_the_words_of_the_installed_client_library():
    replicas = SCHEMAS["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["replicas"]
    assert replicas["description"].startswith("Number of desired pods.")
    policy = SCHEMAS["io.k8s.api.core.v1.PodSpec"]["properties"]["dnsPolicy"]["description"]
    assert 'Defaults to "ClusterFirst".' in policy  # quotes are escaped in the library's source
    described = [
        name
        for schema in SCHEMAS.values()
        for name, each in schema.get("properties", {}).items()
        if "description" in each
    ]
    assert len(described) > 500
