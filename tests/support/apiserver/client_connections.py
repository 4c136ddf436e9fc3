"""Requests and connections of the client, for tests of its transports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kubeloop.kube.client.transport import HttpRequest, HttpResponse, Transport

HEADERS = {"accept": "application/json", "user-agent": "test"}


async def send(
    transport: Transport, method: str, target: str, body: bytes = b"", *, timeout_seconds: float | None = None
) -> HttpResponse:
    """Send a request with HEADERS."""
    return await transport.send(
        HttpRequest(method, target, headers=HEADERS, body=body, timeout_seconds=timeout_seconds)
    )


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until the condition is true."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


class Wire(asyncio.Transport):
    """Transport of a connection without a server: collects what the connection sends."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True
