"""One HTTP/1.1 exchange over a stream of bytes, and the stream after a change of the protocol (WebSocket, SPDY).

Source: apimachinery pkg/util/proxy/upgradeaware.go of v1.36.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from functools import partial
from http import HTTPStatus

import httptools

from kubeloop.devcluster.api.request import ApiRequest, Response
from kubeloop.devcluster.api.upgraded_connection import UpgradedConnection

OF_CONNECTION = frozenset(
    ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "content-length")
)
_READ_BYTES = 32 << 10
_STATUSES = frozenset(HTTPStatus)


def wants_upgrade(request: ApiRequest) -> bool:
    """Return True for a request to change the protocol of its connection."""
    return "upgrade" in request.headers.get("connection", "").lower()


def request_message(method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes) -> bytes:
    """Return a request as it is sent. Raises ValueError for a line break in its target or headers."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    if any("\n" in line or "\r" in line for line in lines):
        raise ValueError(f"line break in {method} {target!r} or its headers")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


class HttpExchange:
    """A request over a stream, and its response.

    send() returns with the head of the response; then either body() is read, or join() serves a client.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The caller closes the stream."""
        self.headers: list[tuple[str, str]] = []
        self._reader = reader
        self._writer = writer
        self._parser = httptools.HttpResponseParser(self)
        self._chunks: list[bytes] = []
        self._has_head = self._is_complete = False
        self._unparsed = b""  # behind a change of the protocol

    async def send(self, message: bytes) -> int:
        """Send a request; return the status of its response. Raises OSError, EOFError, ValueError."""
        with contextlib.suppress(ConnectionError):  # the target may answer without reading the request
            self._writer.write(message)
            await self._writer.drain()
        while not self._has_head:
            if not await self._read():
                raise EOFError("the target sent no response")
        status: int = self._parser.get_status_code()
        if status not in _STATUSES:
            raise ValueError(f"the target has sent the status {status}")
        return status

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body; an error of the target ends it."""
        with contextlib.suppress(OSError, ValueError):
            while True:
                for chunk in self._chunks:
                    yield chunk
                self._chunks.clear()
                if self._is_complete or not await self._read():
                    return

    def upgrade(self, resources: contextlib.AsyncExitStack) -> Response:
        """Return the response with status 101, which joins the client with the target. resources: closed at the end."""
        return Response(101, b"", "", self.headers, upgrade=partial(self._serve, resources))

    async def _serve(self, resources: contextlib.AsyncExitStack, client: UpgradedConnection) -> None:
        async with resources:
            await self.join(client)

    async def join(self, client: UpgradedConnection) -> None:
        """Copy bytes in both directions until one side ends."""
        async with asyncio.TaskGroup() as group:
            copying = [group.create_task(self._to_client(client)), group.create_task(self._to_target(client))]
            await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
            for task in copying:
                task.cancel()

    async def _to_client(self, client: UpgradedConnection) -> None:
        data = self._unparsed
        with contextlib.suppress(OSError):
            while data or (data := await self._reader.read(_READ_BYTES)):
                await client.send(data)
                data = b""

    async def _to_target(self, client: UpgradedConnection) -> None:
        with contextlib.suppress(OSError):
            while data := await client.receive():
                self._writer.write(data)
                await self._writer.drain()

    async def _read(self) -> bool:
        """Parse the next bytes; return False at the end. Raises OSError, ValueError."""
        data = await self._reader.read(_READ_BYTES)
        if not data:
            return False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as change:
            self._unparsed = data[change.args[0] :]
        except httptools.HttpParserError as error:
            raise ValueError(str(error)) from None
        return True

    # --- httptools ----------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.headers, self._has_head = [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._has_head = status >= 200 or status == HTTPStatus.SWITCHING_PROTOCOLS

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        self._is_complete = self._has_head
