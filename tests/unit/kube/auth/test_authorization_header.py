"""Authorization header: reload of tokens, and retry of rejected requests. Time is virtual."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from kubeloop.kube.auth.authorization_header import AuthorizedTransport, ReloadedAuthorization, StaticAuthorization
from kubeloop.kube.client.transport import HttpRequest, HttpResponse, StreamedResponse
from kubeloop.kube.user_error import UserError

pytestmark = pytest.mark.virtual_time


class TokenServer:
    """A Transport to a server that accepts one value of the header."""

    def __init__(self, valid: str) -> None:
        self.valid = valid
        self.seen = []

    def _status(self, headers):
        self.seen.append(headers.get("authorization"))
        return 200 if headers.get("authorization") == self.valid else 401

    async def send(self, request):
        await asyncio.sleep(1)
        return HttpResponse(self._status(request.headers), b"")

    @asynccontextmanager
    async def stream(self, request):
        yield StreamedResponse(self._status(request.headers), {}, None)


class TokenLoader:
    """TokenLoader the values one after the other, then the last one again."""

    def __init__(self, *values: str) -> None:
        self.values = list(values)
        self.rejected = []

    async def __call__(self, rejected: bool) -> str:
        await asyncio.sleep(0.1)
        self.rejected.append(rejected)
        return self.values.pop(0) if len(self.values) > 1 else self.values[0]


async def test_static_token_is_not_renewed_after_401():
    server = TokenServer("Bearer b")
    transport = AuthorizedTransport(server, StaticAuthorization("Bearer a"))
    assert (await transport.send(HttpRequest("GET", "/", headers={}))).status == 401
    assert server.seen == ["Bearer a"]


async def test_no_header_is_sent_without_token():
    server = TokenServer("x")
    await AuthorizedTransport(server, StaticAuthorization("")).send(HttpRequest("GET", "/", headers={"a": "b"}))
    assert server.seen == [None]


async def test_rejected_token_is_reloaded_once_for_concurrent_requests():
    server, loader = TokenServer("Bearer 2"), TokenLoader("Bearer 2")
    transport = AuthorizedTransport(server, ReloadedAuthorization("Bearer 1", loader))
    responses = await asyncio.gather(*(transport.send(HttpRequest("POST", "/", headers={})) for _ in range(5)))
    assert [response.status for response in responses] == [200] * 5
    assert loader.rejected == [True]
    async with transport.stream(HttpRequest("GET", "/", headers={})) as stream:
        assert stream.status == 200


async def test_rejected_stream_is_reopened_with_new_token():
    server, loader = TokenServer("Bearer 2"), TokenLoader("Bearer 2")
    transport = AuthorizedTransport(server, ReloadedAuthorization("Bearer 1", loader))
    async with transport.stream(HttpRequest("GET", "/", headers={})) as stream:
        assert stream.status == 200
    assert server.seen == ["Bearer 1", "Bearer 2"]


async def test_reloads_after_rejection_are_rate_limited():
    server, loader = TokenServer("Bearer right"), TokenLoader("Bearer wrong")
    transport = AuthorizedTransport(server, ReloadedAuthorization("Bearer wrong", loader))
    for _ in range(3):
        assert (await transport.send(HttpRequest("GET", "/", headers={}))).status == 401
    assert len(loader.rejected) == 1
    await asyncio.sleep(10)
    await transport.send(HttpRequest("GET", "/", headers={}))
    assert len(loader.rejected) == 2


async def test_token_is_reloaded_periodically():
    loader = TokenLoader("Bearer 2", "Bearer 3")
    authorization = ReloadedAuthorization("Bearer 1", loader, every_seconds=60)
    assert await authorization.header() == "Bearer 1"
    await asyncio.sleep(59)
    assert await authorization.header() == "Bearer 1"
    await asyncio.sleep(2)
    assert await asyncio.gather(authorization.header(), authorization.header()) == ["Bearer 2", "Bearer 1"]
    assert await authorization.header() == "Bearer 2"
    assert loader.rejected == [False]


async def test_failed_reload_keeps_current_token(caplog):
    async def load(rejected: bool) -> str:
        raise UserError("the plugin is missing", hint="install it")

    server = TokenServer("Bearer 1")
    authorization = ReloadedAuthorization("Bearer 1", load, every_seconds=60)
    transport = AuthorizedTransport(server, authorization)
    await transport.send(HttpRequest("GET", "/", headers={}))
    await asyncio.sleep(100)
    assert (await transport.send(HttpRequest("GET", "/", headers={}))).status == 200
    server.valid = "Bearer 2"
    assert (await transport.send(HttpRequest("GET", "/", headers={}))).status == 401
    assert "credentials not renewed" in caplog.text
