"""Requests and responses in protobuf: objects, lists, watches, metadata, failures and discovery."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.request import PROTOBUF_TYPE, Response
from kubeloop.devcluster.serializer.protobuf import codec
from kubeloop.devcluster.serializer.protobuf.wire import wire_values
from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]
PATH = "/api/v1/namespaces/default/configmaps"
PREFERRED = f"{PROTOBUF_TYPE},application/json"
METADATA = f"{PROTOBUF_TYPE};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
METADATA_LIST = METADATA.replace("Metadata;", "MetadataList;")
TABLE = f"{PROTOBUF_TYPE};as=Table;g=meta.k8s.io;v=v1,application/json;as=Table;g=meta.k8s.io;v=v1"
STREAM = f"{PROTOBUF_TYPE};stream=watch"


class ProtobufApi:
    """Requests in protobuf to a server that holds the ConfigMap "c"."""

    def __init__(self) -> None:
        self._api = InProcessApi()
        self("POST", PATH, {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c"}, "data": {"a": "b"}})

    def __call__(self, method: str, path: str, obj: JSON | None = None, accept: str = PROTOBUF_TYPE) -> Response:
        return self.send(method, path, None if obj is None else codec.encode(obj), accept)

    def send(self, method: str, path: str, body: bytes | None, accept: str = "") -> Response:
        """Send a body that is already encoded."""
        return self._api.respond(method, path, body, PROTOBUF_TYPE, accept=accept)

    def read(self, method: str, path: str, obj: JSON | None = None, accept: str = PROTOBUF_TYPE) -> JSON:
        """Return the decoded content of the response, which must be in protobuf."""
        response = self(method, path, obj, accept)
        assert response.content_type == PROTOBUF_TYPE
        assert isinstance(response.body, bytes)
        return codec.decode(response.body)


@pytest.fixture
async def api() -> ProtobufApi:
    return ProtobufApi()


async def test_objects_and_lists_are_returned_in_protobuf(api: ProtobufApi):
    config_map = api.read("GET", f"{PATH}/c")
    assert (config_map["kind"], config_map["data"]) == ("ConfigMap", {"a": "b"})
    config_maps = api.read("GET", PATH, accept=PREFERRED)
    inner = {name: value for name, value in config_map.items() if name not in ("kind", "apiVersion")}
    assert (config_maps["kind"], config_maps["items"]) == ("ConfigMapList", [inner])
    assert config_maps["metadata"]["resourceVersion"] == inner["metadata"]["resourceVersion"]
    changed = api.read("PUT", f"{PATH}/c", {**config_map, "data": {"a": "c"}})
    assert changed["data"] == {"a": "c"}


async def test_preferred_media_type_is_returned(api: ProtobufApi):
    json_first = api("GET", f"{PATH}/c", accept=f"application/json,{PROTOBUF_TYPE}")
    assert json_first.content_type == "application/json"
    by_quality = api("GET", f"{PATH}/c", accept=f"application/json;q=0.5,{PROTOBUF_TYPE}")
    assert by_quality.content_type == PROTOBUF_TYPE


async def test_deletion_status_is_returned_in_protobuf(api: ProtobufApi):
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
    status = api.read("DELETE", f"{PATH}/c", options)
    assert (status["kind"], status["status"], status["details"]["name"]) == ("Status", "Success", "c")


async def test_failures_are_returned_in_protobuf_yaml_or_json(api: ProtobufApi):
    failure = api.read("GET", f"{PATH}/nope", accept=PREFERRED)
    assert (failure["code"], failure["reason"], failure["details"]["name"]) == (404, "NotFound", "nope")
    in_yaml = api("GET", f"{PATH}/nope", accept="application/yaml")
    assert in_yaml.content_type == "application/yaml"
    # a failure has no PartialObjectMetadata: the next accepted form is JSON
    assert api("GET", f"{PATH}/nope", accept=METADATA).content_type == "application/json"


async def test_partial_metadata_is_returned_in_protobuf(api: ProtobufApi):
    config_map = api.read("GET", f"{PATH}/c", accept=METADATA)
    assert (config_map["kind"], config_map["apiVersion"], config_map["metadata"]["name"]) == (
        "PartialObjectMetadata",
        "meta.k8s.io/v1",
        "c",
    )
    assert "data" not in config_map
    config_maps = api.read("GET", PATH, accept=METADATA_LIST)
    assert config_maps["kind"] == "PartialObjectMetadataList"
    assert [item["metadata"]["name"] for item in config_maps["items"]] == ["c"]


async def test_tables_are_not_available_in_protobuf(api: ProtobufApi):
    response = api("GET", PATH, accept=TABLE)
    assert response.content_type == "application/json"
    assert isinstance(response.body, bytes)
    assert msgspec.json.decode(response.body)["kind"] == "Table"
    assert api("GET", PATH, accept=TABLE.partition(",")[0]).status == 406


def frames(chunk: bytes) -> list[tuple[str, JSON]]:
    """Return the events of a chunk of a stream."""
    events = []
    while chunk:
        size = int.from_bytes(chunk[:4], "big") + 4
        event = {number: value for number, _, value in wire_values(chunk[4:size])}
        ((_, _, body),) = wire_values(event[2])
        events.append((event[1].decode(), codec.decode(body)))
        chunk = chunk[size:]
    return events


async def first_events(response: Response) -> tuple[list[tuple[str, JSON]], AsyncIterator[bytes]]:
    assert response.content_type == STREAM
    assert not isinstance(response.body, bytes)
    return frames(await anext(response.body)), response.body


async def test_watch_is_a_stream_of_frames(api: ProtobufApi):
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    initial, stream = await first_events(api("GET", f"{PATH}?{query}", accept=PREFERRED))
    assert [(type_, obj["kind"]) for type_, obj in initial] == [("ADDED", "ConfigMap"), ("BOOKMARK", "ConfigMap")]
    assert initial[1][1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    api("DELETE", f"{PATH}/c")
    ((type_, obj),) = frames(await anext(stream))
    assert (type_, obj["data"]) == ("DELETED", {"a": "b"})


async def test_watch_of_metadata_is_a_stream_of_frames(api: ProtobufApi):
    initial, _ = await first_events(api("GET", f"{PATH}?watch=1", accept=METADATA))
    assert [(type_, obj["kind"], obj["metadata"]["name"]) for type_, obj in initial] == [
        ("ADDED", "PartialObjectMetadata", "c")
    ]


async def test_watch_from_future_revision_returns_error_frame(api: ProtobufApi):
    response = api(
        "GET", f"{PATH}?watch=1&resourceVersion=999&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    )
    assert isinstance(response.body, bytes)
    ((type_, status),) = frames(response.body)
    assert (type_, status["kind"], status["code"]) == ("ERROR", "Status", 504)


async def test_event_list_has_the_requested_group(api: ProtobufApi):
    events = api.read("GET", "/apis/events.k8s.io/v1/events")
    assert (events["kind"], events["apiVersion"]) == ("EventList", "events.k8s.io/v1")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api", "APIVersions"),
        ("/apis", "APIGroupList"),
        ("/apis/apps", "APIGroup"),
        ("/apis/apps/v1", "APIResourceList"),
    ],
)
async def test_discovery_is_returned_in_protobuf(api: ProtobufApi, path: str, kind: str):
    assert api.read("GET", path)["kind"] == kind


async def test_body_without_kind_has_kind_of_the_resource(api: ProtobufApi):
    message = codec.writer("v1", "ConfigMap")({"metadata": {"name": "d"}})
    assert api.send("POST", PATH, codec.wrap_in_envelope("", "", message)).status == 201


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            codec.wrap_in_envelope("v1", "ConfigMap", b"\x0a\x05abc"),
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: unexpected EOF',
            id="a message that ends early",
        ),
        pytest.param(
            codec.wrap_in_envelope("v1", "Nosuch", b""),
            'Nosuch in version "v1" cannot be handled as a ConfigMap: no kind "Nosuch" is registered for version "v1"',
            id="an unknown kind",
        ),
        pytest.param(
            b"k8s\x00\x0a\x01",
            "the object provided is unrecognized (must be of type ConfigMap): unexpected EOF (6b3873000a01)",
            id="an envelope that ends early",
        ),
    ],
)
async def test_undecodable_body_is_rejected(api: ProtobufApi, body: bytes, message: str):
    response = api.send("POST", PATH, body)
    assert isinstance(response.body, bytes)
    assert (response.status, msgspec.json.decode(response.body)["message"]) == (400, message)


async def test_failure_without_accepted_form_is_indented_json(api: ProtobufApi):
    response = api("GET", f"{PATH}/nope", accept=METADATA.partition(",")[0])
    assert isinstance(response.body, bytes)
    assert (response.content_type, response.body.splitlines()[1]) == ("application/json", b'  "kind": "Status",')
