"""Connections to one aggregated API server: addresses, and servers that do not respond."""

from __future__ import annotations

import json

import pytest

from kubeloop.devcluster.aggregation.backend import Backend
from kubeloop.devcluster.api.request import Request
from kubeloop.devcluster.outgoing.service_addresses import ServiceAddresses, UnresolvedService
from kubeloop.devcluster.storage.store import ObjectStore
from support.apiserver.aggregated_server import PATH, AggregatedServer

USER = {"username": "alice", "groups": ["dev"]}


def backend(server: AggregatedServer, *, port: int = 0) -> Backend:
    spec = server.api_service(service={"name": "agg", "namespace": "default", "port": 443})["spec"]
    addresses = ServiceAddresses(
        ObjectStore(seconds=lambda: 0.0), {"agg.default.svc": ("127.0.0.1", port)} if port else {}
    )
    return Backend(spec, addresses, None)


async def test_address_of_resolve_is_used_with_the_name_of_the_service():
    async with AggregatedServer().serving() as server:
        passing = backend(server, port=server.port)
        response = await passing.pass_on(Request("GET", f"{PATH}/things", user=USER))
        assert response.status == 200
        assert b'"proxy": null' in response.body  # type: ignore[operator]
        assert passing.host == "agg.default.svc"
        await passing.close()


async def test_service_that_does_not_exist_is_a_503():
    passing = backend(AggregatedServer())
    assert (await passing.pass_on(Request("GET", f"{PATH}/things", user=USER))).status == 503
    with pytest.raises(UnresolvedService, match="not found"):
        passing.address()


async def test_head_and_deletions_without_content_are_complete():
    async with AggregatedServer().serving() as server:
        passing = backend(server, port=server.port)
        response = await passing.pass_on(Request("HEAD", f"{PATH}/things", user=USER))
        assert (response.status, response.body) == (200, b"")
        await passing.close()


async def test_names_of_users_are_sent_as_utf_8():
    async with AggregatedServer().serving() as server:
        passing = backend(server, port=server.port)
        user = {"username": "J\u00fcrgen \u4e2d", "groups": []}
        response = await passing.pass_on(Request("GET", f"{PATH}/things", user=user))
        assert isinstance(response.body, bytes)
        assert ["x-remote-user", "J\u00fcrgen \u4e2d"] in json.loads(response.body)["headers"]
        response = await passing.pass_on(Request("GET", f"{PATH}/things", user={"username": "a\nb"}))
        assert (response.status, response.body) == (503, b"net/http: invalid header field value\n")
        await passing.close()
