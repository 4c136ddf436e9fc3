"""Protobuf: the same bytes as kube-apiserver in responses to the same bodies.

Objects are sent with dryRun=All, so that they do not affect each other. Generated values are compared by their type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from kubeloop.devcluster.api.request import PROTOBUF_TYPE
from kubeloop.devcluster.api.served_resources import BY_PATH, ServedResource
from kubeloop.devcluster.serializer.protobuf import codec
from kubeloop.devcluster.serializer.protobuf.wire import ProtobufError
from kubeloop.kube.feature_gates import gang_scheduling_text
from support.apiserver.api_response import ApiResponse
from support.apiserver.http_api import HttpApi, ServerPair, server_pair
from support.comparison.differential import VALID
from support.objects.token_volumes import masked_token_volumes

JSON = dict[str, Any]
MAPS = "/api/v1/namespaces/kube-public/configmaps"
GENERATED_FIELDS = (
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "time",
    "name",  # after generateName
    "clusterIP",
    "clusterIPs",
    "healthCheckNodePort",
)

_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Iterator[ServerPair]:
    flags = {
        "service-cluster-ip-range": "10.0.0.0/24",
        "feature-gates": gang_scheduling_text(),
        "runtime-config": "scheduling.k8s.io/v1alpha2=true",
    }
    with server_pair(tmp_path_factory.mktemp("protobuf"), flags) as servers:
        yield servers


def send(
    server: HttpApi,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    accept: str = PROTOBUF_TYPE,
    content_type: str = PROTOBUF_TYPE,
) -> ApiResponse:
    return server.request(method, path, body, content_type, accept)


def masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: type(inner).__name__ if key in GENERATED_FIELDS else masked(inner) for key, inner in value.items()}
    if isinstance(value, str):
        return _UID.sub("(uid)", value)
    return [masked(item) for item in value] if isinstance(value, list) else value


def document(response: ApiResponse) -> Any:
    """Return the decoded body without generated values."""
    try:
        return (
            masked(masked_token_volumes(codec.decode(response.body)))
            if response.media_type == PROTOBUF_TYPE
            else response.body
        )
    except ProtobufError as error:
        return f"{error}: {response.body!r}"


def valid_objects() -> list[tuple[str, str, JSON]]:
    """Return kind, path and object of every valid object."""
    documents = (document for path in sorted(VALID.glob("*.yaml")) for document in yaml.safe_load_all(path.read_text()))
    return [
        (declaration["kind"], declaration["path"], obj)
        for declaration in documents
        if "objects" in declaration and "path" in declaration
        for obj in declaration["objects"]
    ]


def served_at(path: str) -> ServedResource:
    parts = path.strip("/").split("/")
    group, version = ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])
    return BY_PATH[(group, version, parts[-1])]


def test_protobuf_objects_match_kube_apiserver(servers):
    different = []
    for kind, path, obj in valid_objects():
        api_version = served_at(path).resource.api_version
        body = codec.encode({**obj, "apiVersion": api_version, "kind": kind.partition("/")[0]})
        responses = (send(server, "POST", f"{path}?dryRun=All", body) for server in (servers.real, servers.ours))
        real, ours = ((response.status, response.media_type, document(response)) for response in responses)
        if real != ours:
            different.append(f"{kind} {obj['metadata']}\n  real {real}\n  ours {ours}")
    assert not different, f"{len(different)}:\n" + "\n".join(different)


def test_codec_reproduces_the_bytes_of_kube_apiserver(servers):
    """Field order and explicit zero values are those of Go's encoder."""
    for _, path, obj in valid_objects():
        resource = served_at(path).resource
        body = codec.encode({**obj, "apiVersion": resource.api_version, "kind": resource.kind})
        send(servers.real, "POST", path, body)
    compared = 0
    for served in BY_PATH.values():
        if not served.is_stored:
            continue
        resource = served.resource
        path = f"/{'apis/' + resource.group if resource.group else 'api'}/{resource.version}/{resource.plural}"
        response = send(servers.real, "GET", path)
        if response.status == 404:  # a version that needs --runtime-config
            continue
        assert response.media_type == PROTOBUF_TYPE
        assert codec.encode(codec.decode(response.body)) == response.body, path
        compared += len(codec.decode(response.body).get("items", ()))
    assert compared > 100


