"""WebSocket connections of exec, attach and port-forward requests, logs and watches. Imported with the first of them.

wsproto does the framing (RFC 6455). Source of the negotiation: streaming/pkg/httpstream/wsstream of v1.36, and
golang.org/x/net/websocket.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from typing import cast

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Message, Ping, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import JSON_TYPE, ApiRequest, Response
from kubeloop.devcluster.api.upgraded_connection import UpgradedConnection
from kubeloop.devcluster.handlers.containers.local_commands import concurrent

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_MAX_MESSAGE_BYTES = 8 << 20
_ZERO = ord("0")
V4 = "v4.channel.k8s.io"
CHANNEL_PROTOCOLS = (V4, "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io", "")
"""Protocols whose messages begin with a channel; "" is that of a client that names none."""
LOG_PROTOCOLS = ("binary.k8s.io", "base64.binary.k8s.io", "")
_VERSION = "13"
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|/")
"""Start of a URI that is absolute, or of an absolute path."""


class WebSocket:
    """Messages over an upgraded connection. in_base64: as text, of the channel's digit and data in base64."""

    def __init__(self, connection: UpgradedConnection, *, in_base64: bool = False) -> None:
        self._connection = connection
        self._in_base64 = in_base64
        self._frames = Connection(ConnectionType.SERVER)
        self._is_closed = False

    async def receive(self) -> bytes | None:
        """Wait for a message; None when the client has closed the connection or broken the protocol."""
        parts: list[bytes] = []
        size = 0
        while not self._is_closed:
            try:
                for event in self._frames.events():
                    match event:
                        case Ping():
                            await self._send(event.response())
                        case CloseConnection():
                            await self._end(event.response())
                            return None
                        case BytesMessage() | TextMessage():
                            data = event.data.encode() if isinstance(event.data, str) else bytes(event.data)
                            size += len(data)
                            if size > _MAX_MESSAGE_BYTES:
                                await self._end(CloseConnection(CloseReason.MESSAGE_TOO_BIG))
                                return None
                            parts.append(data)
                            if event.message_finished:
                                return self._decoded(b"".join(parts))
                received = await self._connection.receive()
                self._frames.receive_data(received or None)
                self._is_closed = not received
            except RemoteProtocolError as error:
                await self._end(error.event_hint or CloseConnection(CloseReason.PROTOCOL_ERROR))
            except ValueError:  # not in base64
                await self._end(CloseConnection(CloseReason.PROTOCOL_ERROR))
        return None

    def _decoded(self, message: bytes) -> bytes:
        """Return a message of the client, with the channel's number. Raises ValueError if it is not in base64."""
        if not self._in_base64 or not message:
            return message
        return bytes((max(message[0] - _ZERO, 0),)) + base64.b64decode(message[1:], validate=True)

    async def send(self, message: bytes) -> None:
        """Send a message. Raises ConnectionError when the client has disconnected."""
        if self._in_base64:
            text = chr(_ZERO + message[0]) + base64.b64encode(message[1:]).decode()
            await self._send(Message(text))
        else:
            await self._send(Message(message))

    async def send_as_is(self, message: bytes | str) -> None:
        """Send a message without a channel, text as text. Raises ConnectionError when the client has disconnected."""
        await self._send(TextMessage(message) if isinstance(message, str) else BytesMessage(message))

    async def close(self) -> None:
        """Close normally; nothing happens if the client has already closed."""
        if not self._is_closed:
            await self._end(CloseConnection(CloseReason.NORMAL_CLOSURE))

    async def _end(self, event: Event) -> None:
        self._is_closed = True
        with contextlib.suppress(ConnectionError):  # a client need not wait for the end
            await self._send(event)

    async def _send(self, event: Event) -> None:
        try:
            data = self._frames.send(event)
        except LocalProtocolError as error:
            raise ConnectionResetError("the WebSocket is closed") from error
        await self._connection.send(data)


def websocket_protocol(request: ApiRequest, protocols: Sequence[str]) -> str:
    """Return the first of the client's protocols that is in `protocols`.

    Raises StatusError 400 if there is none, or if the request is not one for a WebSocket.
    """
    headers = request.headers
    if headers.get("upgrade", "").lower().startswith("spdy/"):
        raise errors.bad_request(
            "SPDY is not supported: use a client that connects by WebSocket, such as kubectl v1.31 or later without "
            "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false and KUBECTL_PORT_FORWARD_WEBSOCKETS=false"
        )
    if not request.wants_websocket or not headers.get("sec-websocket-key") or request.method != "GET":
        raise errors.bad_request("Upgrade request required")
    requested = _requested_protocols(request)
    protocol = next((name for name in requested if name in protocols), None)
    if protocol is None:
        requested_names, served_names = f"[{' '.join(requested)}]", f"[{' '.join(filter(None, protocols))}]"
        message = f"requested protocol(s) are not supported: {requested_names}; server supports: {served_names}"
        raise errors.bad_request(message)
    return protocol


