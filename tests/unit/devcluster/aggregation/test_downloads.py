"""Documents that the aggregator fetches from an API server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kubeloop.devcluster.aggregation.backend import Backend
from kubeloop.devcluster.aggregation.downloads import fetch_discovery, fetch_openapi
from kubeloop.devcluster.aggregation.openapi import ServerDocuments
from kubeloop.devcluster.outgoing.service_addresses import ServiceAddresses
from kubeloop.devcluster.storage.store import ObjectStore
from support.apiserver.aggregated_server import GROUP, PATH, SPEC, VERSION, AggregatedServer

KEY = (GROUP, VERSION)
INDEX = {"paths": {f"apis/{GROUP}/{VERSION}": {"serverRelativeURL": f"/openapi/v3/apis/{GROUP}/{VERSION}?hash=1"}}}
STALE = {"version": VERSION, "freshness": "Stale"}


@pytest.fixture
async def server() -> AsyncIterator[AggregatedServer]:
    async with AggregatedServer().serving() as running:
        yield running


@pytest.fixture
async def backend(server: AggregatedServer) -> AsyncIterator[Backend]:
    addresses = ServiceAddresses(ObjectStore(seconds=lambda: 0.0), {"agg.default.svc": ("127.0.0.1", server.port)})
    spec = server.api_service(service={"name": "agg", "namespace": "default", "port": 443})["spec"]
    connected = Backend(spec, addresses, None)
    yield connected
    await connected.close()


async def test_openapi_of_both_versions_is_fetched(server: AggregatedServer, backend: Backend):
    server.documents = {"/openapi/v2": SPEC, "/openapi/v3": INDEX}
    documents = await fetch_openapi(backend, KEY, ServerDocuments())
    assert documents.urls == {name: entry["serverRelativeURL"] for name, entry in INDEX["paths"].items()}
    assert documents.spec is not None
    assert list(documents.spec["paths"]) == [f"{PATH}/things"]
    assert documents.converted == b""


async def test_unchanged_spec_is_not_sent_again(server: AggregatedServer, backend: Backend):
    server.documents = {"/openapi/v2": SPEC, "/openapi/v3": INDEX}
    first = await fetch_openapi(backend, KEY, ServerDocuments())
    second = await fetch_openapi(backend, KEY, first)
    assert second == first
    assert second.spec is first.spec


async def test_server_without_version_three_is_converted(server: AggregatedServer, backend: Backend):
    server.documents = {"/openapi/v2": SPEC}
    first = await fetch_openapi(backend, KEY, ServerDocuments())
    assert list(first.urls) == [f"apis/{GROUP}/{VERSION}"]
    assert await fetch_openapi(backend, KEY, first) == first


async def test_server_without_openapi_has_no_documents(backend: Backend):
    assert await fetch_openapi(backend, KEY, ServerDocuments()) == ServerDocuments()


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3"])
async def test_invalid_document_is_a_value_error(server: AggregatedServer, backend: Backend, path: str):
    server.documents = {"/openapi/v2": SPEC, "/openapi/v3": INDEX, path: b"<html>"}
    with pytest.raises(ValueError, match="malformed"):
        await fetch_openapi(backend, KEY, ServerDocuments())


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"resources": [1]}'])
async def test_invalid_resource_list_is_stale_discovery(backend: Backend, body: bytes):
    assert await fetch_discovery(backend, KEY, body, 5.0) == STALE


async def test_aggregated_discovery_is_preferred(server: AggregatedServer, backend: Backend):
    entry = {"version": VERSION, "resources": [{"resource": "others"}]}
    items = [{"metadata": {}, "versions": [entry]}, {"metadata": {"name": GROUP}, "versions": [entry]}]
    server.documents = {"/apis": {"kind": "APIGroupDiscoveryList", "items": items}}
    assert await fetch_discovery(backend, KEY, b"{}", 5.0) == {**entry, "freshness": "Current"}
    server.documents = {"/apis": {"kind": "APIGroupDiscoveryList", "items": [1]}}
    assert await fetch_discovery(backend, KEY, b"{}", 5.0) == STALE