REQUESTS = [
    ("GET", f"{MAPS}/nope", None, PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("GET", f"{MAPS}/nope", None, "application/yaml", PROTOBUF_TYPE),
    ("GET", f"{MAPS}/nope", None, f"{PROTOBUF_TYPE};as=PartialObjectMetadata;g=meta.k8s.io;v=v1", PROTOBUF_TYPE),
    ("GET", MAPS, None, f"{PROTOBUF_TYPE};as=Table;g=meta.k8s.io;v=v1", PROTOBUF_TYPE),
    ("GET", MAPS, None, f"{PROTOBUF_TYPE};as=PartialObjectMetadata;g=meta.k8s.io;v=v1", PROTOBUF_TYPE),
    ("GET", MAPS, None, "application/cbor", PROTOBUF_TYPE),
    ("GET", f"{MAPS}?limit=x", None, PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("GET", f"{MAPS}?watch=1&timeoutSeconds=1&resourceVersion=x", None, PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, b"", PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, b"k8s", PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, b"k8s\x00", PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, b"k8s\x00\x0a\x01", PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, b"{}", PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, b"{}", PROTOBUF_TYPE, "application/cbor"),
    ("POST", MAPS, codec.encode({"kind": "Pod", "apiVersion": "v1"}), PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, codec.encode({"kind": "ConfigMap", "apiVersion": "v1"}), PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, codec.wrap_in_envelope("v1", "Nosuch", b""), PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, codec.wrap_in_envelope("v1", "ConfigMap", b"\x0a\x05abc"), PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, codec.wrap_in_envelope("v1", "ConfigMap", b"\x08\x01"), PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("PATCH", f"{MAPS}/nope", b"{}", PROTOBUF_TYPE, PROTOBUF_TYPE),
    (
        "DELETE",
        f"{MAPS}/nope",
        codec.encode({"kind": "DeleteOptions", "apiVersion": "v1"}),
        PROTOBUF_TYPE,
        PROTOBUF_TYPE,
    ),
    ("DELETE", f"{MAPS}/nope", codec.encode({"kind": "Pod", "apiVersion": "v1"}), PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("GET", "/apis/apps/v1", None, PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("GET", "/apis/batch", None, PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("GET", "/version", None, PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("GET", "/version", None, PROTOBUF_TYPE, "application/json"),
    *(("GET", path, None, PROTOBUF_TYPE, "text/plain") for path in ("/api", "/api/v1", "/apis", "/apis/batch/v1")),
]


def body_without_source_location(response: ApiResponse) -> Any:
    """Return the body; a Status about an unregistered kind decoded, without the location of the scheme in Go code."""
    if response.media_type != PROTOBUF_TYPE or b" is registered for version " not in response.body:
        return response.body
    status = codec.decode(response.body)
    return {**status, "message": re.sub(r' in scheme "[^"]*"', "", status["message"])}


def test_protobuf_failures_and_discovery_match_kube_apiserver(servers):
    different = []
    for method, path, body, accept, content_type in REQUESTS:
        responses = (
            send(server, method, path, body, accept=accept, content_type=content_type)
            for server in (servers.real, servers.ours)
        )
        real, ours = (
            (response.status, response.media_type, body_without_source_location(response)) for response in responses
        )
        if real != ours:
            different.append(f"{method} {path} {accept} {content_type} {body!r}\n  real {real}\n  ours {ours}")
    assert not different, f"{len(different)}:\n" + "\n".join(different)
