"""HTTP server on sockets: invalid, oversized, slow and pipelined requests, and clients that disconnect."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubeloop.devcluster.api.request import ApiRequest, Response
from kubeloop.devcluster.api.upgraded_connection import UpgradedConnection
from kubeloop.devcluster.server import http
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.server.http import HttpServer
from kubeloop.devcluster.server.listener import listening_socket
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects import resources
from support.apiserver.policy_cluster import CONFIG_MAPS, PolicyCluster
from support.apiserver.received import receive

A = b"Host: x\r\nAuthorization: Bearer t\r\n"
POST = b"POST /api/v1/namespaces HTTP/1.1\r\n" + A

BOMB = b"a: &a [x, x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (letter, letter, b", ".join([b"*%c" % (letter - 1)] * 9))
    for letter in range(ord("b"), ord("m"))
)


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    api = ApiServer(clock=SystemClock(), rng=random.Random(1), token="t")
    async with HttpServer(api) as server:
        accepting = await asyncio.get_running_loop().create_server(server, sock=listening_socket(0))
        yield accepting.sockets[0].getsockname()[1]
        accepting.close()


async def send(port: int, sent: bytes) -> bytes:
    """Return all bytes that the server sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        async with asyncio.timeout(60):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(b"\x00\x01garbage\r\n\r\n", 400, id="no HTTP"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, id="HTTP/2"),
        pytest.param(b"GET /api HTTP/1.1\r\nHost: x\r\nX: \x00\r\n\r\n", 400, id="NUL in a header"),
        pytest.param(b"FOO /api HTTP/1.1\r\nHost: x\r\n\r\n", 400, id="unknown method"),
        pytest.param(POST + b"Content-Length: -5\r\n\r\n", 400, id="negative length"),
        pytest.param(POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", 400, id="two lengths"),
        pytest.param(
            POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, id="length and chunks"
        ),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", 400, id="wrong chunk"),
        pytest.param(b"GET /api HTTP/1.1\r\nX: " + b"a" * 1_200_000, 431, id="endless header"),
        pytest.param(POST + b"Content-Length: 99999999\r\n\r\n", 413, id="announced too large"),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\n\r\n400000\r\n" + b"x" * (4 << 20), 413, id="chunks too large"
        ),
        pytest.param(b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 403, id="no token"),
        pytest.param(POST + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}", 422, id="nameless namespace"),
        pytest.param(POST + b"Connection: close\r\nContent-Length: 3\r\n\r\n\xff\xfe\x00", 400, id="no UTF-8"),
        pytest.param(
            POST + b"Connection: close\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000, 400, id="deep JSON"
        ),
    ],
)
async def test_invalid_request_gets_4xx_and_server_remains_available(sent, code):
    async with serving() as port:
        response = await send(port, sent)
        assert response.startswith(b"HTTP/1.1 %d " % code), response[:300]
        if code in (403, 413, 422):
            assert json.loads(response.partition(b"\r\n\r\n")[2])["kind"] == "Status"
        response = await send(port, b"GET /version HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 200 OK")


async def test_pipelined_requests_are_answered_in_order():
    get = b"GET %s HTTP/1.1\r\n" + A
    sent = b"".join(get % path + b"\r\n" for path in (b"/api", b"/nowhere", b"/version") * 20)
    async with serving() as port:
        response = await send(port, sent + get % b"/api" + b"Connection: close\r\n\r\n")
    codes = re.findall(rb"HTTP/1\.1 (\d+) ", response)
    assert codes == [b"200", b"404", b"200"] * 20 + [b"200"]


async def test_connection_with_slow_header_is_closed(monkeypatch):
    monkeypatch.setattr(http, "_HEAD_SECONDS", 0.2)
    monkeypatch.setattr(http, "_SWEEP_SECONDS", 0.1)
    async with serving() as port:
        assert await send(port, b"GET /version HT") == b""


async def test_not_modified_response_has_no_content_length():
    """A Content-Length of 0 would mean that the document is empty."""
    payload = b"GET /openapi/v3/version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nConnection: close\r\n%s\r\n"
    async with serving() as port:
        etag = re.search(rb"Etag: (.*)\r\n", await send(port, payload % b""))
        assert etag is not None
        again = await send(port, payload % (b"If-None-Match: %s\r\n" % etag[1]))
    assert again.startswith(b"HTTP/1.1 304 Not Modified\r\n")
    assert b"Content-Length" not in again
    assert again.endswith(b"\r\n\r\n")


