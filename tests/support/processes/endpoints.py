"""Endpoints of a process, served on loopback."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from kubeloop.process.endpoint.endpoint_listener import open_listener
from kubeloop.process.endpoint.server import EndpointServer


@contextlib.asynccontextmanager
async def serving(endpoint: EndpointServer, address: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve for the length of the context and yield the URL."""
    with open_listener(address, port) as listener:
        async with endpoint.serving_on(listener) as url:
            yield url
