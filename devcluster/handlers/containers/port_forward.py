"""kubectl port-forward: SPDY streams, tunnelled in the messages of a WebSocket, to local ports or commands.

For each connection the client opens two streams with the same request ID: one for errors, one for data. Source:
client-go tools/portforward, cri-streaming/pkg/streaming/portforward/httpstream.go of v1.36.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Callable

from kubeloop.devcluster.handlers.containers.local_commands import concurrent, running_command
from kubeloop.devcluster.handlers.containers.spdy_frames import (
    Pinged,
    SpdyError,
    SpdyEvent,
    SpdyFrames,
    StreamData,
    StreamOpened,
    StreamReset,
)
from kubeloop.devcluster.handlers.containers.websocket import WebSocket
from kubeloop.devcluster.kubelet.container_answers import PortForwardAnswer

PROTOCOLS = ("SPDY/3.1+portforward.k8s.io",)
_READ_BYTES = 32 << 10
_MAX_QUEUED = 64  # frames of a stream that its target has not read


class _Connection:
    """One forwarded connection: its two streams, 0 if not yet opened, and the client's data, None at its end."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.error_stream = self.data_stream = 0
        self.received: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_QUEUED)
        self.task: asyncio.Task[None] | None = None


class PortForwarder:
    """All forwarded connections of one client. answer: returns the configured answer for a port."""

    def __init__(self, websocket: WebSocket, answer: Callable[[int], PortForwardAnswer | None]) -> None:
        self._websocket = websocket
        self._answer = answer
        self._frames = SpdyFrames()
        self._sending = asyncio.Lock()
        self._by_request: dict[str, _Connection] = {}
        self._by_data_stream: dict[int, _Connection] = {}

    async def run(self) -> None:
        """Forward until the client disconnects."""
        async with asyncio.TaskGroup() as group:
            try:
                while (message := await self._websocket.receive()) is not None:
                    for event in self._frames.receive(message):
                        await self._handle(event, group)
            except SpdyError:
                await self._websocket.close()
            finally:
                for connection in self._by_request.values():
                    if connection.task is not None:
                        connection.task.cancel()

    async def _handle(self, event: SpdyEvent, group: asyncio.TaskGroup) -> None:
        match event:
            case StreamOpened():
                await self._open(event, group)
            case StreamData(stream, data, is_last):
                connection = self._by_data_stream.get(stream)
                if connection is not None:
                    for item in (data, None) if is_last else (data,):
                        await self._put(connection, item)
            case StreamReset(stream):
                connection = self._by_data_stream.get(stream)
                if connection is not None and connection.task is not None:
                    connection.task.cancel()
            case Pinged(frame):
                await self._send(frame)

    async def _open(self, event: StreamOpened, group: asyncio.TaskGroup) -> None:
        """Accept a stream, and start forwarding with the second stream of a connection."""
        port, request = event.headers.get("port", ""), event.headers.get("requestid", "")
        if not (port.isascii() and port.isdigit()):
            raise SpdyError(f"invalid port {port!r}")
        connection = self._by_request.setdefault(request, _Connection(int(port)))
        if event.headers.get("streamtype") == "error":
            connection.error_stream = event.stream
        else:
            connection.data_stream = event.stream
            self._by_data_stream[event.stream] = connection
        async with self._sending:
            await self._websocket.send(self._frames.reply(event.stream))
        if connection.error_stream and connection.data_stream and connection.task is None:
            name = f"port-forward {connection.port}"
            connection.task = group.create_task(self._forward(request, connection), name=name)

    async def _put(self, connection: _Connection, item: bytes | None) -> None:
        """Queue data for the target; wait while the target does not read, unless the connection has ended."""
        if connection.task is None or not connection.task.done():
            await connection.received.put(item)

    async def _send(self, frame: bytes) -> None:
        async with self._sending:
            await self._websocket.send(frame)

    async def _forward(self, request: str, connection: _Connection) -> None:
        problem = ""
        try:
            answer = self._answer(connection.port)
            if answer is None:
                problem = "no answer is configured for this port (docs/nodes.md)"
            else:
                async with _target(answer) as (reader, writer):
                    await self._pump(connection, reader, writer)
        except OSError as error:
            problem = str(error)
        finally:
            self._by_request.pop(request, None)
            self._by_data_stream.pop(connection.data_stream, None)
            while not connection.received.empty():
                connection.received.get_nowait()  # wakes a put() that waits
        with contextlib.suppress(ConnectionError):  # the client has disconnected
            if problem:
                message = f"error forwarding port {connection.port}: {problem}"
                await self._send(self._frames.data(connection.error_stream, message.encode()))
            for stream in (connection.data_stream, connection.error_stream):
                await self._send(self._frames.data(stream, b"", is_last=True))

    async def _pump(self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy in both directions until the target ends."""

        async def write() -> None:
            with contextlib.suppress(ConnectionError):  # the target reads no more, but may still send
                while (data := await connection.received.get()) is not None:
                    writer.write(data)
                    await writer.drain()
                writer.write_eof()

        async with concurrent(write(), "port-forward input"):
            while data := await reader.read(_READ_BYTES):
                await self._send(self._frames.data(connection.data_stream, data))


@contextlib.asynccontextmanager
async def _target(answer: PortForwardAnswer) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect to the configured target. Raises OSError."""
    if answer.command:
        async with running_command(answer.command, stderr=DEVNULL) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            yield process.stdout, process.stdin
        return
    reader, writer = await asyncio.open_connection(answer.address, answer.port)
    try:
        yield reader, writer
    finally:
        writer.close()