async def test_expect_100_continue_is_answered():
    async with serving() as port:
        response = await send(port, POST + b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
    assert response.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 422 ")


class DeadTransport(asyncio.Transport):
    """A transport of uvloop after the client has reset its connection right after the request."""

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        """Do nothing."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")


class Wire(DeadTransport):
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Discard it."""


class SharedWire(Wire):
    """The wire of one connection; appends what is sent to a list that several connections share."""

    def __init__(self, sent: list[tuple[str, bytes]], name: str) -> None:
        super().__init__()
        self._sent, self._name = sent, name

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._sent.append((self._name, bytes(data)))


async def responses_with_a_watch(resource: bytes, *requests: bytes) -> list[tuple[str, bytes]]:
    """Send requests, each after the responses to the previous one, while a watch is open.

    Returns the types of the watch's events as ("watch", type) and statuses as ("client", status), in the order sent.
    """
    sent: list[tuple[str, bytes]] = []
    api = ApiServer(clock=SystemClock(), rng=random.Random(1), token="t")
    start = api.store.revision
    async with HttpServer(api, events_first=True) as server:
        watch, client = server(), server()
        watch.connection_made(SharedWire(sent, "watch"))
        client.connection_made(SharedWire(sent, "client"))
        try:
            watch.data_received(b"GET /api/v1/%b?watch=1&resourceVersion=%d HTTP/1.1\r\n%b\r\n" % (resource, start, A))
            await asyncio.sleep(0)
            expected = 0
            for request in requests:
                client.data_received(request)
                expected += request.count(b"\r\n\r\n")
                async with asyncio.timeout(60):
                    while b"".join(data for name, data in sent if name == "client").count(b"HTTP/1.1 ") < expected:
                        await asyncio.sleep(0)
        finally:
            client.connection_lost(None)
            watch.connection_lost(None)
    pattern = re.compile(rb'"type":"([A-Z]+)"|HTTP/1.1 (\d+)')
    found = [(name, match[1] or match[2]) for name, data in sent for match in pattern.finditer(data)]
    assert found.pop(0) == ("watch", b"200")
    return found


def write_request(path: bytes, body: bytes = b"", method: bytes = b"POST") -> bytes:
    return b"%b /api/v1/%b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (method, path, A, len(body), body)


CONFIG_MAP = write_request(b"namespaces/default/configmaps", b'{"metadata": {"name": "a"}}')


async def test_events_of_a_write_are_sent_before_its_response():
    sent = await responses_with_a_watch(b"configmaps", CONFIG_MAP)
    assert sent == [("watch", b"ADDED"), ("client", b"201")]


async def test_events_of_a_write_that_waits_are_sent_before_its_response():
    pod = b'{"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}'
    account = write_request(b"namespaces/default/serviceaccounts", b'{"metadata": {"name": "default"}}')
    pods = b"namespaces/default/pods"
    requests = account, write_request(pods, pod), write_request(pods + b"/a", method=b"DELETE")
    sent = await responses_with_a_watch(b"pods", *requests)
    assert sent[-3:] == [("watch", b"MODIFIED"), ("watch", b"DELETED"), ("client", b"200")]


@pytest.mark.parametrize(
    ("behind", "statuses"),
    [
        pytest.param(b"GET /version HTTP/1.1\r\n" + A + b"\r\n", [b"201", b"200"], id="request"),
        pytest.param(b"garbage\r\n\r\n", [b"201", b"400"], id="no HTTP"),
    ],
)
async def test_response_to_a_write_precedes_that_of_a_pipelined_request(behind: bytes, statuses: list[bytes]):
    sent = await responses_with_a_watch(b"configmaps", CONFIG_MAP + behind)
    assert [status for name, status in sent if name == "client"] == statuses


@pytest.mark.parametrize("path", [b"/version", b"/api/v1/pods?watch=1"])
async def test_client_that_disconnects_before_response_is_no_error(path, caplog):
    async with HttpServer(ApiServer(clock=SystemClock(), rng=random.Random(1), token="t")) as server:
        connection = server()
        connection.connection_made(DeadTransport())
        connection.data_received(b"GET %b HTTP/1.1\r\n%b\r\n" % (path, A))
        async with asyncio.timeout(60):
            while server.connections:
                await asyncio.sleep(0)
    assert not caplog.records


async def test_nothing_is_stored_for_a_client_that_disconnects_during_slow_work():
    cluster = PolicyCluster()
    expensive = "lists.range(200).all(x, lists.range(200).all(y, x != y || x == y))"
    cluster.create_policy({"validations": [{"expression": expensive}]})
    body = b'{"metadata": {"name": "a"}}'
    post = b"POST %b HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (CONFIG_MAPS.encode(), len(body), body)
    async with HttpServer(cluster.server) as server:
        connection = server()
        connection.connection_made(DeadTransport())
        connection.data_received(post)
        (task,) = [connection.task for connection in server.connections]
        assert task is not None
        await asyncio.sleep(0)
        revision = cluster.server.store.revision
        connection.connection_lost(None)
        with pytest.raises(asyncio.CancelledError):
            await task
    assert cluster.server.store.revision == revision
    assert cluster.server.store.list(resources.CONFIG_MAPS, "default") == []


async def test_idle_connection_is_removed_after_timeout(monkeypatch):
    monkeypatch.setattr(http, "_IDLE_SECONDS", 0.01)
    monkeypatch.setattr(http, "_SWEEP_SECONDS", 0.01)
    async with HttpServer(ApiServer(clock=SystemClock(), rng=random.Random(1), token="t")) as server:
        server().connection_made(DeadTransport())
        async with asyncio.timeout(60):
            while server.connections:
                await asyncio.sleep(0.01)


async def test_closed_connection_is_freed_without_garbage_collection():
    async with HttpServer(ApiServer(clock=SystemClock(), rng=random.Random(1), token="t")) as server:
        connection = server()
        connection.connection_made(DeadTransport())
        reference = weakref.ref(connection)
        connection.connection_lost(None)
        del connection
        assert reference() is None


async def test_memory_is_returned_after_many_connections_or_handshakes_have_ended(monkeypatch):
    monkeypatch.setattr(http, "_TRIM_CONNECTIONS", 3)
    monkeypatch.setattr(http, "_SWEEP_SECONDS", 0.01)
    returned: asyncio.Queue[int] = asyncio.Queue()
    monkeypatch.setattr(http, "return_freed_memory", lambda: returned.put_nowait(len(connections)))
    async with (
        HttpServer(ApiServer(clock=SystemClock(), rng=random.Random(1), token="t")) as server,
        asyncio.timeout(60),
    ):
        connections = [server() for _ in range(5)]
        del connections[2:]
        assert await returned.get() == 2
        connections.append(server())
        connections.clear()
        assert await returned.get() == 0
    assert returned.empty()


@pytest.mark.parametrize(
    "payload",
    [
        b"GET /api/v1/namespaces HTTP/1.1\r\n" + A + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"CONNECT /api/v1/namespaces HTTP/1.1\r\n" + A + b"\r\n",
    ],
)
async def test_upgrade_request_is_answered_and_connection_closed(payload: bytes):
    async with serving() as port:
        response = await send(port, payload)  # waits until the server closes the connection
    assert response.startswith(b"HTTP/1.1 ")
    assert b"\r\nConnection: close\r\n" in response


async def test_upgraded_connection_receives_all_data():
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(connection: UpgradedConnection) -> None:
        while data := await connection.receive():
            received.put_nowait(data)

    class UpgradingServer:
        clock = SystemClock()

        def respond(self, request: ApiRequest) -> Response:
            return Response(101, b"", upgrade=serve)

    async with HttpServer(UpgradingServer()) as server, asyncio.timeout(60):
        connection = server()
        connection.connection_made(Wire())
        receive(connection, b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: a\r\n\r\n")
        await asyncio.sleep(0)
        receive(connection, b"ab")
        receive(connection, b"cd")
        data = [await received.get(), await received.get()]
        connection.connection_lost(None)
    assert data == [b"ab", b"cd"]


@pytest.mark.parametrize("compress", [True, False])
async def test_large_response_is_compressed_if_enabled(compress):
    api = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None)
    async with HttpServer(api, compress=compress) as server:
        accepting = await asyncio.get_running_loop().create_server(server, sock=listening_socket(0))
        port = accepting.sockets[0].getsockname()[1]
        headers = b"Host: x\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
        response = await send(port, b"GET /openapi/v2 HTTP/1.1\r\n" + headers)
        accepting.close()
    assert (b"Content-Encoding: gzip" in response) == compress
