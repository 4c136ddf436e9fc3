"""Both transports, with a server that behaves correctly or incorrectly."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import ssl
import weakref

import pytest

from kubeloop.kube.client import aiohttp_transport, api_client, asyncio_transport
from kubeloop.kube.client.aiohttp_transport import AiohttpTransport
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.asyncio_transport import AsyncioTransport
from kubeloop.kube.client.endpoint import endpoint_from_url
from kubeloop.kube.client.retries import RetryPolicy
from kubeloop.kube.client.transport import HttpRequest, TransportError
from kubeloop.kube.objects.resources import PODS
from support.apiserver.client_connections import HEADERS, eventually, send


@pytest.fixture(params=[AsyncioTransport, AiohttpTransport], ids=["asyncio", "aiohttp"])
async def connected(request):
    """connected(url, tls=...): a Transport to it, closed after the test."""
    transports = []

    def make(url: str, tls: ssl.SSLContext | None = None):
        transports.append(request.param(endpoint_from_url(url, tls)))
        return transports[-1]

    yield make
    for transport in transports:
        await transport.close()


async def echo(request):
    await request.respond(200, b"%s %s %s" % (request.method.encode(), request.target.encode(), request.body))


async def test_request_and_response_round_trip(serving, connected):
    async def respond(request):
        await request.respond(201, b'{"a":1}', Retry_After="7", X_Other="b")

    async with serving(respond) as server:
        transport = connected(server.url + "/prefix/")
        response = await transport.send(HttpRequest("POST", "/api/v1/pods?x=%2F%3D", headers=HEADERS, body=b'{"b":2}'))
        assert (response.status, response.body, response.headers["retry-after"], response.headers["x-other"]) == (
            201,
            b'{"a":1}',
            "7",
            "b",
        )
        (request,) = server.requests
        assert (request.method, request.target, request.body) == ("POST", "/prefix/api/v1/pods?x=%2F%3D", b'{"b":2}')
        assert request.headers["host"] == f"127.0.0.1:{server.port}"
        sent = {name: request.headers.get(name) for name in (*HEADERS, "content-length", "accept-encoding")}
        assert sent == {**HEADERS, "content-length": "7", "accept-encoding": None}


async def test_keep_alive_connections_are_reused(serving, connected):
    async with serving(echo) as server:
        transport = connected(server.url)
        for _ in range(5):
            assert (await send(transport, "GET", "/a")).body == b"GET /a "
        assert server.connections == 1
        await asyncio.gather(*(send(transport, "PUT", f"/{n}", b"x") for n in range(4)))
        assert server.connections == 4


async def test_burst_opens_few_connections_at_once_and_uses_released_ones(serving):
    first_response, handshakes = asyncio.Event(), asyncio.Event()
    connecting: list[int] = []

    async def respond(request):
        if request.target == "/first":
            await first_response.wait()
        await request.respond(200)

    async with serving(respond) as server:
        transport = AsyncioTransport(endpoint_from_url(server.url, None))
        first = asyncio.create_task(send(transport, "PUT", "/first", b"x"))
        await eventually(lambda: server.requests)
        connect = transport._connect

        async def slow_connect():
            connecting.append(len(connecting))
            await handshakes.wait()
            return await connect()

        transport._connect = slow_connect
        burst = [asyncio.create_task(send(transport, "PUT", "/", b"x")) for _ in range(9)]
        first_response.set()
        await first
        assert len(connecting) == 8
        handshakes.set()
        await asyncio.gather(*burst)
        assert server.connections == 9
        await transport.close()


async def test_closed_connection_is_freed_without_garbage_collection(serving):
    async with serving(echo) as server:
        transport = AsyncioTransport(endpoint_from_url(server.url, None))
        await send(transport, "GET", "/")
        (connection,) = (weakref.ref(connection) for connection in transport._exchanges)
        gc.disable()
        try:
            await transport.close()
            await eventually(lambda: connection() is None)
        finally:
            gc.enable()


async def test_response_in_pieces_chunks_or_until_close(serving, connected):
    async def respond(request):
        if request.target == "/pieces":
            for piece in (b"HTTP/1.1 200 O", b"K\r\nContent-Le", b"ngth: 5\r\n", b"\r", b"\nab", b"cde"):
                await request.send(piece)
                await asyncio.sleep(0.001)
        elif request.target == "/chunks":
            await request.begin_stream()
            for chunk in (b"ab", b"cd", b"e", b""):
                await request.chunk(chunk)
        else:
            await request.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nab")
            await request.send(b"cde")
            raise ConnectionAbortedError

    async with serving(respond) as server:
        transport = connected(server.url)
        for target in ("/pieces", "/chunks", "/close", "/pieces"):
            assert (await send(transport, "GET", target)).body == b"abcde"
        assert server.connections == 2


async def test_response_without_body_keeps_connection(serving, connected):
    async def respond(request):
        if request.target == "/none":
            await request.send(b"HTTP/1.1 204 No Content\r\n\r\n")
        else:
            await request.respond(200)

    async with serving(respond) as server:
        transport = connected(server.url)
        for target, status in (("/none", 204), ("/empty", 200), ("/none", 204)):
            response = await send(transport, "DELETE", target)
            assert (response.status, response.body) == (status, b"")
        assert server.connections == 1


async def test_interim_responses_are_skipped(serving, connected):
    async def respond(request):
        await request.send(b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n")
        await request.respond(200, b"ok")

    async with serving(respond) as server:
        response = await send(connected(server.url), "GET", "/")
        assert (response.status, response.body) == (200, b"ok")


async def test_get_on_stale_connection_is_retried(serving, connected):
    async def respond(request):
        if request.connection == 1 and request.target == "/second":
            raise ConnectionAbortedError  # the server closes the idle connection while the request is sent
        await echo(request)

    async with serving(respond) as server:
        transport = connected(server.url)
        await send(transport, "GET", "/first")
        assert (await send(transport, "GET", "/second")).body == b"GET /second "
        assert server.connections == 2


async def test_post_on_lost_connection_is_not_retried(serving, connected):
    async def respond(request):
        if request.target == "/second":
            raise ConnectionAbortedError
        await echo(request)

    async with serving(respond) as server:
        transport = connected(server.url)
        await send(transport, "POST", "/first", b"x")
        with pytest.raises(TransportError) as lost:
            await send(transport, "POST", "/second", b"x")
        assert lost.value.request_sent
        assert [request.target for request in server.requests] == ["/first", "/second"]


async def test_idle_connections_closed_by_server_are_not_used(serving, connected):
    async with serving(echo) as server:
        transport = connected(server.url)
        await send(transport, "POST", "/", b"1")
        server.close_connections()
        await asyncio.sleep(0.01)
        assert (await send(transport, "POST", "/", b"2")).body == b"POST / 2"
        assert server.connections == 2


async def test_truncated_body_is_transport_error(serving, connected):
    async def respond(request):
        if request.target == "/length":
            await request.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        else:
            await request.begin_stream()
            await request.chunk(b"abc")
        raise ConnectionAbortedError

    async with serving(respond) as server:
        transport = connected(server.url)
        for target in ("/length", "/chunks"):
            with pytest.raises(TransportError) as lost:
                await send(transport, "GET", target)
            assert lost.value.request_sent


async def test_timeout_is_error_and_closes_connection(serving, connected):
    client_gave_up = asyncio.Event()

    async def respond(request):
        if request.target == "/slow":
            await client_gave_up.wait()
        await request.respond(200, request.target.encode())

    async with serving(respond) as server:
        transport = connected(server.url)
        await send(transport, "GET", "/first")  # the timeout also limits connecting
        with pytest.raises(TransportError, match="timed out") as late:
            await send(transport, "GET", "/slow", timeout_seconds=0.01)
        assert late.value.request_sent
        client_gave_up.set()
        assert (await send(transport, "GET", "/fast", timeout_seconds=60)).body == b"/fast"


async def test_cancelled_request_does_not_affect_next_request(serving, connected):
    async def respond(request):
        if request.target == "/slow":
            await asyncio.sleep(0.02)
        await request.respond(200, request.target.encode())

    async with serving(respond) as server:
        transport = connected(server.url)
        slow = asyncio.ensure_future(send(transport, "GET", "/slow"))
        await asyncio.sleep(0.01)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert (await send(transport, "GET", "/fast")).body == b"/fast"
        await asyncio.sleep(0.02)
        assert (await send(transport, "GET", "/fast")).body == b"/fast"


async def test_refused_connection_means_request_not_sent(serving, connected):
    async with serving(echo) as server:
        pass
    transport = connected(server.url)
    with pytest.raises(TransportError, match=str(server.port)) as raised:
        await send(transport, "POST", "/", b"x")
    assert not raised.value.request_sent
    with pytest.raises(TransportError) as raised:
        async with transport.stream(HttpRequest("GET", "/", headers=HEADERS)):
            pass
    assert not raised.value.request_sent


async def test_non_http_response_is_transport_error(serving, connected):
    async def respond(request):
        await request.send(b"SSH-2.0-OpenSSH_9.6\r\n")

    async with serving(respond) as server:
        with pytest.raises(TransportError):
            await send(connected(server.url), "GET", "/", timeout_seconds=1)


async def test_stream_delivers_chunks_until_server_ends_it(serving, connected):
    gate = asyncio.Event()

    async def respond(request):
        await request.begin_stream()
        await request.chunk(b"one\n")
        await gate.wait()
        await request.chunk(b"two\nthr")
        await request.chunk(b"ee\n")
        await request.chunk(b"")

    async with serving(respond) as server:
        transport = connected(server.url)
        async with transport.stream(HttpRequest("GET", "/watch", headers=HEADERS)) as stream:
            assert stream.status == 200
            assert await anext(stream.chunks) == b"one\n"
            gate.set()
            rest = b"".join([chunk async for chunk in stream.chunks])
        assert rest == b"two\nthree\n"
        await send(transport, "GET", "/watch")
        assert server.connections == 1


async def test_broken_stream_delivers_chunks_then_raises(serving, connected):
    async def respond(request):
        await request.begin_stream()
        await request.chunk(b"one\n")
        await asyncio.sleep(0.01)
        raise ConnectionAbortedError

    async with serving(respond) as server:
        chunks = []
        async with connected(server.url).stream(HttpRequest("GET", "/watch", headers=HEADERS)) as stream:
            chunks.append(await anext(stream.chunks))
            with pytest.raises(TransportError):
                await anext(stream.chunks)
        assert chunks == [b"one\n"]


async def test_leaving_stream_closes_connection(serving, connected):
    closed = asyncio.Event()

    async def respond(request):
        await request.begin_stream()
        try:
            while True:
                await request.chunk(b"x" * 1000)
                await asyncio.sleep(0.001)
        except ConnectionError:
            closed.set()
            raise

    async with serving(respond) as server:
        async with connected(server.url).stream(HttpRequest("GET", "/watch", headers=HEADERS)) as stream:
            await anext(stream.chunks)
        await asyncio.wait_for(closed.wait(), 60)


async def test_kernel_detects_connections_of_dead_peers(serving):
    async with serving(echo) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        connection = writer.get_extra_info("socket")
        assert not connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        asyncio_transport._detect_dead_peers(writer.transport)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        writer.close()
        await writer.wait_closed()


async def test_stream_has_no_line_or_size_limit(serving, connected):
    huge = b"x" * (5 << 20)

    async def respond(request):
        await request.begin_stream()
        for _ in range(4):
            await request.chunk(huge)
        await request.chunk(b"\n")
        await request.chunk(b"")

    async with serving(respond) as server:
        total = 0
        async with connected(server.url).stream(HttpRequest("GET", "/watch", headers=HEADERS)) as stream:
            async for chunk in stream.chunks:
                total += len(chunk)
                await asyncio.sleep(0)
        assert total == 4 * len(huge) + 1


async def test_stream_without_response_times_out(serving, connected, monkeypatch):
    for module in (asyncio_transport, aiohttp_transport):
        monkeypatch.setattr(module, "_RESPONSE_SECONDS", 0.01)

    async def respond(request):
        await asyncio.sleep(0.05)
        raise ConnectionAbortedError

    async with serving(respond) as server:
        transport = connected(server.url)
        with pytest.raises(TransportError, match="timed out"):
            async with transport.stream(HttpRequest("GET", "/watch", headers=HEADERS)):
                pass


async def test_large_bodies_in_both_directions(serving, connected):
    body = bytes(range(256)) * (1 << 12)

    async def respond(request):
        await request.respond(200, request.body)

    async with serving(respond) as server:
        response = await send(connected(server.url), "PUT", "/", body)
        assert response.body == body


async def test_line_breaks_in_target_or_headers_are_rejected(serving, connected):
    async with serving(echo) as server:
        transport = connected(server.url)
        with pytest.raises(ValueError, match=r"line break|header injection"):
            await transport.send(HttpRequest("GET", "/", headers={**HEADERS, "x": "a\r\nauthorization: b"}))
        assert server.requests == []


async def test_tls_verifies_certificate(serving, connected, certificate):
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(*certificate)
    async with serving(echo, server_side) as server:
        url = f"https://127.0.0.1:{server.port}"
        trusting = connected(url, ssl.create_default_context(cafile=certificate[0]))
        for _ in range(3):
            response = await send(trusting, "GET", "/x")
            assert response.body == b"GET /x "
        assert server.connections == 1
        with pytest.raises(TransportError, match="certificate verify failed") as raised:
            await send(connected(url, ssl.create_default_context()), "POST", "/x")
        assert not raised.value.request_sent


async def test_close_idle_connections_opens_new_ones(serving, connected):
    async with serving(echo) as server:
        transport = connected(server.url)
        await send(transport, "GET", "/")
        transport.close_idle_connections()
        await send(transport, "GET", "/")
        assert server.connections == 2


async def test_watch_reads_large_objects_split_anywhere(serving, connected, clock, rng):
    metadata = {"name": "a", "namespace": "n", "annotations": {"large": "x" * (5 << 20)}}
    line = json.dumps({"type": "MODIFIED", "object": {"kind": "Pod", "metadata": metadata}}).encode() + b"\n"

    async def respond(request):
        assert request.target.startswith("/api/v1/pods?watch=1")
        await request.begin_stream()
        for part in (line[:10], line[10 : 1 << 20], line[1 << 20 : -1], line[-1:] + line[:7], line[7:], line[:50]):
            await request.chunk(part)
        await request.chunk(b"")

    async with serving(respond) as server:
        client = ApiClient(connected(server.url), clock=clock, rng=rng)
        async with client.watch(PODS) as events:
            sizes = [len(event.object.metadata.annotations["large"]) async for event in events]
    assert sizes == [5 << 20, 5 << 20]  # without the last one, which was cut off


async def test_reads_survive_intermittent_failures(serving, connected, clock, rng, monkeypatch):
    monkeypatch.setattr(api_client, "_TIMEOUT_SECONDS", 0.5)
    turns = iter(["lost", "500", "429", "silent"])
    gave_up = asyncio.Event()

    async def respond(request):
        match next(turns, "ok"):
            case "lost":
                raise ConnectionAbortedError
            case "500":
                await request.respond(500, b"oops")
            case "429":
                await request.respond(429, b"busy", Retry_After="0")
            case "silent":
                await gave_up.wait()
            case "ok":
                await request.respond(200, b'{"kind":"Pod","metadata":{"name":"a"}}')

    async with serving(respond) as server:
        quick = RetryPolicy(base_seconds=0.001)
        client = ApiClient(connected(server.url), clock=clock, rng=rng, retries=quick)
        assert (await client.get(PODS, "a", "n")).metadata.name == "a"
        assert len(server.requests) >= 5  # more if a response took half a second
        gave_up.set()
