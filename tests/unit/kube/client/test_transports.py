"""Both transports, against a server that behaves and misbehaves."""

from __future__ import annotations

import asyncio
import json
import ssl

import pytest

from kubeloop.kube.client.aiohttp_transport import AiohttpTransport
from kubeloop.kube.client.api_client import Client
from kubeloop.kube.client.asyncio_transport import AsyncioTransport
from kubeloop.kube.client.endpoint import endpoint_from_url
from kubeloop.kube.client.retries import RetryPolicy
from kubeloop.kube.client.transport import TransportError
from kubeloop.kube.objects.resources import PODS

HEADERS = {"accept": "application/json", "user-agent": "test"}


@pytest.fixture(params=[AsyncioTransport, AiohttpTransport], ids=["asyncio", "aiohttp"])
async def connected(request):
    """connected(url, tls=..., **options): a Transport to it, closed after the test."""
    made = []

    def make(url: str, tls: ssl.SSLContext | None = None, **options):
        made.append(request.param(endpoint_from_url(url, tls), **options))
        return made[-1]

    yield make
    for transport in made:
        await transport.close()


async def echo(request):
    await request.answer(200, b"%s %s %s" % (request.method.encode(), request.target.encode(), request.body))


async def test_a_request_arrives_as_it_was_sent_and_its_answer_as_it_was_given(serving, connected):
    async def answer(request):
        await request.answer(201, b'{"a":1}', Retry_After="7", X_Other="b")

    async with serving(answer) as server:
        transport = connected(server.url + "/prefix/")
        got = await transport.request("POST", "/api/v1/pods?x=%2F%3D", headers=HEADERS, body=b'{"b":2}')
        assert (got.status, got.body, got.headers["retry-after"], got.headers["x-other"]) == (201, b'{"a":1}', "7", "b")
        (request,) = server.requests
        assert (request.method, request.target, request.body) == ("POST", "/prefix/api/v1/pods?x=%2F%3D", b'{"b":2}')
        assert request.headers["host"] == f"127.0.0.1:{server.port}"
        sent = {name: request.headers.get(name) for name in (*HEADERS, "content-length", "accept-encoding")}
        assert sent == {**HEADERS, "content-length": "7", "accept-encoding": None}


async def test_connections_are_kept_alive_and_taken_again(serving, connected):
    async with serving(echo) as server:
        transport = connected(server.url)
        for _ in range(5):
            assert (await transport.request("GET", "/a", headers=HEADERS)).body == b"GET /a "
        assert server.connections == 1
        await asyncio.gather(*(transport.request("PUT", f"/{n}", headers=HEADERS, body=b"x") for n in range(4)))
        assert server.connections == 4


async def test_answers_may_come_in_pieces_chunks_or_end_with_the_connection(serving, connected):
    async def answer(request):
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

    async with serving(answer) as server:
        transport = connected(server.url)
        for target in ("/pieces", "/chunks", "/close", "/pieces"):
            assert (await transport.request("GET", target, headers=HEADERS)).body == b"abcde"
        assert server.connections == 2


async def test_answers_without_a_body_leave_the_connection_usable(serving, connected):
    async def answer(request):
        if request.target == "/none":
            await request.send(b"HTTP/1.1 204 No Content\r\n\r\n")
        else:
            await request.answer(200)

    async with serving(answer) as server:
        transport = connected(server.url)
        for target, status in (("/none", 204), ("/empty", 200), ("/none", 204)):
            got = await transport.request("DELETE", target, headers=HEADERS)
            assert (got.status, got.body) == (status, b"")
        assert server.connections == 1


