"""Transport to an API server in the same process."""

import dataclasses
import random

import msgspec
import pytest

from kubeloop.devcluster.api.request import ApiRequest, Response
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.server.faults import AnswerLost
from kubeloop.kube.client.api_client import ApiClient, PatchType, UnreadableObject
from kubeloop.kube.client.transport import HttpRequest, TransportError
from kubeloop.kube.errors import UnreadableResponse
from kubeloop.kube.objects.api_types import Struct
from kubeloop.kube.objects.resources import CONFIG_MAPS, NODES
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.testing.virtual_time import VirtualClock


async def chunks():
    yield b"one "
    yield b"two"


async def handle(request: ApiRequest) -> Response:
    if request.path == "/lost":
        raise AnswerLost
    body = chunks() if request.path == "/watch" else request.body.upper()
    return Response(200, body, headers=(("Retry-After", "1"),))


@pytest.mark.parametrize(("path", "content"), [("/echo", b"BODY"), ("/watch", b"one two")])
async def test_request_returns_the_complete_body(path, content):
    response = await MemoryTransport(handle).send(HttpRequest("POST", path, headers={}, body=b"body"))
    assert (response.status, response.body) == (200, content)
    assert response.headers["retry-after"] == "1"


@pytest.mark.parametrize(("path", "content"), [("/echo", [b"BODY"]), ("/watch", [b"one ", b"two"])])
async def test_stream_yields_the_chunks(path, content):
    async with MemoryTransport(handle).stream(HttpRequest("POST", path, headers={}, body=b"body")) as response:
        assert [chunk async for chunk in response.chunks] == content


async def test_lost_response_is_a_transport_error_after_sending():
    with pytest.raises(TransportError, match="without a response") as raised:
        await MemoryTransport(handle).send(HttpRequest("GET", "/lost", headers={}))
    assert raised.value.request_sent


NODE = {
    "metadata": {"name": "n1", "labels": {"zone": "a"}, "finalizers": ["example.com/hold"]},
    "spec": {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]},
}
READY = {"type": "Ready", "status": "True", "lastHeartbeatTime": None, "lastTransitionTime": "2026-01-01T00:00:00Z"}


async def exchange(*, takes_objects: bool) -> tuple[list, list[bytes]]:
    """Return results of writes with the events of a watch, and the versions that the server has encoded."""
    server = ApiServer(clock=VirtualClock(), rng=random.Random(0), token=None)
    transport = MemoryTransport(server.handle, takes_objects=takes_objects)
    client = ApiClient(transport, clock=VirtualClock(), rng=random.Random(0))
    results = []
    async with client.watch(NODES, send_initial_events=True) as events:
        results.append(await anext(events))
        for node in ({**NODE, "spec": {"taints": None}}, NODE):
            results.append(await client.create(NODES, {**node, "metadata": {**NODE["metadata"], "name": "n"}}))
            results.append(await anext(events))
            status = {"status": {"conditions": [READY], "addresses": None}}
            results.append(await client.patch(NODES, "n", status, PatchType.MERGE, subresource="status"))
            results.append(await client.delete(NODES, "n"))
            release = {"metadata": {"finalizers": None}}
            results.append(await client.patch(NODES, "n", release, PatchType.MERGE))
            results += [await anext(events) for _ in range(3)]
        results.append(await client.create_raw(CONFIG_MAPS, {"metadata": {"name": "a"}}, "default"))
        results.append(await client.create(CONFIG_MAPS, {"metadata": {"name": "b"}, "data": {"a": "1"}}, "default"))
    changes = server.store.table(NODES).changes_since(0)
    return results, [change.now._json for change in changes if change.now._json is not None]


@pytest.mark.virtual_time
async def test_client_that_takes_objects_gets_the_same_without_encoding():
    as_json, encoded = await exchange(takes_objects=False)
    assert len(encoded) == 8
    as_objects, encoded = await exchange(takes_objects=True)
    assert as_objects == as_json
    assert not encoded


@pytest.mark.virtual_time
async def test_plain_json_of_a_client_that_takes_objects_is_a_copy():
    server = ApiServer(clock=VirtualClock(), rng=random.Random(0), token=None)
    client = ApiClient(MemoryTransport(server.handle, takes_objects=True), clock=VirtualClock(), rng=random.Random(0))
    created = await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"a": "1"}}, "default")
    created["data"]["a"] = "2"
    assert (await client.get(CONFIG_MAPS, "a", "default"))["data"] == {"a": "1"}


@pytest.mark.virtual_time
async def test_object_that_does_not_fit_its_struct_is_unreadable_in_both_forms():
    class Text(Struct):
        data: dict[str, int] = msgspec.field(default_factory=dict)

    resource = dataclasses.replace(CONFIG_MAPS, type=Text)
    events = []
    for takes_objects in (False, True):
        server = ApiServer(clock=VirtualClock(), rng=random.Random(0), token=None)
        transport = MemoryTransport(server.handle, takes_objects=takes_objects)
        client = ApiClient(transport, clock=VirtualClock(), rng=random.Random(0))
        async with client.watch(resource, "default", resource_version="1", tolerant=True) as watch:
            await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"a": "1"}}, "default")
            events.append(await anext(watch))
        with pytest.raises(UnreadableResponse):
            await client.create(resource, {"metadata": {"name": "b"}, "data": {"a": "1"}}, "default")
    assert isinstance(events[0].object, UnreadableObject)
    assert events[0] == events[1]
