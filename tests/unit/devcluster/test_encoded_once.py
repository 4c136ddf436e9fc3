"""A write is serialised once, however many watch it, read it and store it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.request import PROTOBUF_TYPE, Request
from kubeloop.devcluster.handlers import rest
from kubeloop.devcluster.serializer.protobuf import codec
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.storage import store, watch_frames
from kubeloop.devcluster.storage.sqlite import Journal
from kubeloop.kube.clock import SystemClock

WATCHERS = 50
PATH = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often an object of that name has been written as JSON or protobuf, wherever the server does so."""
    counts: Counter[str] = Counter()

    def counting(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
        def count(value: Any) -> bytes:
            counts[value.get("metadata", {}).get("name", "")] += 1
            return encode(value)

        return count

    for module in (store, watch_frames, rest):
        monkeypatch.setattr(module, "_encode", counting(msgspec.json.encode))
    writer = codec.writer
    monkeypatch.setattr(codec, "writer", lambda *kind: counting(writer(*kind)))
    rest._protobuf_writer.cache_clear()
    yield counts
    rest._protobuf_writer.cache_clear()


@pytest.mark.parametrize("durable", [False, True], ids=["in memory", "with a data directory"])
async def test_an_object_is_encoded_once_per_version_with_fifty_watchers(
    durable: bool, encoded: Counter[str], tmp_path: Path
):
    journal = Journal(tmp_path) if durable else None
    api = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None, journal=journal)

    def ask(method: str, target: str, body: Any = None) -> Any:
        answer = api.answer(Request.of(method, target, {}, b"" if body is None else msgspec.json.encode(body)))
        assert answer.status in (200, 201), answer.body
        return answer.body

    selectors = ("", "&labelSelector=a%3Db", "&fieldSelector=metadata.name%3Dmine")
    watchers = [ask("GET", f"{PATH}?watch=1{selectors[number % len(selectors)]}") for number in range(WATCHERS)]
    obj = {"metadata": {"name": "mine", "labels": {"a": "b"}}, "data": {"k": "1"}}

    answers = [ask("POST", PATH, obj), *(ask("PUT", f"{PATH}/mine", {**obj, "data": {"k": each}}) for each in "23")]
    assert encoded["mine"] == len(answers)

    for stream in watchers:
        seen = b""
        async for chunk in stream:
            seen += chunk
            if seen.count(b"\n") == len(answers):
                break
        await stream.aclose()
        assert [msgspec.json.decode(line)["object"] for line in seen.splitlines()] == [
            msgspec.json.decode(answer) for answer in answers
        ]
    assert ask("GET", f"{PATH}/mine") == answers[-1]
    ask("GET", PATH)
    assert encoded["mine"] == len(answers)
    if journal is not None:
        journal.close()


async def test_an_object_is_written_as_protobuf_once_per_version_with_fifty_watchers(encoded: Counter[str]):
    api = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None)

    def ask(method: str, target: str, obj: Any = None) -> Any:
        body = b"" if obj is None else codec.encode({"apiVersion": "v1", "kind": "ConfigMap", **obj})
        headers = {"accept": PROTOBUF_TYPE, "content-type": PROTOBUF_TYPE}
        answer = api.answer(Request.of(method, target, headers, body))
        assert answer.status in (200, 201), answer.body
        assert answer.content_type.startswith(PROTOBUF_TYPE)
        return answer.body

    ask("POST", PATH, {"metadata": {"name": "mine"}})
    as_json = encoded["mine"]
    selectors = ("", "&labelSelector=!c", "&fieldSelector=metadata.name%3Dmine")
    watchers = [ask("GET", f"{PATH}?watch=1{selectors[number % len(selectors)]}") for number in range(WATCHERS)]
    for value in "12":
        ask("PUT", f"{PATH}/mine", {"metadata": {"name": "mine"}, "data": {"k": value}})
    for stream in watchers:
        seen = b""
        async for chunk in stream:
            seen += chunk
            if seen.count(b"MODIFIED") == 2:
                break
        await stream.aclose()
    ask("GET", f"{PATH}/mine")
    ask("GET", PATH)
    assert (encoded["mine"], as_json) == (3, 1)
