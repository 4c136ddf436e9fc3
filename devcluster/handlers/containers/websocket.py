"""WebSocket connections of exec, attach and port-forward requests. Imported with the first of them.

wsproto does the framing (RFC 6455). Source of the negotiation: streaming/pkg/httpstream/wsstream of v1.36.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Sequence

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Message, Ping, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import Request, Response
from kubeloop.devcluster.api.upgraded_connection import UpgradedConnection

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_MAX_MESSAGE_BYTES = 8 << 20


class WebSocket:
    """Binary messages over an upgraded connection."""

    def __init__(self, connection: UpgradedConnection) -> None:
        self._connection = connection
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
                                return b"".join(parts)
                received = await self._connection.receive()
                self._frames.receive_data(received or None)
                self._is_closed = not received
            except RemoteProtocolError as error:
                await self._end(error.event_hint or CloseConnection(CloseReason.PROTOCOL_ERROR))
        return None

    async def send(self, message: bytes) -> None:
        """Send a message. Raises ConnectionError when the client has disconnected."""
        await self._send(Message(message))

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


def websocket_protocol(request: Request, protocols: Sequence[str]) -> str:
    """Return the first of the client's protocols that is in `protocols`.

    Raises StatusError 400 if there is none, or if the request is not one for a WebSocket.
    """
    headers = request.headers
    upgrade = headers.get("upgrade", "").lower()
    if upgrade.startswith("spdy/"):
        raise errors.bad_request(
            "SPDY is not supported: use a client that connects by WebSocket, such as kubectl v1.31 or later without "
            "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false and KUBECTL_PORT_FORWARD_WEBSOCKETS=false"
        )
    if upgrade != "websocket" or not headers.get("sec-websocket-key") or request.method != "GET":
        raise errors.bad_request("Upgrade request required")
    requested = [name.strip() for name in headers.get("sec-websocket-protocol", "").split(",")]
    protocol = next((name for name in requested if name in protocols), None)
    if protocol is None:
        requested_names, served_names = f"[{' '.join(requested)}]", f"[{' '.join(protocols)}]"
        message = f"requested protocol(s) are not supported: {requested_names}; server supports: {served_names}"
        raise errors.bad_request(message)
    return protocol


def accept_websocket(request: Request, protocol: str, serve: Callable[[WebSocket], Awaitable[None]]) -> Response:
    """Return the response that upgrades to a WebSocket. serve: serves the connection, which is closed afterwards."""

    async def serve_connection(connection: UpgradedConnection) -> None:
        websocket = WebSocket(connection)
        await serve(websocket)
        await websocket.close()

    digest = hashlib.sha1(request.headers["sec-websocket-key"].encode() + _GUID, usedforsecurity=False).digest()
    response_headers = [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Accept", base64.b64encode(digest).decode()),
        ("Sec-WebSocket-Protocol", protocol),
    ]
    return Response(101, b"", "", response_headers, upgrade=serve_connection)
