"""HTTP/2, with a server made of the h2 library, and with frames that no correct server sends."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import hpack
import pytest

from kubeloop.kube.client import http2_connection
from kubeloop.kube.client.asyncio_transport import AsyncioTransport
from kubeloop.kube.client.endpoint import Endpoint
from kubeloop.kube.client.http2_connection import Http2Connection, ProtocolError, status_of
from kubeloop.kube.client.transport import HttpRequest, TransportError
from kubeloop.kube.shared_buffer import new_buffer
from support.apiserver.client_connections import HEADERS, Wire, eventually, send
from support.apiserver.received import receive


@dataclass
class Request:
    """A request that the server has received completely."""

    server: Server
    connection: ServerConnection
    stream: int
    headers: list[tuple[str, str]]
    body: bytes = b""

    @property
    def target(self) -> str:
        return dict(self.headers)[":path"]

    def begin(self, status: int = 200, **headers: str) -> None:
        fields = [(":status", str(status)), *((name.replace("_", "-"), value) for name, value in headers.items())]
        self.connection.state.send_headers(self.stream, fields)
        self.connection.flush()

    async def send(self, data: bytes, *, end: bool = False) -> None:
        """Send data as the client's window allows."""
        state = self.connection.state
        while data:
            size = min(len(data), state.local_flow_control_window(self.stream), state.max_outbound_frame_size)
            if size:
                state.send_data(self.stream, data[:size])
                data = data[size:]
                self.connection.flush()
            else:
                self.connection.window.clear()
                await self.connection.window.wait()
        if end:
            state.end_stream(self.stream)
            self.connection.flush()

    async def respond(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.begin(status, **headers)
        await self.send(body, end=True)


Handler = Callable[[Request], Awaitable[None]]


class ServerConnection(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self.server = server
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self.state = h2.connection.H2Connection(config)
        self.state.local_settings = h2.settings.Settings(client=False, initial_values=server.settings)
        self.requests: dict[int, Request] = {}
        self.window = asyncio.Event()
        self.resets: list[int] = []
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.connections.append(self)
        self.state.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self.transport.write(self.state.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self.state.receive_data(data):
            match event:
                case h2.events.RequestReceived():
                    assert event.stream_id is not None
                    self.requests[event.stream_id] = Request(self.server, self, event.stream_id, list(event.headers))
                case h2.events.DataReceived():
                    self.requests[event.stream_id].body += event.data
                    self.state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                case h2.events.StreamEnded():
                    request = self.requests[event.stream_id]
                    self.server.requests.append(request)
                    self.server.tasks.append(asyncio.ensure_future(self.server.respond(request)))
                case h2.events.StreamReset():
                    self.resets.append(event.stream_id)
                case h2.events.WindowUpdated() | h2.events.RemoteSettingsChanged():
                    self.window.set()
        self.flush()


@dataclass
class Server:
    respond: Handler
    endpoint: Endpoint
    settings: dict[int, int]
    requests: list[Request] = field(default_factory=list)
    connections: list[ServerConnection] = field(default_factory=list)
    tasks: list[asyncio.Future[None]] = field(default_factory=list)


@pytest.fixture
def serving(certificate):
    """`async with serving(respond) as (server, transport)`; `settings`: those of HTTP/2 that the server announces."""

    @asynccontextmanager
    async def running(
        respond: Handler, settings: dict[int, int] | None = None, headers: tuple[tuple[str, str], ...] = ()
    ) -> AsyncIterator[tuple[Server, AsyncioTransport]]:
        server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server_tls.load_cert_chain(*certificate)
        server_tls.set_alpn_protocols(["h2", "http/1.1"])
        client_tls = ssl.create_default_context(cafile=certificate[0])
        server = Server(respond, Endpoint("127.0.0.1", 0, client_tls), settings or {})
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(lambda: ServerConnection(server), "127.0.0.1", 0, ssl=server_tls)
        server.endpoint = Endpoint("127.0.0.1", listener.sockets[0].getsockname()[1], client_tls, headers=headers)
        transport = AsyncioTransport(server.endpoint)
        try:
            yield server, transport
        finally:
            await transport.close()
            listener.close()
            for task in server.tasks:
                task.cancel()
            await asyncio.gather(*server.tasks, return_exceptions=True)
            for connection in server.connections:
                connection.transport.abort()
            await asyncio.sleep(0.01)

    return running


async def echo(request: Request) -> None:
    await request.respond(200, request.target.encode() + b" " + request.body)


# --- with a server ---------------------------------------------------------------------------------------------------


async def test_request_and_response_round_trip(serving):
    async def respond(request):
        await request.respond(201, b'{"a":1}', retry_after="7", x_other="b")

    async with serving(respond, headers=(("Impersonate-User", "jürgen"),)) as (server, transport):
        response = await transport.send(HttpRequest("POST", "/api/v1/pods?x=%2F", headers=HEADERS, body=b'{"b":2}'))
        assert (response.status, response.body, response.headers["retry-after"]) == (201, b'{"a":1}', "7")
        (request,) = server.requests
        assert request.body == b'{"b":2}'
        assert request.headers == [
            (":method", "POST"),
            (":scheme", "https"),
            (":path", "/api/v1/pods?x=%2F"),
            (":authority", f"127.0.0.1:{server.endpoint.port}"),
            ("impersonate-user", "jürgen"),
            *HEADERS.items(),
            ("content-length", "7"),
        ]


async def test_changed_header_value_is_sent(serving):
    async with serving(echo) as (server, transport):
        for token in ("a", "b", "b", "c" * 3000):
            await transport.send(HttpRequest("GET", "/", headers={**HEADERS, "authorization": token}))
        assert [dict(request.headers)["authorization"] for request in server.requests] == ["a", "b", "b", "c" * 3000]


async def test_concurrent_requests_share_one_connection(serving):
    everyone, arrived = asyncio.Event(), []

    async def respond(request):
        arrived.append(request)
        if len(arrived) == 50:
            everyone.set()
        await everyone.wait()
        await echo(request)

    async with serving(respond) as (server, transport):
        requests = [send(transport, "PUT", f"/{n}", b"x%d" % n) for n in range(50)]
        responses = await asyncio.gather(*requests)
        assert [response.body for response in responses] == [b"/%d x%d" % (n, n) for n in range(50)]
        assert len(server.connections) == 1


async def test_more_streams_than_server_allows_use_another_connection(serving):
    gate = asyncio.Event()

    async def respond(request):
        await gate.wait()
        await echo(request)

    async with serving(respond, {h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 3}) as (server, transport):
        first = asyncio.create_task(send(transport, "GET", "/"))
        await eventually(lambda: server.requests)
        others = [asyncio.create_task(send(transport, "GET", "/")) for _ in range(5)]
        await eventually(lambda: len(server.requests) == 6)
        assert len(server.connections) == 2
        gate.set()
        await asyncio.gather(first, *others)


async def test_large_bodies_wait_for_windows_in_both_directions(serving):
    body = bytes(range(256)) * (40 << 10)  # 10 MiB

    async def respond(request):
        await request.respond(200, request.body)

    async with serving(respond) as (_, transport):
        small = send(transport, "PUT", "/", b"small")
        large = send(transport, "PUT", "/", body)
        responses = await asyncio.gather(large, small, send(transport, "DELETE", "/"))
        assert [response.body for response in responses] == [body, b"small", b""]


async def test_target_of_100_kib_is_sent_in_several_frames(serving):
    target = "/?labelSelector=" + "a" * (60 << 10)
    async with serving(echo) as (_, transport):
        assert (await send(transport, "GET", target)).body == target.encode() + b" "


async def test_stream_delivers_chunks_until_server_ends_it(serving):
    gate = asyncio.Event()

    async def respond(request):
        request.begin()
        await request.send(b"one\n")
        await gate.wait()
        await request.send(b"two\nthree\n", end=True)

    async with serving(respond) as (server, transport):
        async with transport.stream(HttpRequest("GET", "/watch", headers=HEADERS)) as stream:
            assert stream.status == 200
            assert await anext(stream.chunks) == b"one\n"
            gate.set()
            assert b"".join([chunk async for chunk in stream.chunks]) == b"two\nthree\n"
        assert server.connections[0].resets == []


async def test_stream_without_reader_stops_at_its_window_and_delays_no_other(serving, monkeypatch):
    monkeypatch.setattr(http2_connection, "_STREAM_WINDOW_BYTES", 100_000)
    monkeypatch.setattr(http2_connection, "_WINDOW_UPDATE_BYTES", 50_000)

    async def respond(request):
        if request.target == "/watch":
            request.begin()
            await request.send(b"x" * 1_000_000, end=True)
        else:
            await echo(request)

    async with (
        serving(respond) as (_, transport),
        transport.stream(HttpRequest("GET", "/watch", headers=HEADERS)) as stream,
    ):
        for _ in range(20):
            assert (await send(transport, "GET", "/a")).body == b"/a "
        first = await anext(stream.chunks)
        assert len(first) <= 100_000
        assert len(first) + sum([len(chunk) async for chunk in stream.chunks]) == 1_000_000


async def test_leaving_stream_or_cancelling_request_resets_only_its_stream(serving):
    async def respond(request):
        if request.target == "/watch":
            request.begin()
            await request.send(b"one\n")
        elif request.target != "/slow":
            await echo(request)

    async with serving(respond) as (server, transport):
        async with transport.stream(HttpRequest("GET", "/watch", headers=HEADERS)) as stream:
            await anext(stream.chunks)
            slow = asyncio.create_task(send(transport, "GET", "/slow"))
            await eventually(lambda: len(server.requests) == 2)
            slow.cancel()
            with pytest.raises(asyncio.CancelledError):
                await slow
        assert (await send(transport, "GET", "/fast")).body == b"/fast "
        assert (server.connections[0].resets, len(server.connections)) == ([3, 1], 1)


async def test_requests_after_last_stream_of_goaway_were_not_sent(serving):
    async def respond(request):
        if request.target == "/last":
            connection = request.connection
            connection.state.close_connection(last_stream_id=1)
            connection.flush()
        elif len(request.server.connections) > 1:
            await echo(request)

    async with serving(respond) as (server, transport):
        first = asyncio.create_task(send(transport, "GET", "/first"))
        await eventually(lambda: server.requests)
        with pytest.raises(TransportError) as error:
            await send(transport, "POST", "/last", b"x")
        assert not error.value.request_sent
        assert (await send(transport, "POST", "/next", b"x")).body == b"/next x"
        assert len(server.connections) == 2
        assert not first.done()  # the server still sends its response
        first.cancel()
        await eventually(server.connections[0].transport.is_closing)


async def test_refused_stream_was_not_sent_and_other_resets_were(serving):
    async def respond(request):
        code = h2.errors.ErrorCodes.REFUSED_STREAM if request.target == "/refused" else h2.errors.ErrorCodes.CANCEL
        request.connection.state.reset_stream(request.stream, code)
        request.connection.flush()

    async with serving(respond) as (_, transport):
        for target, sent in (("/refused", False), ("/cancelled", True)):
            with pytest.raises(TransportError, match="stream error") as error:
                await send(transport, "POST", target, b"x")
            assert error.value.request_sent == sent


async def test_lost_connection_fails_all_exchanges(serving):
    async def respond(request):
        if request.target == "/last":
            request.connection.transport.abort()
        elif request.target == "/watch":
            request.begin()
            await request.send(b"one\n")

    async with serving(respond) as (server, transport):
        async with transport.stream(HttpRequest("GET", "/watch", headers=HEADERS)) as stream:
            assert await anext(stream.chunks) == b"one\n"
            with pytest.raises(TransportError) as error:
                await send(transport, "POST", "/last", b"x")
            assert error.value.request_sent
            with pytest.raises(TransportError):
                await anext(stream.chunks)
        assert len(server.requests) == 2


async def test_get_is_repeated_after_connection_was_closed_by_server(serving):
    async def respond(request):
        if request.target == "/second" and len(request.server.connections) == 1:
            request.connection.transport.abort()
        else:
            await echo(request)

    async with serving(respond) as (server, transport):
        await send(transport, "GET", "/first")
        assert (await send(transport, "GET", "/second")).body == b"/second "
        assert len(server.connections) == 2


async def test_timeout_closes_connection_only_if_it_is_silent(serving):
    async def respond(request):
        if request.target == "/slow":
            request.connection.state.ping(b"12345678")
            request.connection.flush()
        elif request.target != "/silent":
            await echo(request)

    async with serving(respond) as (server, transport):
        await send(transport, "GET", "/")
        for target, connections in (("/slow", 1), ("/silent", 2)):
            with pytest.raises(TransportError, match="timed out") as error:
                await send(transport, "GET", target, timeout_seconds=0.1)
            assert error.value.request_sent
            assert (await send(transport, "GET", "/a")).body == b"/a "
            assert len(server.connections) == connections


async def test_close_idle_connections_lets_streams_end(serving):
    gate = asyncio.Event()

    async def respond(request):
        if request.target == "/slow":
            await gate.wait()
        await echo(request)

    async with serving(respond) as (server, transport):
        slow = asyncio.create_task(send(transport, "GET", "/slow"))
        await eventually(lambda: server.requests)
        transport.close_idle_connections()
        await send(transport, "GET", "/")
        assert len(server.connections) == 2
        gate.set()
        assert (await slow).body == b"/slow "
        await eventually(server.connections[0].transport.is_closing)


async def test_interim_response_and_trailers_are_skipped(serving):
    async def respond(request):
        state = request.connection.state
        state.send_headers(request.stream, [(":status", "103"), ("link", "a")])
        state.send_headers(request.stream, [(":status", "200")])
        state.send_data(request.stream, b"ok")
        state.send_headers(request.stream, [("x-trailer", "1")], end_stream=True)
        request.connection.flush()

    async with serving(respond) as (_, transport):
        response = await send(transport, "GET", "/")
        assert (response.status, response.body) == (200, b"ok")


async def test_line_break_in_header_is_rejected(serving):
    async with serving(echo) as (server, transport):
        for target, value in (("/", "a\r\nauthorization: b"), ("/\n", "a")):
            with pytest.raises(ValueError, match="line break"):
                await transport.send(HttpRequest("GET", target, headers={**HEADERS, "x": value}))
        assert (await send(transport, "GET", "/")).status == 200
        assert len(server.requests) == 1


async def test_disable_http2_selects_http1(serving, monkeypatch):
    monkeypatch.setenv("DISABLE_HTTP2", "1")
    async with serving(echo) as (server, transport):
        with pytest.raises(TransportError):  # the server understands HTTP/2 only
            await send(transport, "POST", "/", b"x", timeout_seconds=5)
        tls = server.connections[0].transport.get_extra_info("ssl_object")
        assert tls.selected_alpn_protocol() != "h2"


# --- without a server ------------------------------------------------------------------------------------------------


@pytest.fixture
async def connection():
    connection = Http2Connection(asyncio.get_running_loop(), "server", [], new_buffer())
    connection.connection_made(Wire())
    await asyncio.sleep(0)  # its preface is sent
    return connection


def frame(type_: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return len(content).to_bytes(3, "big") + bytes([type_, flags]) + stream.to_bytes(4, "big") + content


def block(*fields: tuple[str, str], huffman: bool = True) -> bytes:
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    return encoder.encode(fields, huffman=huffman)


RESPONSE = (
    frame(4, 0, 0, b"\0\x03\0\0\0\x64")
    + frame(1, 0x8 | 0x20, 1, b"\x03" + b"\0\0\0\0\x10" + block((":status", "201"), ("a", "b" * 200))[:40] + b"\0\0\0")
    + frame(9, 0x4, 1, block((":status", "201"), ("a", "b" * 200))[40:])
    + frame(0xFA, 0, 0, b"unknown")
    + frame(2, 0, 1, b"\0\0\0\0\x10")
    + frame(0, 0x8, 1, b"\x04" + b"hel" + b"\0\0\0\0")
    + frame(0, 0, 1)
    + frame(6, 0, 0, b"12345678")
    + frame(0, 0x1, 1 | 1 << 31, b"lo")
)


@pytest.mark.parametrize("size", [1, 2, 9, 10, 31, len(RESPONSE)])
async def test_frames_may_be_split_anywhere(connection, size):
    exchange = connection.begin("GET", "/", {}, b"", streaming=False)
    for start in range(0, len(RESPONSE), size):
        receive(connection, RESPONSE[start : start + size])
    response = await exchange.response()
    assert (response.status, response.body, response.headers["a"]) == (201, b"hello", "b" * 200)
    assert not connection.transport.closed
    await asyncio.sleep(0)
    assert frame(6, 0x1, 0, b"12345678") in connection.transport.sent


@pytest.mark.parametrize(
    "received",
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="HTTP/1.1"),
        pytest.param(frame(0, 0, 1, b"x"), id="data before headers"),
        pytest.param(frame(1, 0x5, 1, block(("a", "b"))), id="no status"),
        pytest.param(frame(1, 0x5, 1, block((":status", "2x0"))), id="status is no number"),
        pytest.param(frame(1, 0x5, 1, b""), id="empty header block"),
        pytest.param(frame(1, 0x5, 1, b"\xbe"), id="index of dynamic table"),
        pytest.param(frame(1, 0x1, 1, b"\x88") + frame(6, 0, 0, b"12345678"), id="interrupted header block"),
        pytest.param(frame(9, 0x4, 1, b"\x88"), id="continuation of nothing"),
        pytest.param(frame(1, 0, 1, b"\x88") + frame(9, 0, 1, b"") * 100, id="endless header block"),
        pytest.param(frame(5, 0x4, 1, b"\0\0\0\x02\x88"), id="server push"),
        pytest.param(frame(3, 0, 1, b"\0"), id="short reset"),
        pytest.param(frame(0, 0, 1, b"x" * 16_385), id="large frame"),
    ],
)
async def test_protocol_error_fails_exchanges_and_closes(connection, received):
    exchange = connection.begin("POST", "/", {}, b"x", streaming=False)
    connection.data_received(received)
    with pytest.raises(TransportError, match="not HTTP/2") as error:
        await exchange.response()
    assert error.value.request_sent
    assert connection.transport.closed
    assert not connection.available


async def test_settings_change_windows_of_open_streams(connection):
    connection.data_received(frame(4, 0, 0, b"\0\x04\0\0\0\x02"))  # initial window of 2 bytes
    connection.begin("POST", "/", {}, b"abcdef", streaming=False)
    for received in (frame(4, 0, 0, b"\0\x04\0\0\0\x03"), frame(8, 0, 1, b"\0\0\0\x01"), frame(8, 0, 1, b"\0\0\0\x09")):
        connection.data_received(received)
    await asyncio.sleep(0)
    sent = connection.transport.sent
    parts = [frame(0, 0, 1, b"ab"), frame(0, 0, 1, b"c"), frame(0, 0, 1, b"d"), frame(0, 1, 1, b"ef")]
    positions = [sent.index(part) for part in parts]
    assert positions == sorted(positions)


async def test_request_on_connection_that_was_just_closed_fails(connection):
    def write(data: bytes) -> None:
        raise RuntimeError("the handler is closed")

    connection.transport.write = write
    exchange = connection.begin("POST", "/", {}, b"x", streaming=False)
    with pytest.raises(TransportError, match="handler is closed") as error:
        await exchange.response()
    assert error.value.request_sent
    assert not connection.available


async def test_requests_of_one_turn_are_sent_together(connection):
    writes = []
    connection.transport.write = writes.append
    for _ in range(3):
        connection.begin("POST", "/", {}, b"x", streaming=False)
    await asyncio.sleep(0)
    assert len(writes) == 1
    assert writes[0].count(b"server") == 3


@pytest.mark.parametrize("huffman", [True, False])
def test_status_of_header_block(huffman):
    for status in (100, 200, 201, 204, 304, 404, 409, 429, 500, 503):
        assert status_of(block((":status", str(status)), ("a", "b"), huffman=huffman)) == status
        assert status_of(b"\x20\x20" + block((":status", str(status)), huffman=huffman)) == status
    with pytest.raises(ProtocolError):
        status_of(block(("status", "200"), huffman=huffman))
