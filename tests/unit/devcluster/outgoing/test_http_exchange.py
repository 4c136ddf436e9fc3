"""One HTTP exchange over a stream, and the stream after a change of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.outgoing.http_exchange import HttpExchange, request_message, wants_upgrade

SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def exchange_with(serve: Serve) -> AsyncIterator[HttpExchange]:
    """An exchange with a target whose connection is served by `serve`."""
    is_closed = asyncio.Event()

    async def serve_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(reader, writer)
        writer.close()
        await writer.wait_closed()
        is_closed.set()

    async with await asyncio.start_server(serve_once, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        yield HttpExchange(reader, writer)
        writer.close()
        await is_closed.wait()


def sending(*chunks: bytes) -> Serve:
    """A target that sends these bytes one after another, and closes the connection."""

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for chunk in chunks:
            writer.write(chunk)
            await writer.drain()
            await asyncio.sleep(0.01)

    return serve


class Client:
    """The connection of a client, which sends some messages and then waits; b"" closes it."""

    def __init__(self, *messages: bytes) -> None:
        self.received = b""
        self.sent = asyncio.Queue[bytes]()
        for message in messages:
            self.sent.put_nowait(message)

    async def receive(self) -> bytes:
        return await self.sent.get()

    async def send(self, data: bytes) -> None:
        self.received += data


def test_request_is_sent_with_its_headers_and_body():
    message = request_message("POST", "/a?b=c", [("host", "h"), ("x", "1"), ("x", "2")], b"body")
    assert message == b"POST /a?b=c HTTP/1.1\r\nhost: h\r\nx: 1\r\nx: 2\r\n\r\nbody"
    for target, value in (("/a\nb", "1"), ("/a", "1\r\nother: 2")):
        with pytest.raises(ValueError, match="line break in GET"):
            request_message("GET", target, [("x", value)], b"")


def test_upgrade_is_one_of_the_options_of_the_connection():
    assert wants_upgrade(ApiRequest("GET", "/", headers={"connection": "keep-alive, Upgrade", "upgrade": "SPDY/3.1"}))
    assert not wants_upgrade(ApiRequest("GET", "/", headers={"upgrade": "SPDY/3.1"}))


async def test_interim_responses_are_skipped():
    response = b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 4\r\n\r\nbo"
    async with exchange_with(sending(b"HTTP/1.1 100 Continue\r\nB: c\r\n\r\n", response, b"dy")) as exchange:
        assert await exchange.send(b"GET / HTTP/1.1\r\n\r\n") == 200
        assert (exchange.header("a"), exchange.header("b")) == ("b", "")
        assert b"".join([chunk async for chunk in exchange.body()]) == b"body"


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"", "the target sent no response"),
        (b"no HTTP", "Expected HTTP"),
        (b"HTTP/1.1 799 x\r\n\r\n", "the target has sent the status 799"),
    ],
)
async def test_target_without_a_response_is_an_error(sent: bytes, error: str):
    async with exchange_with(sending(sent)) as exchange:
        with pytest.raises((EOFError, ValueError), match=error):
            await exchange.send(b"GET / HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize("rest", [b"ready", b""])
async def test_bytes_behind_the_switch_reach_the_client(rest: bytes):
    client = Client()
    async with exchange_with(sending(SWITCH + rest, b" later")) as exchange:
        assert await exchange.send(b"GET / HTTP/1.1\r\n\r\n") == 101
        async with asyncio.timeout(5):
            await exchange.join(client)  # until the target closes the connection
    assert client.received == rest + b" later"


async def test_join_ends_with_the_client():
    received = asyncio.Queue[bytes]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCH)
        while data := await reader.read(100):
            received.put_nowait(data)
        received.put_nowait(b"end")

    client = Client(b"from the client", b"")
    async with exchange_with(serve) as exchange, asyncio.timeout(5):
        await exchange.send(b"GET / HTTP/1.1\r\n\r\n")
        response = exchange.upgrade(AsyncExitStack())
        assert (response.status, ("Upgrade", "echo") in response.headers) == (101, True)
        assert response.upgrade is not None
        await response.upgrade(client)
        assert await received.get() == b"from the client"
    assert await received.get() == b"end"
