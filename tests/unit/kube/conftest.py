"""HTTP server on loopback whose responses a test defines byte by byte."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest


@dataclass
class Request:
    """A request received by the server, with methods to respond."""

    method: str
    target: str
    header_lines: list[tuple[str, str]]
    body: bytes
    connection: int
    writer: asyncio.StreamWriter

    @property
    def headers(self) -> dict[str, str]:
        """Headers by name in lower case."""
        return {name.lower(): value for name, value in self.header_lines}

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def respond(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send a response with a length."""
        lines = [f"HTTP/1.1 {status} Some Reason", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def begin_stream(self, status: int = 200) -> None:
        """Send the head of a chunked response."""
        await self.send(f"HTTP/1.1 {status} OK\r\nTransfer-Encoding: chunked\r\n\r\n".encode())

    async def chunk(self, data: bytes) -> None:
        """Send a chunk; an empty one ends the response."""
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")


Handler = Callable[[Request], Awaitable[None]]


@dataclass
class Server:
    """Calls `respond` for each request; closes the connection if that raises ConnectionAbortedError."""

    respond: Handler
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close_connections(self) -> None:
        for writer in self.writers:
            writer.close()
        self.writers.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self.writers.append(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, target, _ = head[0].split(" ")
                lines = [(name, value) for name, _, value in (line.partition(": ") for line in head[1:] if line)]
                request = Request(method, target, lines, b"", number, writer)
                request.body = await reader.readexactly(int(request.headers.get("content-length", 0)))
                self.requests.append(request)
                await self.respond(request)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client closed the connection, or the test closes it
        finally:
            writer.close()


@asynccontextmanager
async def running(respond: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(respond)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls, limit=1 << 24)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        server.close_connections()
        await asyncio.sleep(0.01)  # connections are closed in the next iterations of the loop


@pytest.fixture
def serving():
    """`async with serving(respond) as server`: a Server that calls `respond(request)`."""
    return running


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """Certificate and key files for 127.0.0.1, self-signed."""
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
    try:
        subprocess.run(
            [
                *command.split(),
                "-addext",
                "subjectAltName=IP:127.0.0.1",
                "-keyout",
                folder / "key",
                "-out",
                folder / "crt",
            ],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("no openssl here")
    return folder / "crt", folder / "key"
