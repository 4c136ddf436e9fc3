"""EndpointSlices of one controller: changes of other clients, and own writes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.runtime.services.managed_slices import ManagedSlices
from kubeloop.kube.objects.resources import ENDPOINT_SLICES, NAMESPACES
from support.apiserver.fake_apiserver import FakeApiServer

pytestmark = pytest.mark.virtual_time
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
LABELS = {MANAGED_BY: "me", "kubernetes.io/service-name": "web"}


class Recorded:
    """Managed slices whose Services and writes are recorded."""

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        self.services: list[str] = []
        self.operations: list[str] = []
        self.slices = ManagedSlices(server.context, "me", self.services.append, self.operations.append)

    async def write(self, *, create: Any = (), update: Any = (), delete: Any = ()) -> None:
        with self.server.context.traces.reconcile("test", "ns/web", "test") as reconcile:
            await self.slices.write(create, update, delete, reconcile)
        await asyncio.sleep(1)

    def stored(self) -> list[Any]:
        return [it for it in self.server.store.list(ENDPOINT_SLICES) if it["metadata"]["namespace"] == "ns"]

    async def patch(self, **changes: Any) -> list[str]:
        """Change the slice as another client does; return the Services that this enqueues."""
        self.services.clear()
        path = ENDPOINT_SLICES.path("ns", "s")
        self.server.api.succeed("PATCH", path, changes, content_type="application/merge-patch+json")
        await asyncio.sleep(1)
        return self.services


def endpoint_slice(name: str = "s") -> Any:
    metadata = {"name": name, "namespace": "ns", "labels": LABELS}
    return {"metadata": metadata, "addressType": "IPv4", "endpoints": [], "ports": []}


@pytest.fixture
async def recorded(fake_apiserver, start):
    recorded = Recorded(fake_apiserver)
    await start(fake_apiserver.informers)
    return recorded


async def test_own_writes_enqueue_no_service(recorded):
    await recorded.write(create=[endpoint_slice()])
    (stored,) = recorded.slices.of_service("ns/web")
    await recorded.write(update=[{**stored, "endpoints": [{"addresses": ["10.1.0.1"]}]}])
    assert not recorded.slices.tracker.is_stale("ns/web", recorded.slices.of_service("ns/web"))
    await recorded.write(delete=recorded.stored())
    assert (recorded.services, recorded.operations, recorded.stored()) == ([], ["create", "update", "delete"], [])


@pytest.mark.parametrize(
    ("changes", "services"),
    [
        ({"endpoints": [{"addresses": ["10.1.0.1"]}]}, ["ns/web"]),
        ({"metadata": {"labels": {MANAGED_BY: "other"}}}, ["ns/web"]),
        ({"metadata": {"labels": {"kubernetes.io/service-name": "db"}}}, ["ns/web", "ns/db"]),
        ({"metadata": {"annotations": {"note": "x"}}}, []),
    ],
)
async def test_changes_of_other_clients_enqueue_the_service(recorded, changes, services):
    await recorded.write(create=[endpoint_slice()])
    assert await recorded.patch(**changes) == services


async def test_slices_of_another_manager_enqueue_no_service(recorded):
    slice_of_other = endpoint_slice()
    slice_of_other["metadata"]["labels"] = {**LABELS, MANAGED_BY: "other"}
    recorded.server.api.create(ENDPOINT_SLICES.path("ns"), slice_of_other)
    assert await recorded.patch(endpoints=[{"addresses": ["10.1.0.1"]}]) == []
    assert recorded.slices.of_service("ns/web") == []


async def test_deletion_by_another_client_enqueues_the_service(recorded):
    await recorded.write(create=[endpoint_slice()])
    await recorded.server.client.delete(ENDPOINT_SLICES, "s", "ns")
    await asyncio.sleep(1)
    assert recorded.services == ["ns/web"]


async def test_nothing_more_is_written_when_the_namespace_terminates(recorded):
    await recorded.write(create=[endpoint_slice()])
    recorded.server.delete(NAMESPACES, "ns")
    await recorded.write(create=[endpoint_slice("t")], delete=recorded.stored())
    assert recorded.operations == ["create"]
