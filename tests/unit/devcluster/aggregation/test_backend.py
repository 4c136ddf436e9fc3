"""Connections to one aggregated API server: addresses, and servers that do not respond."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

import aiohttp
import pytest

from kubeloop.devcluster.aggregation.backend import Backend
from kubeloop.devcluster.aggregation.proxy_settings import DEFAULT_SETTINGS, ProxySettings
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import ApiRequest, PendingResponse
from kubeloop.devcluster.outgoing.service_addresses import ServiceAddresses, UnresolvedService
from kubeloop.devcluster.server.http import HttpServer
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.auth.certificate_authority import CertificateAuthority
from kubeloop.kube.clock import SystemClock
from support.apiserver.aggregated_server import PATH, AggregatedServer
from support.objects.client_certificates import client_certificate

UPGRADE = {"connection": "Upgrade", "upgrade": "websocket"}
USER = {"username": "alice", "groups": ["dev"]}


def backend(server: AggregatedServer, *, port: int = 0, settings: ProxySettings = DEFAULT_SETTINGS) -> Backend:
    spec = server.api_service(service={"name": "agg", "namespace": "default", "port": 443})["spec"]
    addresses = ServiceAddresses(
        ObjectStore(seconds=lambda: 0.0), {"agg.default.svc": ("127.0.0.1", port)} if port else {}
    )
    return Backend(spec, addresses, None, settings)


class Passing:
    """Handles requests as the API server does: with a Backend."""

    clock = SystemClock()

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def respond(self, request: ApiRequest) -> PendingResponse:
        request.user = USER
        return partial(self._backend.pass_on, request)


@asynccontextmanager
async def upgrading(backend: Backend) -> AsyncIterator[str]:
    """Serve the requests of `backend` on a port; yield the URL."""
    async with HttpServer(Passing(backend)) as http:
        listener = await asyncio.get_running_loop().create_server(http, "127.0.0.1", 0)
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        listener.close()


async def test_address_of_resolve_is_used_with_the_name_of_the_service():
    async with AggregatedServer().serving() as server:
        passing = backend(server, port=server.port)
        response = await passing.pass_on(ApiRequest("GET", f"{PATH}/things", user=USER))
        assert response.status == 200
        assert b'"proxy": null' in response.body  # type: ignore[operator]
        assert passing.host == "agg.default.svc"
        await passing.close()


async def test_service_that_does_not_exist_is_a_503():
    passing = backend(AggregatedServer())
    assert (await passing.pass_on(ApiRequest("GET", f"{PATH}/things", user=USER))).status == 503
    with pytest.raises(UnresolvedService, match="not found"):
        passing.address()


async def test_head_and_deletions_without_content_are_complete():
    async with AggregatedServer().serving() as server:
        passing = backend(server, port=server.port)
        response = await passing.pass_on(ApiRequest("HEAD", f"{PATH}/things", user=USER))
        assert (response.status, response.body) == (200, b"")
        await passing.close()


async def test_websocket_joins_the_client_with_the_server():
    async with (
        AggregatedServer().serving() as server,
        upgrading(backend(server, port=server.port)) as url,
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{url}{PATH}/socket") as socket,
    ):
        assert await socket.receive_str() == "alice"
        await socket.send_bytes(b"x" * 100_000)
        assert await socket.receive_bytes() == b"x" * 100_000
        await socket.close()


async def test_refused_upgrade_is_the_response_of_the_server():
    async with (
        AggregatedServer().serving() as server,
        upgrading(backend(server, port=server.port)) as url,
        aiohttp.ClientSession() as session,
    ):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(f"{url}{PATH}/missing")
        assert refused.value.status == 404


@pytest.mark.parametrize(("path", "code"), [("/things", 200), ("/moved", 302)])
async def test_server_that_does_not_upgrade_is_a_503(path: str, code: int):
    async with AggregatedServer().serving() as server:
        passing = backend(server, port=server.port)
        response = await passing.pass_on(ApiRequest("GET", f"{PATH}{path}", headers=UPGRADE, user=USER))
        assert (response.status, response.body) == (503, b"invalid upgrade response: status code %d\n" % code)


async def test_upgrade_of_a_server_that_is_not_there_is_a_503():
    passing = backend(AggregatedServer(), port=1)
    response = await passing.pass_on(ApiRequest("GET", f"{PATH}/socket", headers=UPGRADE, user=USER))
    assert response.status == 503
    assert response.body == b"error dialing backend: dial tcp 127.0.0.1:1: connect: connection refused\n"


async def test_unknown_authority_is_an_error_of_the_upgrade():
    async with AggregatedServer().serving() as server, AggregatedServer().serving() as other:
        passing = backend(other, port=server.port)
        response = await passing.pass_on(ApiRequest("GET", f"{PATH}/socket", headers=UPGRADE, user=USER))
        assert b"x509: certificate signed by unknown authority" in response.body  # type: ignore[operator]


async def test_server_that_does_not_respond_is_a_504(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kubeloop.devcluster.aggregation.backend._REQUEST_SECONDS", 0.1)
    async with AggregatedServer().serving() as server:
        passing = backend(server, port=server.port)
        with pytest.raises(StatusError, match="did not complete within the allotted timeout") as raised:
            await passing.pass_on(ApiRequest("GET", f"{PATH}/silent", user=USER))
        assert raised.value.code == 504
        await passing.close()


async def test_redirects_pass_through_if_they_are_allowed():
    async with AggregatedServer().serving() as server:
        passing = backend(server, port=server.port, settings=ProxySettings(refuses_redirects=False))
        response = await passing.pass_on(ApiRequest("GET", f"{PATH}/moved", user=USER))
        assert (response.status, ("location", "/elsewhere") in response.headers) == (302, True)
        await passing.close()


async def test_certificate_of_the_settings_is_presented():
    authority = CertificateAuthority.create(datetime.now(UTC))
    pem = client_certificate(authority, "other-proxy").pem
    async with AggregatedServer().serving(authority.certificate_pem) as server:
        passing = backend(server, port=server.port, settings=ProxySettings(client_pem=pem))
        response = await passing.pass_on(ApiRequest("GET", f"{PATH}/things", user=USER))
        assert json.loads(response.body)["proxy"] == "other-proxy"  # type: ignore[arg-type]
        await passing.close()


async def test_names_of_users_are_sent_as_utf_8():
    async with AggregatedServer().serving() as server:
        passing = backend(server, port=server.port)
        user = {"username": "J\u00fcrgen \u4e2d", "groups": []}
        response = await passing.pass_on(ApiRequest("GET", f"{PATH}/things", user=user))
        assert isinstance(response.body, bytes)
        assert ["x-remote-user", "J\u00fcrgen \u4e2d"] in json.loads(response.body)["headers"]
        response = await passing.pass_on(ApiRequest("GET", f"{PATH}/things", user={"username": "a\nb"}))
        assert (response.status, response.body) == (503, b"net/http: invalid header field value\n")
        await passing.close()
