"""Responses with discovery and OpenAPI documents: ETags, hashes, verbs and unknown paths."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import ApiRequest, Response
from kubeloop.devcluster.api.served_resources import NO_API_GATES
from kubeloop.devcluster.server.api_documents import ApiDocuments
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from support.apiserver.served_definitions import ServedDefinitions
from support.comparison.custom_resource_requests import WIDGETS

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.fixture
def served() -> ServedDefinitions:
    return ServedDefinitions()


def respond(served: ServedDefinitions, path: str, method: str = "GET", **headers: str) -> Response | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ApiDocuments(served.definitions, DEFAULT_FEATURE_GATES, NO_API_GATES, serves_metrics=False).response(
        ApiRequest.of(method, path, named)
    )


def document(served: ServedDefinitions, path: str, **headers: str) -> Response:
    response = respond(served, path, **headers)
    assert response is not None
    return response


def header(response: Response, name: str) -> str:
    return dict(response.headers)[name]


@pytest.mark.parametrize("path", ["/apis/none", "/metrics", "/api/v2"])
def test_path_without_document_is_left_to_other_handlers(served: ServedDefinitions, path: str):
    assert respond(served, path) is None


def test_api_versions_contain_the_address_of_the_host_header(served: ServedDefinitions):
    body = document(served, "/api", host="127.0.0.1:6443").body
    assert isinstance(body, bytes)
    assert msgspec.json.decode(body)["serverAddressByClientCIDRs"][0]["serverAddress"] == "127.0.0.1:6443"


@pytest.mark.parametrize("path", ["/api", "/apis/apps/v1"])
def test_discovery_of_versions_only_accepts_get(served: ServedDefinitions, path: str):
    with pytest.raises(StatusError) as error:
        respond(served, path, "POST")
    assert error.value.code == 405
    assert respond(served, "/apis/apps", "POST") is not None


@pytest.mark.parametrize(
    ("path", "content_type", "is_accepted"),
    [
        ("/version", "application/json;charset=utf-8", True),
        ("/version", "text/plain, application/json", True),
        ("/version", "application/yaml", False),
        ("/apis/apps/v1", "application/yaml", True),
        ("/apis/apps/v1", "text/plain", False),
        ("/apis/apps", "text/plain", True),  # a path of the aggregator
    ],
)
def test_discovery_accepts_content_types_of_its_bodies(served, path: str, content_type: str, is_accepted: bool):
    if is_accepted:
        assert document(served, path, content_type=content_type).status == 200
    else:
        with pytest.raises(StatusError) as error:
            respond(served, path, content_type=content_type, accept="text/plain" if path == "/version" else "")
        assert error.value.code == 415


def test_matching_etag_of_aggregated_discovery_returns_304(served: ServedDefinitions):
    etag = header(document(served, "/apis", accept=AGGREGATED), "Etag")
    again = document(served, "/apis", accept=AGGREGATED, if_none_match=etag)
    assert (again.status, again.body, again.caching) == (304, b"", "public")


def test_etag_changes_with_a_new_definition(served: ServedDefinitions):
    etag = header(document(served, "/apis", accept=AGGREGATED), "Etag")
    served.create(WIDGETS)
    assert header(document(served, "/apis", accept=AGGREGATED), "Etag") != etag


def test_openapi_with_matching_hash_is_immutable(served: ServedDefinitions):
    etag = header(document(served, "/openapi/v3/apis/policy/v1"), "Etag")
    response = document(served, f"/openapi/v3/apis/policy/v1?hash={etag.strip(chr(34))}")
    assert (response.status, response.caching) == (200, "public, immutable")
    other = document(served, "/openapi/v3/apis/policy/v1?hash=ABC")
    assert (other.status, header(other, "Etag")) == (301, etag)


@pytest.mark.parametrize(
    ("path", "accept", "status"),
    [
        ("/openapi/v3/none", "", 404),
        ("/openapi/v4", "", 404),
        ("/openapi/v2", "text/html", 406),
        ("/openapi/v3/apis/policy/v1", "text/html", 406),
    ],
)
def test_unavailable_openapi_documents_are_errors(served: ServedDefinitions, path: str, accept: str, status: int):
    assert document(served, path, accept=accept).status == status


# --- feature gates ----------------------------------------------------------------------------------------------------


def content(served: ServedDefinitions, gates: FeatureGates, path: str) -> Any:
    response = ApiDocuments(served.definitions, gates, NO_API_GATES, serves_metrics=False).response(
        ApiRequest.of("GET", path, {})
    )
    assert response is not None
    assert isinstance(response.body, bytes)
    return msgspec.json.decode(response.body)


def test_storage_version_hashes_of_built_in_kinds_depend_on_their_gate(served: ServedDefinitions):
    served.create(WIDGETS)
    gates = FeatureGates({"StorageVersionHash": False})
    apps = content(served, gates, "/apis/apps/v1")["resources"]
    assert not any("storageVersionHash" in resource for resource in apps)
    (widgets,) = content(served, gates, "/apis/example.com/v1")["resources"][:1]
    assert widgets["storageVersionHash"] == "gIwvi5rymmg="  # base64(sha256("example.com/v1/Widget")[:8])


def test_openapi_enumerations_depend_on_their_gate(served: ServedDefinitions):
    strategy = ("components", "schemas", "io.k8s.api.apps.v1.DeploymentStrategy", "properties", "type")
    enums = {}
    for value in (True, False):
        gates = FeatureGates({"OpenAPIEnums": value})
        documents = content(served, gates, "/openapi/v3")["paths"]
        value_schema = content(served, gates, documents["apis/apps/v1"]["serverRelativeURL"].partition("?")[0])
        for name in strategy:
            value_schema = value_schema[name]
        enums[value] = (value_schema.get("enum"), documents["apis/apps/v1"]["serverRelativeURL"])
        (definition,) = [
            schema
            for name, schema in content(served, gates, "/openapi/v2")["definitions"].items()
            if name == "io.k8s.api.apps.v1.DeploymentStrategy"
        ]
        assert ("enum" in definition["properties"]["type"]) is value
    assert enums[True][0] == ["Recreate", "RollingUpdate"]
    assert enums[False][0] is None
    assert enums[True][1] != enums[False][1], "the hash is that of another document"