async def test_interim_answers_are_passed_over(serving, connected):
    async def answer(request):
        await request.send(b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n")
        await request.answer(200, b"ok")

    async with serving(answer) as server:
        got = await connected(server.url).request("GET", "/", headers=HEADERS)
        assert (got.status, got.body) == (200, b"ok")


async def test_a_read_on_a_kept_alive_connection_that_the_server_closed_is_sent_again(serving, connected):
    async def answer(request):
        if request.connection == 1 and request.target == "/second":
            raise ConnectionAbortedError  # as if it closed the idle connection just when our request was on its way
        await echo(request)

    async with serving(answer) as server:
        transport = connected(server.url)
        await transport.request("GET", "/first", headers=HEADERS)
        assert (await transport.request("GET", "/second", headers=HEADERS)).body == b"GET /second "
        assert server.connections == 2


async def test_a_create_on_a_kept_alive_connection_that_is_lost_is_not_sent_again(serving, connected):
    async def answer(request):
        if request.target == "/second":
            raise ConnectionAbortedError
        await echo(request)

    async with serving(answer) as server:
        transport = connected(server.url)
        await transport.request("POST", "/first", headers=HEADERS, body=b"x")
        with pytest.raises(TransportError) as lost:
            await transport.request("POST", "/second", headers=HEADERS, body=b"x")
        assert lost.value.request_sent
        assert [request.target for request in server.requests] == ["/first", "/second"]


async def test_connections_the_server_closed_while_idle_are_not_taken(serving, connected):
    async with serving(echo) as server:
        transport = connected(server.url)
        await transport.request("POST", "/", headers=HEADERS, body=b"1")
        server.close_connections()
        await asyncio.sleep(0.01)
        assert (await transport.request("POST", "/", headers=HEADERS, body=b"2")).body == b"POST / 2"
        assert server.connections == 2


async def test_a_body_that_breaks_off_is_no_answer(serving, connected):
    async def answer(request):
        if request.target == "/length":
            await request.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        else:
            await request.begin_stream()
            await request.chunk(b"abc")
        raise ConnectionAbortedError

    async with serving(answer) as server:
        transport = connected(server.url)
        for target in ("/length", "/chunks"):
            with pytest.raises(TransportError) as lost:
                await transport.request("GET", target, headers=HEADERS)
            assert lost.value.request_sent


async def test_no_answer_in_time_is_an_error_and_the_connection_is_given_up(serving, connected):
    async def answer(request):
        if request.target == "/slow":
            await asyncio.sleep(0.05)
        await request.answer(200, request.target.encode())

    async with serving(answer) as server:
        transport = connected(server.url)
        with pytest.raises(TransportError, match="timed out") as late:
            await transport.request("GET", "/slow", headers=HEADERS, timeout_seconds=0.01)
        assert late.value.request_sent
        assert (await transport.request("GET", "/fast", headers=HEADERS, timeout_seconds=60)).body == b"/fast"


async def test_a_cancelled_request_leaves_nothing_behind_for_the_next_one(serving, connected):
    async def answer(request):
        if request.target == "/slow":
            await asyncio.sleep(0.02)
        await request.answer(200, request.target.encode())

    async with serving(answer) as server:
        transport = connected(server.url)
        slow = asyncio.ensure_future(transport.request("GET", "/slow", headers=HEADERS))
        await asyncio.sleep(0.01)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert (await transport.request("GET", "/fast", headers=HEADERS)).body == b"/fast"
        await asyncio.sleep(0.02)
        assert (await transport.request("GET", "/fast", headers=HEADERS)).body == b"/fast"


async def test_a_request_that_found_no_server_was_not_sent(serving, connected):
    async with serving(echo) as server:
        pass
    transport = connected(server.url)
    with pytest.raises(TransportError, match=str(server.port)) as refused:
        await transport.request("POST", "/", headers=HEADERS, body=b"x")
    assert not refused.value.request_sent
    with pytest.raises(TransportError) as refused:
        async with transport.stream("GET", "/", headers=HEADERS):
            pass
    assert not refused.value.request_sent


async def test_what_is_not_http_is_an_error(serving, connected):
    async def answer(request):
        await request.send(b"SSH-2.0-OpenSSH_9.6\r\n")

    async with serving(answer) as server:
        with pytest.raises(TransportError):
            await connected(server.url).request("GET", "/", headers=HEADERS, timeout_seconds=1)


async def test_a_stream_delivers_what_comes_and_ends_when_the_server_ends_it(serving, connected):
    gate = asyncio.Event()

    async def answer(request):
        await request.begin_stream()
        await request.chunk(b"one\n")
        await gate.wait()
        await request.chunk(b"two\nthr")
        await request.chunk(b"ee\n")
        await request.chunk(b"")

    async with serving(answer) as server:
        transport = connected(server.url)
        async with transport.stream("GET", "/watch", headers=HEADERS) as stream:
            assert stream.status == 200
            assert await anext(stream.chunks) == b"one\n"
            gate.set()
            rest = b"".join([chunk async for chunk in stream.chunks])
        assert rest == b"two\nthree\n"
        await transport.request("GET", "/watch", headers=HEADERS)
        assert server.connections == 1


async def test_a_stream_that_breaks_off_delivers_what_came_and_then_fails(serving, connected):
    async def answer(request):
        await request.begin_stream()
        await request.chunk(b"one\n")
        await asyncio.sleep(0.01)
        raise ConnectionAbortedError

    async with serving(answer) as server:
        got = []
        async with connected(server.url).stream("GET", "/watch", headers=HEADERS) as stream:
            got.append(await anext(stream.chunks))
            with pytest.raises(TransportError):
                await anext(stream.chunks)
        assert got == [b"one\n"]


async def test_leaving_a_stream_closes_its_connection(serving, connected):
    closed = asyncio.Event()

    async def answer(request):
        await request.begin_stream()
        try:
            while True:
                await request.chunk(b"x" * 1000)
                await asyncio.sleep(0.001)
        except ConnectionError:
            closed.set()
            raise

    async with serving(answer) as server:
        async with connected(server.url).stream("GET", "/watch", headers=HEADERS) as stream:
            await anext(stream.chunks)
        await asyncio.wait_for(closed.wait(), 60)


async def test_a_stream_has_no_limit_of_line_or_size(serving, connected):
    huge = b"x" * (5 << 20)

    async def answer(request):
        await request.begin_stream()
        for _ in range(4):
            await request.chunk(huge)
        await request.chunk(b"\n")
        await request.chunk(b"")

    async with serving(answer) as server:
        total = 0
        async with connected(server.url).stream("GET", "/watch", headers=HEADERS) as stream:
            async for chunk in stream.chunks:
                total += len(chunk)
                await asyncio.sleep(0)
        assert total == 4 * len(huge) + 1


async def test_a_stream_whose_answer_does_not_begin_is_an_error(serving, connected):
    async def answer(request):
        await asyncio.sleep(0.05)
        raise ConnectionAbortedError

    async with serving(answer) as server:
        transport = connected(server.url, response_seconds=0.01)
        with pytest.raises(TransportError, match="timed out"):
            async with transport.stream("GET", "/watch", headers=HEADERS):
                pass


async def test_large_bodies_pass_both_ways(serving, connected):
    body = bytes(range(256)) * (1 << 12)

    async def answer(request):
        await request.answer(200, request.body)

    async with serving(answer) as server:
        got = await connected(server.url).request("PUT", "/", headers=HEADERS, body=body)
        assert got.body == body


async def test_nobody_can_smuggle_in_a_header_or_a_request(serving, connected):
    async with serving(echo) as server:
        transport = connected(server.url)
        with pytest.raises(ValueError, match=r"line break|header injection"):
            await transport.request("GET", "/", headers={**HEADERS, "x": "a\r\nauthorization: b"})
        assert server.requests == []


async def test_tls_is_spoken_and_the_certificate_is_checked(serving, connected, certificate):
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(*certificate)
    async with serving(echo, server_side) as server:
        url = f"https://127.0.0.1:{server.port}"
        trusting = connected(url, ssl.create_default_context(cafile=certificate[0]))
        for _ in range(3):
            got = await trusting.request("GET", "/x", headers=HEADERS)
            assert got.body == b"GET /x "
        assert server.connections == 1
        with pytest.raises(TransportError, match="certificate verify failed") as refused:
            await connected(url, ssl.create_default_context()).request("POST", "/x", headers=HEADERS)
        assert not refused.value.request_sent


async def test_new_connections_are_made_after_idle_ones_were_forgotten(serving, connected):
    async with serving(echo) as server:
        transport = connected(server.url)
        await transport.request("GET", "/", headers=HEADERS)
        transport.close_idle_connections()
        await transport.request("GET", "/", headers=HEADERS)
        assert server.connections == 2


async def test_a_watch_reads_objects_of_megabytes_in_lines_cut_anywhere(serving, connected, clock, rng):
    metadata = {"name": "a", "namespace": "n", "annotations": {"large": "x" * (5 << 20)}}
    line = json.dumps({"type": "MODIFIED", "object": {"kind": "Pod", "metadata": metadata}}).encode() + b"\n"

    async def answer(request):
        assert request.target.startswith("/api/v1/pods?watch=1")
        await request.begin_stream()
        for part in (line[:10], line[10 : 1 << 20], line[1 << 20 : -1], line[-1:] + line[:7], line[7:], line[:50]):
            await request.chunk(part)
        await request.chunk(b"")

    async with serving(answer) as server:
        client = Client(connected(server.url), clock=clock, rng=rng)
        async with client.watch(PODS) as events:
            sizes = [len(event.object.metadata.annotations["large"]) async for event in events]
    assert sizes == [5 << 20, 5 << 20]  # the last, cut off, is none


async def test_a_server_that_fails_now_and_then_is_not_noticed_by_who_reads(serving, connected, clock, rng):
    turns = iter(["lost", "500", "429", "silent"])
    gave_up = asyncio.Event()

    async def answer(request):
        match next(turns, "ok"):
            case "lost":
                raise ConnectionAbortedError
            case "500":
                await request.answer(500, b"oops")
            case "429":
                await request.answer(429, b"busy", Retry_After="0")
            case "silent":
                await gave_up.wait()
            case "ok":
                await request.answer(200, b'{"kind":"Pod","metadata":{"name":"a"}}')

    async with serving(answer) as server:
        quick = RetryPolicy(base_seconds=0.001)
        client = Client(connected(server.url), clock=clock, rng=rng, timeout_seconds=0.5, retries=quick)
        assert (await client.get(PODS, "a", "n")).metadata.name == "a"
        assert len(server.requests) >= 5  # more, where an answer took half a second
        gave_up.set()
