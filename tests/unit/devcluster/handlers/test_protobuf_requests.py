"""Who gets protobuf of what, through the server: objects, lists, watches, metadata, failures, discovery."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.request import PROTOBUF_TYPE, Response
from kubeloop.devcluster.serializer.protobuf import codec
from kubeloop.devcluster.serializer.protobuf.wire import wire_values
from support.api_requests import InProcessApi

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
        """Send a body that is encoded already."""
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


async def test_objects_and_lists_are_answered_in_protobuf(api: ProtobufApi):
    one = api.read("GET", f"{PATH}/c")
    assert (one["kind"], one["data"]) == ("ConfigMap", {"a": "b"})
    everything = api.read("GET", PATH, accept=PREFERRED)
    inner = {name: value for name, value in one.items() if name not in ("kind", "apiVersion")}
    assert (everything["kind"], everything["items"]) == ("ConfigMapList", [inner])
    assert everything["metadata"]["resourceVersion"] == inner["metadata"]["resourceVersion"]
    changed = api.read("PUT", f"{PATH}/c", {**one, "data": {"a": "c"}})
    assert changed["data"] == {"a": "c"}


async def test_the_preferred_form_wins(api: ProtobufApi):
    json_first = api("GET", f"{PATH}/c", accept=f"application/json,{PROTOBUF_TYPE}")
    assert json_first.content_type == "application/json"
    by_quality = api("GET", f"{PATH}/c", accept=f"application/json;q=0.5,{PROTOBUF_TYPE}")
    assert by_quality.content_type == PROTOBUF_TYPE


async def test_deletions_tell_their_success_in_protobuf(api: ProtobufApi):
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
    told = api.read("DELETE", f"{PATH}/c", options)
    assert (told["kind"], told["status"], told["details"]["name"]) == ("Status", "Success", "c")


async def test_failures_are_in_protobuf_yaml_or_json(api: ProtobufApi):
    failure = api.read("GET", f"{PATH}/nope", accept=PREFERRED)
    assert (failure["code"], failure["reason"], failure["details"]["name"]) == (404, "NotFound", "nope")
    in_yaml = api("GET", f"{PATH}/nope", accept="application/yaml")
    assert in_yaml.content_type == "application/yaml"
    # there is no metadata of a failure, and the next best is JSON
    assert api("GET", f"{PATH}/nope", accept=METADATA).content_type == "application/json"


async def test_metadata_alone_is_answered_in_protobuf(api: ProtobufApi):
    one = api.read("GET", f"{PATH}/c", accept=METADATA)
    assert (one["kind"], one["apiVersion"], one["metadata"]["name"]) == ("PartialObjectMetadata", "meta.k8s.io/v1", "c")
    assert "data" not in one
    everything = api.read("GET", PATH, accept=METADATA_LIST)
    assert everything["kind"] == "PartialObjectMetadataList"
    assert [each["metadata"]["name"] for each in everything["items"]] == ["c"]


async def test_there_are_no_tables_in_protobuf(api: ProtobufApi):
    answer = api("GET", PATH, accept=TABLE)
    assert answer.content_type == "application/json"
    assert isinstance(answer.body, bytes)
    assert msgspec.json.decode(answer.body)["kind"] == "Table"
    assert api("GET", PATH, accept=TABLE.partition(",")[0]).status == 406


def frames(chunk: bytes) -> list[tuple[str, JSON]]:
    """The events of a stream's chunk."""
    found = []
    while chunk:
        size = int.from_bytes(chunk[:4], "big") + 4
        event = {number: value for number, _, value in wire_values(chunk[4:size])}
        ((_, _, body),) = wire_values(event[2])
        found.append((event[1].decode(), codec.decode(body)))
        chunk = chunk[size:]
    return found


async def seen(answer: Response) -> tuple[list[tuple[str, JSON]], AsyncIterator[bytes]]:
    assert answer.content_type == STREAM
    assert not isinstance(answer.body, bytes)
    return frames(await anext(answer.body)), answer.body


async def test_a_watch_is_a_stream_of_frames(api: ProtobufApi):
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    first, stream = await seen(api("GET", f"{PATH}?{query}", accept=PREFERRED))
    assert [(type_, obj["kind"]) for type_, obj in first] == [("ADDED", "ConfigMap"), ("BOOKMARK", "ConfigMap")]
    assert first[1][1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    api("DELETE", f"{PATH}/c")
    ((type_, obj),) = frames(await anext(stream))
    assert (type_, obj["data"]) == ("DELETED", {"a": "b"})


async def test_a_watch_of_metadata_is_a_stream_of_frames_too(api: ProtobufApi):
    first, _ = await seen(api("GET", f"{PATH}?watch=1", accept=METADATA))
    assert [(type_, obj["kind"], obj["metadata"]["name"]) for type_, obj in first] == [
        ("ADDED", "PartialObjectMetadata", "c")
    ]


async def test_a_watch_that_begins_in_the_future_is_told_so_in_a_frame(api: ProtobufApi):
    answer = api("GET", f"{PATH}?watch=1&resourceVersion=999&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
    assert isinstance(answer.body, bytes)
    ((type_, status),) = frames(answer.body)
    assert (type_, status["kind"], status["code"]) == ("ERROR", "Status", 504)


async def test_a_kind_of_another_group_is_written_in_that_group(api: ProtobufApi):
    everything = api.read("GET", "/apis/events.k8s.io/v1/events")
    assert (everything["kind"], everything["apiVersion"]) == ("EventList", "events.k8s.io/v1")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api", "APIVersions"),
        ("/apis", "APIGroupList"),
        ("/apis/apps", "APIGroup"),
        ("/apis/apps/v1", "APIResourceList"),
    ],
)
async def test_discovery_is_answered_in_protobuf(api: ProtobufApi, path: str, kind: str):
    assert api.read("GET", path)["kind"] == kind


async def test_a_body_that_names_no_kind_is_of_the_resources(api: ProtobufApi):
    message = codec.writer("v1", "ConfigMap")({"metadata": {"name": "d"}})
    assert api.send("POST", PATH, codec.wrap_in_envelope("", "", message)).status == 201


@pytest.mark.parametrize(
    ("body", "told"),
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
async def test_a_body_that_cannot_be_read_is_told_as_far_as_it_could(api: ProtobufApi, body: bytes, told: str):
    answer = api.send("POST", PATH, body)
    assert isinstance(answer.body, bytes)
    assert (answer.status, msgspec.json.decode(answer.body)["message"]) == (400, told)


async def test_a_failure_nobody_can_read_is_told_to_people(api: ProtobufApi):
    answer = api("GET", f"{PATH}/nope", accept=METADATA.partition(",")[0])
    assert isinstance(answer.body, bytes)
    assert (answer.content_type, answer.body.splitlines()[1]) == ("application/json", b'  "kind": "Status",')
