"""Reads of one store, without an API server around them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import Response
from kubeloop.devcluster.api.request_info import route
from kubeloop.devcluster.handlers.reading.reads import ObjectReader
from kubeloop.devcluster.handlers.reading.watch import WatchSettings
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.devcluster.storage.watch import WatchStream
from kubeloop.kube.objects.resources import CONFIG_MAPS, NAMESPACES
from support.apiserver.request_contexts import request_context

MAPS = "/api/v1/namespaces/default/configmaps"
STATUSES = "/api/v1/componentstatuses"


@pytest.fixture
async def reader() -> ObjectReader:
    """Return a reader of the ConfigMap "a"."""
    store = ObjectStore(seconds=lambda: 0.0)
    store.create(NAMESPACES, {"metadata": {"name": "default", "uid": "u"}, "status": {"phase": "Active"}})
    head = {"kind": "ConfigMap", "apiVersion": "v1"}
    store.create(CONFIG_MAPS, {**head, "metadata": {"name": "a", "namespace": "default", "uid": "v"}})
    return ObjectReader(store, WatchSettings())


def content(response: Any) -> dict[str, Any]:
    assert isinstance(response, Response)
    assert isinstance(response.body, bytes)
    decoded: dict[str, Any] = json.loads(response.body)
    return decoded


def watch(reader: ObjectReader, target: str) -> WatchStream:
    response = reader.watch(request_context("GET", f"{target}?watch=true"))
    assert isinstance(response, Response)
    assert isinstance(response.body, WatchStream)
    return response.body


@pytest.mark.parametrize(
    ("target", "code", "reason"),
    [
        pytest.param(f"{MAPS}/missing", 404, "NotFound", id="missing object"),
        pytest.param(f"{MAPS}/a?resourceVersion=1000", 504, "Timeout", id="future revision"),
        pytest.param(f"{MAPS}/a?export=true", 400, "BadRequest", id="removed parameter"),
        pytest.param(f"{STATUSES}/none", 404, "NotFound", id="missing computed object"),
    ],
)
async def test_invalid_get_is_rejected(reader: ObjectReader, target: str, code: int, reason: str):
    with pytest.raises(StatusError) as raised:
        reader.get(request_context("GET", target))
    assert (raised.value.code, raised.value.reason) == (code, reason)


async def test_watch_of_an_unwatchable_kind_is_rejected(reader: ObjectReader):
    with pytest.raises(StatusError) as raised:
        reader.watch(request_context("GET", f"{STATUSES}?watch=true"))
    assert raised.value.code == 405


async def test_computed_objects_are_listed_and_read(reader: ObjectReader):
    name = content(reader.list(request_context("GET", STATUSES)))["items"][0]["metadata"]["name"]
    assert content(reader.get(request_context("GET", f"{STATUSES}/{name}")))["metadata"]["name"] == name


async def test_watch_from_a_future_revision_returns_an_error_event(reader: ObjectReader):
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=9999999"
    event = content(reader.watch(request_context("GET", f"{MAPS}?{query}")))
    assert (event["type"], event["object"]["code"]) == ("ERROR", 504)


async def test_cut_watches_ends_every_open_watch(reader: ObjectReader):
    streams = [watch(reader, MAPS), watch(reader, "/api/v1/namespaces")]
    assert [info.served.resource.plural for info in reader.watched()] == ["configmaps", "namespaces"]
    reader.cut_watches()
    for stream in streams:
        async for _ in stream:
            pass
        await stream.aclose()
    assert reader.watched() == []


async def test_end_watches_leaves_those_of_other_resources_open(reader: ObjectReader):
    ended, other = watch(reader, MAPS), watch(reader, "/api/v1/namespaces")
    maps = route(MAPS)
    assert maps is not None
    reader.end_watches(maps.served)
    async for _ in ended:
        pass
    await ended.aclose()
    assert [info.served.resource.plural for info in reader.watched()] == ["namespaces"]
    await other.aclose()
