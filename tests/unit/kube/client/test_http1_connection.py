"""HTTP/1.1 on one connection; test_transports has the behaviour with a server."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.kube.client.http1_connection import Http1Connection
from kubeloop.kube.shared_buffer import new_buffer
from support.apiserver.client_connections import Wire
from support.apiserver.received import receive

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
async def connection():
    connection = Http1Connection(asyncio.get_running_loop(), ["host: server"], set(), new_buffer())
    connection.connection_made(Wire())
    return connection


async def test_connection_is_reusable_after_complete_response(connection):
    for body in (b"", b"x"):
        exchange = connection.begin("PUT" if body else "GET", "/a", {"b": "c"}, body, streaming=False)
        assert not connection.reusable
        receive(connection, RESPONSE)
        assert (await exchange.response()).body == b"ok"
        assert connection.reusable
    assert connection.transport.sent == (
        b"GET /a HTTP/1.1\r\nhost: server\r\nb: c\r\n\r\n"
        b"PUT /a HTTP/1.1\r\nhost: server\r\nb: c\r\ncontent-length: 1\r\n\r\nx"
    )


async def test_response_without_request_closes_connection(connection):
    connection.begin("GET", "/", {}, b"", streaming=False)
    connection.data_received(RESPONSE)
    connection.data_received(RESPONSE)
    assert connection.transport.closed
    assert not connection.reusable


async def test_reading_pauses_while_a_stream_has_no_reader(connection):
    calls: list[str] = []
    connection.transport.pause_reading = lambda: calls.append("pause")
    connection.transport.resume_reading = lambda: calls.append("resume")
    exchange = connection.begin("GET", "/", {}, b"", streaming=True)
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(9):
        connection.data_received(b"x" * (1 << 20))
    assert calls == ["pause"]
    assert len(await anext(exchange)) == 9 << 20
    assert calls == ["pause", "resume"]
