"""Each version of an object is encoded once for all watches, reads and the data directory."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.request import PROTOBUF_TYPE, ApiRequest
from kubeloop.devcluster.handlers.reading import list as list_module
from kubeloop.devcluster.handlers.reading import object_responses
from kubeloop.devcluster.serializer.protobuf import codec
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.storage import store, watch_encoding
from kubeloop.devcluster.storage.data_directory import DataDirectory
from kubeloop.kube.clock import SystemClock
from support.apiserver.api_requests import response_now

WATCHERS = 50
PATH = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count encodings as JSON or protobuf by object name, in every module of the server."""
    counts: Counter[str] = Counter()

    def counting(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
        def count(value: Any) -> bytes:
            counts[value.get("metadata", {}).get("name", "")] += 1
            return encode(value)

        return count

    for module in (store, watch_encoding, object_responses):
        monkeypatch.setattr(module, "encode_object", counting(msgspec.json.encode))
    monkeypatch.setattr(list_module, "_encode", counting(msgspec.json.encode))
    writer = codec.writer
    monkeypatch.setattr(codec, "writer", lambda *kind: counting(writer(*kind)))
    object_responses.protobuf_writer.cache_clear()
    yield counts
    object_responses.protobuf_writer.cache_clear()


@pytest.mark.parametrize("durable", [False, True], ids=["in memory", "with a data directory"])
async def test_json_is_encoded_once_per_version_with_fifty_watches(
    durable: bool, encoded: Counter[str], tmp_path: Path
):
    data_directory = DataDirectory(tmp_path) if durable else None
    api = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None, data_directory=data_directory)

    def send(method: str, target: str, body: Any = None) -> Any:
        answer = response_now(
            api, ApiRequest.of(method, target, {}, b"" if body is None else msgspec.json.encode(body))
        )
        assert answer.status in (200, 201), answer.body
        return answer.body

    selectors = ("", "&labelSelector=a%3Db", "&fieldSelector=metadata.name%3Dcm")
    watchers = [send("GET", f"{PATH}?watch=1{selectors[number % len(selectors)]}") for number in range(WATCHERS)]
    obj = {"metadata": {"name": "cm", "labels": {"a": "b"}}, "data": {"k": "1"}}

    answers = [send("POST", PATH, obj), *(send("PUT", f"{PATH}/cm", {**obj, "data": {"k": value}}) for value in "23")]
    assert encoded["cm"] == len(answers)

    for stream in watchers:
        received = b""
        async for chunk in stream:
            received += chunk
            if received.count(b"\n") == len(answers):
                break
        await stream.aclose()
        assert [msgspec.json.decode(line)["object"] for line in received.splitlines()] == [
            msgspec.json.decode(answer) for answer in answers
        ]
    assert send("GET", f"{PATH}/cm") == answers[-1]
    send("GET", PATH)
    assert encoded["cm"] == len(answers)
    if data_directory is not None:
        data_directory.close()


async def test_protobuf_is_encoded_once_per_version_with_fifty_watches(encoded: Counter[str]):
    api = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None)

    def send(method: str, target: str, obj: Any = None) -> Any:
        body = b"" if obj is None else codec.encode({"apiVersion": "v1", "kind": "ConfigMap", **obj})
        headers = {"accept": PROTOBUF_TYPE, "content-type": PROTOBUF_TYPE}
        answer = response_now(api, ApiRequest.of(method, target, headers, body))
        assert answer.status in (200, 201), answer.body
        assert answer.content_type.startswith(PROTOBUF_TYPE)
        return answer.body

    send("POST", PATH, {"metadata": {"name": "cm"}})
    json_encodings = encoded["cm"]
    selectors = ("", "&labelSelector=!c", "&fieldSelector=metadata.name%3Dcm")
    watchers = [send("GET", f"{PATH}?watch=1{selectors[number % len(selectors)]}") for number in range(WATCHERS)]
    for value in "12":
        send("PUT", f"{PATH}/cm", {"metadata": {"name": "cm"}, "data": {"k": value}})
    for stream in watchers:
        received = b""
        async for chunk in stream:
            received += chunk
            if received.count(b"MODIFIED") == 2:
                break
        await stream.aclose()
    send("GET", f"{PATH}/cm")
    send("GET", PATH)
    assert (encoded["cm"], json_encodings) == (3, 1)
