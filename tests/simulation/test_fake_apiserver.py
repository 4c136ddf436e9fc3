"""Faults that the fake API server injects into requests and watches, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeloop.kube.client.retries import RetryPolicy
from kubeloop.kube.errors import Forbidden, Gone, ServerUnreachable
from kubeloop.kube.objects.resources import CONFIG_MAPS
from support.apiserver.fake_apiserver import FakeApiServer
from support.apiserver.faulty_transport import WatchFault, injected_error

pytestmark = pytest.mark.virtual_time

APP = {"metadata": {"name": "app"}}


@pytest.fixture
async def server() -> FakeApiServer:
    return FakeApiServer(retries=RetryPolicy(tries=1))


@asynccontextmanager
async def watching(server: FakeApiServer) -> AsyncIterator[list[tuple[float, str]]]:
    """Yield the list of watch events in namespace "default": time, and name of the object or error."""
    events: list[tuple[float, str]] = []

    def note(event: str) -> None:
        events.append((asyncio.get_running_loop().time(), event))

    async def watch() -> None:
        version = str(server.store.revision)
        async with server.client.watch(CONFIG_MAPS, "default", resource_version=version) as stream:
            async for event in stream:
                note(event.object["metadata"]["name"])

    watcher = asyncio.create_task(watch())
    await asyncio.sleep(1)
    yield events
    watcher.cancel()
    await asyncio.wait([watcher])
    if not watcher.cancelled() and watcher.exception() is not None:
        note(str(watcher.exception()))


async def test_requests_and_responses_are_delayed(server: FakeApiServer):
    server.transport.latency_seconds = 10.0
    written_at: list[float] = []
    server.on_write = lambda write: written_at.append(asyncio.get_running_loop().time())
    await server.client.create(CONFIG_MAPS, APP, "default")
    assert 0.0 < written_at[0] < asyncio.get_running_loop().time() < 20.0


async def test_rejected_write_has_no_effect(server: FakeApiServer):
    server.transport.reject = lambda method, path: injected_error(403) if method == "POST" else None
    with pytest.raises(Forbidden):
        await server.client.create(CONFIG_MAPS, APP, "default")
    assert server.names(CONFIG_MAPS) == []
    assert server.requests == []


async def test_write_with_lost_response_takes_effect(server: FakeApiServer):
    server.transport.lose_response = lambda method, path: method == "POST"
    with pytest.raises(ServerUnreachable) as lost:
        await server.client.create(CONFIG_MAPS, APP, "default")
    assert lost.value.maybe_applied
    assert server.names(CONFIG_MAPS) == ["app"]


async def test_write_is_observed_with_the_object_before_and_after(server: FakeApiServer):
    writes: list[Any] = []
    server.on_write = writes.append
    created = await server.client.create(CONFIG_MAPS, APP, "default")
    await server.client.delete(CONFIG_MAPS, "app", "default")
    create, delete = writes
    assert (create.method, create.resource, create.body, create.before) == ("POST", CONFIG_MAPS, APP, None)
    assert create.after["metadata"]["uid"] == created["metadata"]["uid"]
    assert (delete.method, delete.before, delete.after) == ("DELETE", create.after, None)


async def test_watch_events_are_delayed_in_order(server: FakeApiServer):
    server.transport.watch_delay_seconds = 5.0
    async with watching(server) as events:
        names = [f"app-{number}" for number in range(20)]
        for name in names:
            server.api.create(CONFIG_MAPS.path("default"), {"metadata": {"name": name}})
        await asyncio.sleep(6)
    assert [name for _, name in events] == names
    assert events[0][0] < events[-1][0] <= 6.0


async def test_events_of_a_broken_watch_are_lost(server: FakeApiServer):
    server.transport.watch_delay_seconds = 5.0
    async with watching(server) as events:
        for number in range(20):
            server.api.create(CONFIG_MAPS.path("default"), {"metadata": {"name": f"app-{number}"}})
        await asyncio.sleep(0)
        server.transport.break_watches("configmaps")
        await asyncio.sleep(6)
    assert len(events) < 20
    assert events[-1][1] == "connection reset"


async def test_watch_from_a_compacted_version_is_gone(server: FakeApiServer):
    server.transport.compacted_version = server.store.revision + 1
    with pytest.raises(Gone):
        async with server.client.watch(CONFIG_MAPS, resource_version=str(server.store.revision)):
            pass


async def test_watch_fault_applies_to_its_resource(server: FakeApiServer):
    server.transport.watch_faults = [WatchFault("close", lines=1, resource="pods"), WatchFault("close", lines=2)]
    async with watching(server) as events:
        for number in range(3):
            server.api.create(CONFIG_MAPS.path("default"), {"metadata": {"name": f"app-{number}"}})
        await asyncio.sleep(1)
    assert [name for _, name in events] == ["app-0", "app-1"]
    assert [fault.resource for fault in server.transport.watch_faults] == ["pods"]
