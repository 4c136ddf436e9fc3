"""Negotiation and messages of WebSockets on the API server."""

from __future__ import annotations

import json

import aiohttp
import pytest

from kubeloop.devcluster.api.request import Request
from kubeloop.devcluster.handlers.containers.websocket import WebSocket, accept_websocket, websocket_protocol
from kubeloop.devcluster.kubelet.container_answers import ContainerAnswers, Entry, ExecAnswer, LogAnswer, Rule
from kubeloop.kube.objects.resources import PODS
from support.apiserver.stream_server import stream_server

CAT = ContainerAnswers(execs=[Rule((Entry(ExecAnswer(("cat",))),))])
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
    request = Request.of("GET", "/x", headers)
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
        async with aiohttp.ClientSession() as session, session.ws_connect(url, params=options) as ws:
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
        session.ws_connect(f"{server.url}/api/v1/pods?watch=1") as ws,
    ):
        assert b"ADDED" in await ws.receive_bytes()


async def test_watch_ends_with_its_timeout():
    async with (
        stream_server() as server,
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{server.url}/api/v1/nodes?watch=1&timeoutSeconds=1") as ws,
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
