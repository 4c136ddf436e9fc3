"""Who we are to the server: when a token is loaded again, and when a request is sent again. Time is virtual."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from kubeloop.kube.auth.authorization_header import AuthorizedTransport, ReloadedAuthorization, StaticAuthorization
from kubeloop.kube.client.transport import Response, StreamedResponse
from kubeloop.kube.errors import UserError

pytestmark = pytest.mark.virtual_time


class Gate:
    """A Transport to a server that lets in who has the right value."""

    def __init__(self, valid: str) -> None:
        self.valid = valid
        self.seen = []

    def _status(self, headers):
        self.seen.append(headers.get("authorization"))
        return 200 if headers.get("authorization") == self.valid else 401

    async def request(self, method, target, *, headers, body=b"", timeout_seconds=None):
        await asyncio.sleep(1)
        return Response(self._status(headers), b"")

    @asynccontextmanager
    async def stream(self, method, target, *, headers, body=b""):
        yield StreamedResponse(self._status(headers), {}, None)


class Loads:
    """Values to load one after the other, the last one forever."""

    def __init__(self, *values: str) -> None:
        self.values = list(values)
        self.rejected = []

    async def __call__(self, rejected: bool) -> str:
        await asyncio.sleep(0.1)
        self.rejected.append(rejected)
        return self.values.pop(0) if len(self.values) > 1 else self.values[0]


async def test_a_static_token_is_sent_and_a_refusal_is_final():
    gate = Gate("Bearer b")
    transport = AuthorizedTransport(gate, StaticAuthorization("Bearer a"))
    assert (await transport.request("GET", "/", headers={})).status == 401
    assert gate.seen == ["Bearer a"]


async def test_without_a_token_no_header_is_sent():
    gate = Gate("x")
    await AuthorizedTransport(gate, StaticAuthorization("")).request("GET", "/", headers={"a": "b"})
    assert gate.seen == [None]


async def test_a_refused_token_is_loaded_again_once_for_all_who_were_refused():
    gate, loads = Gate("Bearer 2"), Loads("Bearer 2")
    transport = AuthorizedTransport(gate, ReloadedAuthorization("Bearer 1", loads))
    answers = await asyncio.gather(*(transport.request("POST", "/", headers={}) for _ in range(5)))
    assert [answer.status for answer in answers] == [200] * 5
    assert loads.rejected == [True]
    async with transport.stream("GET", "/", headers={}) as stream:
        assert stream.status == 200


async def test_a_stream_that_is_refused_is_opened_again():
    gate, loads = Gate("Bearer 2"), Loads("Bearer 2")
    transport = AuthorizedTransport(gate, ReloadedAuthorization("Bearer 1", loads))
    async with transport.stream("GET", "/", headers={}) as stream:
        assert stream.status == 200
    assert gate.seen == ["Bearer 1", "Bearer 2"]


async def test_a_server_that_refuses_every_token_does_not_make_us_load_all_the_time():
    gate, loads = Gate("Bearer right"), Loads("Bearer wrong")
    transport = AuthorizedTransport(gate, ReloadedAuthorization("Bearer wrong", loads))
    for _ in range(3):
        assert (await transport.request("GET", "/", headers={})).status == 401
    assert len(loads.rejected) == 1
    await asyncio.sleep(10)
    await transport.request("GET", "/", headers={})
    assert len(loads.rejected) == 2


async def test_a_token_is_loaded_again_when_it_is_due():
    loads = Loads("Bearer 2", "Bearer 3")
    authorization = ReloadedAuthorization("Bearer 1", loads, every_seconds=60)
    assert await authorization.header() == "Bearer 1"
    await asyncio.sleep(59)
    assert await authorization.header() == "Bearer 1"
    await asyncio.sleep(2)
    assert await asyncio.gather(authorization.header(), authorization.header()) == ["Bearer 2", "Bearer 1"]
    assert await authorization.header() == "Bearer 2"
    assert loads.rejected == [False]


async def test_what_cannot_be_loaded_leaves_the_present_token(caplog):
    async def load(rejected: bool) -> str:
        raise UserError("the plugin is gone", hint="install it")

    gate = Gate("Bearer 1")
    authorization = ReloadedAuthorization("Bearer 1", load, every_seconds=60)
    transport = AuthorizedTransport(gate, authorization)
    await transport.request("GET", "/", headers={})
    await asyncio.sleep(100)
    assert (await transport.request("GET", "/", headers={})).status == 200
    gate.valid = "Bearer 2"
    assert (await transport.request("GET", "/", headers={})).status == 401
    assert "credentials not renewed" in caplog.text
