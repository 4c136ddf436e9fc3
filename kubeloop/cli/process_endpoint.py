"""The endpoint of a command that runs until it is stopped."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import TYPE_CHECKING

from kubeloop.process.endpoint.paths import TRACES_PAGE_PATH
from kubeloop.process.process_files import ProcessRecord, process_file

if TYPE_CHECKING:
    from kubeloop.process.endpoint.server import EndpointServer


async def serve_endpoint(endpoint: EndpointServer, listener: socket.socket, record: ProcessRecord, title: str) -> None:
    """Serve the endpoint and list the process for other commands, until cancelled; print the addresses to stderr."""
    async with endpoint.serving_on(listener):
        with process_file(record):
            print(
                f"{title}\nendpoint {record.endpoint}\n  in a browser: {record.endpoint}{TRACES_PAGE_PATH}",
                file=sys.stderr,
                flush=True,
            )
            await asyncio.get_running_loop().create_future()
