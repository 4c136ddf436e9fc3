"""Interface through which requests reach an API server.

A Transport is bound to one server and its credentials. Implementations: `asyncio_transport` and `aiohttp_transport`
(sockets), and in `kubeloop.testing` one that calls the development API server's handlers in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec


class HttpRequest(msgspec.Struct, frozen=True):
    """A request. `target` is path and query, percent-encoded: "/api/v1/pods?limit=500".

    timeout_seconds: for the whole response; None for no limit, and without effect on streams.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""
    timeout_seconds: float | None = None


class HttpResponse(msgspec.Struct, frozen=True):
    """A complete response. Header names are in lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


def join_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by name in lower case; the values of repeated ones are joined with ", " (RFC 9110, 5.3)."""
    joined: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
        joined[key] = f"{joined[key]}, {value}" if key in joined else value
    return joined


class StreamedResponse(msgspec.Struct, frozen=True):
    """A response whose body is streamed. `chunks` ends when the server closes the stream cleanly, and raises
    TransportError if the connection breaks. Chunks have arbitrary boundaries."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class TransportError(Exception):
    """No complete response arrived: no connection, connection lost, or time-out.

    `request_sent` is False if the server cannot have seen the request, so that even a POST may be retried.
    """

    def __init__(self, message: str, *, request_sent: bool) -> None:
        super().__init__(message)
        self.request_sent = request_sent


class Transport(Protocol):
    """A connection to one server."""

    @property
    def server(self) -> str:
        """URL of the server, for messages."""
        ...

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send one request and read the whole response, whatever its status. Raises TransportError."""
        ...

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[StreamedResponse]:
        """Send one request and stream its response; leaving the context closes it. Raises TransportError."""
        ...

    async def close(self) -> None: ...
