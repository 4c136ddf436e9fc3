"""Negotiation and messages of WebSockets on the API server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from kubeloop.devcluster.api.request import ApiRequest, Response
from kubeloop.devcluster.handlers.containers.websocket import (
    WebSocket,
    accept_websocket,
    watch_over_websocket,
    websocket_protocol,
)
from kubeloop.devcluster.kubelet.containers.container_answers import (
    ContainerAnswers,
    Entry,
    ExecAnswer,
    LogAnswer,
    Rule,
)
from kubeloop.kube.objects.resources import PODS
from support.apiserver.stream_server import stream_server

CAT = ContainerAnswers(execs=[Rule((Entry(ExecAnswer(("cat",))),))])
ORIGIN = "http://localhost"
EXEC = "exec?container=web&command=x&stdin=true&stdout=true"


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, "Upgrade request required"),
        (
            {"Upgrade": "SPDY/3.1", "Connection": "Upgrade"},
            "SPDY is not supported: use a client that connects by WebSoc",
        ),
        (
            {
                "Upgrade": "websocket",
                "Connection": "Upgrade",
                "Sec_WebSocket_Key": "eA==",
                "Sec_WebSocket_Protocol": "x",
            },
            "requested protocol(s) are not supported: [x]; server supports: [v5.channel.k8s.io v4.channel.k8s.io "
            "v4.base64.channel.k8s.io channel.k8s.io base64.channel.k8s.io]",
        ),
    ],
    ids=["no upgrade", "SPDY", "another protocol"],
)
async def test_other_upgrade_is_refused(headers: dict[str, str], message: str):
    async with stream_server(CAT) as server:
        status, text = await server.get(EXEC, **headers)
        assert (status, message in text) == (400, True), text


async def test_upgrade_response_has_key_of_rfc_6455():
    async def serve(websocket: WebSocket) -> None:
        raise AssertionError("the connection is not served here")

    headers = {
        "upgrade": "WebSocket",
        "connection": "Upgrade",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-protocol": "a, b",
    }
    request = ApiRequest.of("GET", "/x", headers)
    response = accept_websocket(request, websocket_protocol(request, ["b"]), serve)
    assert response.status == 101
    assert dict(response.headers)["Sec-WebSocket-Accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert dict(response.headers)["Sec-WebSocket-Protocol"] == "b"


async def test_first_supported_protocol_of_client_is_chosen():
    async with stream_server(CAT) as server, server.connect(EXEC, "v6", "v4.channel.k8s.io", "v5.channel.k8s.io") as ws:
        assert ws.protocol == "v4.channel.k8s.io"


async def test_ping_is_answered_and_fragments_are_joined():
    async with stream_server(CAT) as server, server.connect(EXEC, "v5.channel.k8s.io") as ws:
        assert await ws.receive_bytes() == b"\x01"
        await ws.ping(b"hello")
        await ws.send_bytes(b"\x00" + b"x" * 100_000)
        received = b""
        while len(received) < 100_000:
            message = await ws.receive_bytes()
            assert message[:1] == b"\x01"
            received += message[1:]
        assert received == b"x" * 100_000


async def test_too_large_message_closes_connection():
    async with stream_server(CAT) as server, server.connect(EXEC, "v5.channel.k8s.io") as ws:
        assert await ws.receive_bytes() == b"\x01"
        await ws.send_bytes(bytes(9 << 20))
        message = await ws.receive()
        assert (message.type, ws.close_code) == (aiohttp.WSMsgType.CLOSE, 1009)


# --- watches and logs -------------------------------------------------------------------------------------------------


async def test_watch_sends_one_event_per_text_message():
    async with stream_server() as server:
        url, options = f"{server.url}/api/v1/pods?watch=1", {"labelSelector": ""}
        async with aiohttp.ClientSession() as session, session.ws_connect(url, params=options, origin=ORIGIN) as ws:
            message = await ws.receive()
            event = json.loads(message.data)
            assert (message.type, event["type"], event["object"]["kind"]) == (aiohttp.WSMsgType.TEXT, "ADDED", "Pod")
            pod = {**event["object"], "metadata": {**event["object"]["metadata"], "labels": {"a": "b"}}}
            server.api.store.update(PODS, pod)
            assert json.loads(await ws.receive_str())["type"] == "MODIFIED"


async def test_watch_in_protobuf_sends_binary_messages():
    headers = {"Accept": "application/vnd.kubernetes.protobuf;stream=watch"}
    async with (
        stream_server() as server,
        aiohttp.ClientSession(headers=headers) as session,
        session.ws_connect(f"{server.url}/api/v1/pods?watch=1", origin=ORIGIN) as ws,
    ):
        assert b"ADDED" in await ws.receive_bytes()


async def test_watch_ends_with_its_timeout():
    async with (
        stream_server() as server,
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{server.url}/api/v1/nodes?watch=1&timeoutSeconds=1", origin=ORIGIN) as ws,
    ):
        types = [json.loads(message.data)["type"] async for message in ws]
    assert types == ["ADDED"]


@pytest.mark.parametrize(
    ("protocol", "expected"), [("binary.k8s.io", b"hello\n"), ("base64.binary.k8s.io", "aGVsbG8K"), ("", b"hello\n")]
)
async def test_log_is_sent_in_messages_of_the_protocol(protocol: str, expected: bytes | str):
    answers = ContainerAnswers(logs=[Rule((Entry(LogAnswer(text="hello\n")),))])
    async with (
        stream_server(answers) as server,
        server.connect("log?container=web", *([protocol] if protocol else [])) as ws,
    ):
        assert (ws.protocol or "") == protocol
        assert [message.data async for message in ws] == [expected]


async def test_log_of_another_protocol_is_refused():
    with pytest.raises(aiohttp.WSServerHandshakeError):
        async with stream_server() as server, server.connect("log?container=web", "channel.k8s.io"):
            pass


# --- handshakes of watches and logs -----------------------------------------------------------------------------------

WATCH, LOG = "/api/v1/pods?watch=1", "/api/v1/namespaces/default/pods/p/log?container=web"
HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Origin": ORIGIN,
}


@asynccontextmanager
async def handshake(path: str, headers: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
    """Send a valid handshake with changed headers."""
    async with (
        stream_server() as server,
        aiohttp.ClientSession(headers={**HANDSHAKE, **headers}) as session,
        session.get(server.url + path) as response,
    ):
        yield response


@pytest.mark.parametrize("path", [WATCH, LOG])
async def test_handshake_of_another_version_is_refused(path: str):
    async with handshake(path, {"Sec-WebSocket-Version": "8"}) as response:
        assert (response.status, await response.text()) == (400, "missing or bad WebSocket Version")
        assert response.headers["Sec-WebSocket-Version"] == "13"


@pytest.mark.parametrize("path", [WATCH, LOG])
async def test_handshake_without_key_is_refused(path: str):
    async with handshake(path, {"Sec-WebSocket-Key": ""}) as response:
        assert (response.status, await response.text()) == (400, "mismatch challenge/response")


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (WATCH, {"Origin": ""}, 403),
        (WATCH, {"Origin": "null"}, 403),
        (WATCH, {"Sec-WebSocket-Protocol": "a, b"}, 400),
        (LOG, {"Sec-WebSocket-Protocol": "channel.k8s.io"}, 403),
    ],
)
async def test_handshake_of_wrong_origin_or_protocol_is_refused(path: str, headers: dict[str, str], status: int):
    async with handshake(path, headers) as response:
        assert (response.status, await response.read()) == (status, b"")


async def test_log_needs_no_origin():
    headers = {"Origin": "", "Sec-WebSocket-Protocol": "channel.k8s.io, binary.k8s.io"}
    async with handshake(LOG, headers) as response:
        assert (response.status, response.headers["Sec-WebSocket-Protocol"]) == (101, "binary.k8s.io")


async def test_watch_without_connection_upgrade_is_a_stream():
    async with handshake(WATCH, {"Connection": "close"}) as response:
        assert (response.status, response.headers["Transfer-Encoding"]) == (200, "chunked")
        assert json.loads(await response.content.readline())["type"] == "ADDED"


async def test_upgrade_response_has_no_cache_control():
    async with handshake(WATCH, {}) as response:
        assert (response.status, "Cache-Control" in response.headers) == (101, False)


def test_refused_handshake_opens_no_watch():
    def open_watch() -> Response:
        raise AssertionError("the watch is not opened")

    request = ApiRequest.of("GET", "/api/v1/pods?watch=1", {**HANDSHAKE, "Origin": ""})
    assert watch_over_websocket(request, open_watch).status == 403


async def test_watch_of_a_future_revision_sends_an_error_message():
    options = "&resourceVersion=99999999&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    async with (
        stream_server() as server,
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{server.url}{WATCH}{options}&allowWatchBookmarks=true", origin=ORIGIN) as ws,
    ):
        event = json.loads(await ws.receive_str())
    assert (event["type"], event["object"]["kind"]) == ("ERROR", "Status")