def _requested_protocols(request: ApiRequest) -> list[str]:
    return [name.strip() for name in request.headers.get("sec-websocket-protocol", "").split(",")]


def log_over_websocket(request: ApiRequest, response: Response) -> Response:
    """Return the response that sends a log in messages: binary, or text in base64. Or the refusal of the handshake."""
    refusal = _refusal(request)
    if refusal is not None:
        return refusal
    protocol = next((name for name in _requested_protocols(request) if name in LOG_PROTOCOLS), None)
    if protocol is None:
        return _handshake_error(403)
    return _send_over_websocket(request, response, protocol, _data_messages(protocol))


def watch_over_websocket(request: ApiRequest, open_watch: Callable[[], Response]) -> Response:
    """Return the response that sends each event of a watch in a message, or the refusal of the handshake.

    An event in JSON is a text message, another a binary one. The client must send its Origin and may request any single
    protocol. open_watch: called if the handshake is accepted.
    """
    refusal = _refusal(request)
    if refusal is not None:
        return refusal
    if not _ORIGIN.match(request.headers.get("origin", "")):
        return _handshake_error(403)
    protocol, *others = _requested_protocols(request)
    if others:
        return _handshake_error(400)
    response = open_watch()
    return _send_over_websocket(request, response, protocol, _watch_messages(response))


def _refusal(request: ApiRequest) -> Response | None:
    """Return the response to a handshake without key or of another version of WebSocket."""
    if not request.headers.get("sec-websocket-key"):
        return _handshake_error(400, b"mismatch challenge/response")
    if request.headers.get("sec-websocket-version") != _VERSION:
        return _handshake_error(400, b"missing or bad WebSocket Version", ("Sec-WebSocket-Version", _VERSION))
    return None


def _handshake_error(status: int, message: bytes = b"", *headers: tuple[str, str]) -> Response:
    return Response(status, message, "", [*headers])


def _send_over_websocket(
    request: ApiRequest, response: Response, protocol: str, to_messages: Callable[[bytes], Iterator[bytes | str]]
) -> Response:
    """Return the response that sends a body in messages, until the client disconnects."""
    body = response.body

    async def chunks() -> AsyncGenerator[bytes]:
        if isinstance(body, bytes):
            yield body
            return
        async with contextlib.aclosing(cast("AsyncGenerator[bytes]", body)) as stream:
            async for chunk in stream:
                yield chunk

    async def serve(websocket: WebSocket) -> None:
        async def send() -> None:
            async with contextlib.aclosing(chunks()) as stream:
                async for chunk in stream:
                    for message in to_messages(chunk):
                        await websocket.send_as_is(message)

        async with (
            concurrent(_read_to_end(websocket), "WebSocket input") as reading,
            concurrent(send(), "WebSocket output") as sending,
        ):
            await asyncio.wait((reading, sending), return_when=asyncio.FIRST_COMPLETED)

    return accept_websocket(request, protocol, serve)


async def _read_to_end(websocket: WebSocket) -> None:
    while await websocket.receive() is not None:
        pass


def _watch_messages(response: Response) -> Callable[[bytes], Iterator[bytes | str]]:
    """Return a function that splits the events in a chunk of a watch."""
    if response.content_type.startswith(JSON_TYPE):
        return lambda chunk: iter(chunk.decode().splitlines(keepends=True))

    def frames(chunk: bytes) -> Iterator[bytes]:
        while chunk:
            end = 4 + int.from_bytes(chunk[:4])
            yield chunk[4:end]
            chunk = chunk[end:]

    return frames


def _data_messages(protocol: str) -> Callable[[bytes], Iterator[bytes | str]]:
    if protocol.startswith("base64."):
        return lambda chunk: iter((base64.b64encode(chunk).decode(),))
    return lambda chunk: iter((chunk,))


def accept_websocket(request: ApiRequest, protocol: str, serve: Callable[[WebSocket], Awaitable[None]]) -> Response:
    """Return the response that upgrades to a WebSocket. serve: serves the connection, which is closed afterwards."""

    async def serve_connection(connection: UpgradedConnection) -> None:
        websocket = WebSocket(connection, in_base64="base64." in protocol)
        await serve(websocket)
        await websocket.close()

    digest = hashlib.sha1(request.headers["sec-websocket-key"].encode() + _GUID, usedforsecurity=False).digest()
    response_headers = [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Accept", base64.b64encode(digest).decode()),
    ]
    if protocol:
        response_headers.append(("Sec-WebSocket-Protocol", protocol))
    return Response(101, b"", "", response_headers, upgrade=serve_connection)
