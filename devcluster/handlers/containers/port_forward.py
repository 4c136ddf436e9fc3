"""Port-forward over a WebSocket, to local ports or commands.

kubectl tunnels SPDY streams in the messages. For each connection it opens two streams with the same request ID: one for
errors, one for data. Other clients (Python's) use channels: a message is a byte with the channel's number, and data.
The n-th requested port has one connection, with the channels 2n for data and 2n + 1 for errors; the first message of
both is the port. Source: client-go tools/portforward, cri-streaming/pkg/streaming/portforward of v1.36.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import ApiRequest, Response
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
from kubeloop.devcluster.handlers.containers.websocket import (
    CHANNEL_PROTOCOLS,
    WebSocket,
    accept_websocket,
    websocket_protocol,
)
from kubeloop.devcluster.kubelet.containers.container_answers import PortForwardAnswer

TUNNEL = "SPDY/3.1+portforward.k8s.io"
_READ_BYTES = 32 << 10
_MAX_QUEUED = 64  # messages for a target that it has not read

_Answer = Callable[[int], PortForwardAnswer | None]


def begin_port_forward(request: ApiRequest, ports: Sequence[int], answer: _Answer, *, tunnels: bool) -> Response:
    """Return the response that begins portforward. Raises StatusError 400. tunnels: True serves SPDY in WebSockets."""
    protocol = websocket_protocol(request, (TUNNEL, *CHANNEL_PROTOCOLS) if tunnels else CHANNEL_PROTOCOLS)
    if protocol != TUNNEL and not ports:
        raise errors.bad_request('query parameter "ports" is required')

    async def serve(websocket: WebSocket) -> None:
        if protocol == TUNNEL:
            await _StreamForwarder(websocket, answer).run()
        else:
            await _ChannelForwarder(websocket, ports, answer).run()

    return accept_websocket(request, protocol, serve)


class _ClientData:
    """Data of a client for a target, None at its end; dropped once the target has ended."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_QUEUED)
        self._is_dropped = False

    async def put(self, data: bytes | None) -> None:
        """Queue data; wait while the target does not read."""
        if not self._is_dropped:
            await self._queue.put(data)

    async def get(self) -> bytes | None:
        return await self._queue.get()

    def drop(self) -> None:
        self._is_dropped = True
        while not self._queue.empty():
            self._queue.get_nowait()  # wakes a put() that waits


class _Connection:
    """One forwarded connection: its two streams, 0 if not yet opened, and the client's data."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.error_stream = self.data_stream = 0
        self.received = _ClientData()
        self.task: asyncio.Task[None] | None = None


class _StreamForwarder:
    """All connections of one client with SPDY streams. answer: returns the configured answer for a port."""

    def __init__(self, websocket: WebSocket, answer: _Answer) -> None:
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
                        await connection.received.put(item)
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

    async def _send(self, frame: bytes) -> None:
        async with self._sending:
            await self._websocket.send(frame)

    async def _forward(self, request: str, connection: _Connection) -> None:
        async def send(data: bytes) -> None:
            await self._send(self._frames.data(connection.data_stream, data))

        try:
            problem = await _forward_port(connection.port, self._answer, connection.received, send)
        finally:
            self._by_request.pop(request, None)
            self._by_data_stream.pop(connection.data_stream, None)
        with contextlib.suppress(ConnectionError):  # the client has disconnected
            if problem:
                await self._send(self._frames.data(connection.error_stream, problem.encode()))
            for stream in (connection.data_stream, connection.error_stream):
                await self._send(self._frames.data(stream, b"", is_last=True))


class _ChannelForwarder:
    """One connection per requested port, in channels. It ends when all targets have ended."""

    def __init__(self, websocket: WebSocket, ports: Sequence[int], answer: _Answer) -> None:
        self._websocket = websocket
        self._ports = ports
        self._answer = answer
        self._received = [_ClientData() for _ in ports]

    async def run(self) -> None:
        """Forward until the client disconnects or all targets have ended."""
        async with concurrent(self._receive(), "port-forward input") as receiving, asyncio.TaskGroup() as group:
            forwards = [
                group.create_task(self._forward(index, port), name=f"port-forward {port}")
                for index, port in enumerate(self._ports)
            ]
            receiving.add_done_callback(lambda _: [task.cancel() for task in forwards])

    async def _receive(self) -> None:
        """Queue the client's data for the targets, until it disconnects."""
        while (message := await self._websocket.receive()) is not None:
            channel, data = message[:1], message[1:]
            index, is_error = divmod(channel[0], 2) if channel else (0, 1)
            if data and not is_error and index < len(self._ports):
                await self._received[index].put(data)

    async def _forward(self, index: int, port: int) -> None:
        data_channel, error_channel = (bytes([2 * index + number]) for number in (0, 1))

        async def send(data: bytes) -> None:
            await self._websocket.send(data_channel + data)

        with contextlib.suppress(ConnectionError):  # the client has disconnected
            for channel in (data_channel, error_channel):
                await self._websocket.send(channel + port.to_bytes(2, "little"))
            problem = await _forward_port(port, self._answer, self._received[index], send)
            if problem:
                await self._websocket.send(error_channel + problem.encode())


async def _forward_port(
    port: int, answer_for: _Answer, received: _ClientData, send: Callable[[bytes], Awaitable[None]]
) -> str:
    """Connect the client with the target of the port until that ends; return what went wrong, "" for nothing.

    send: sends data to the client.
    """
    answer = answer_for(port)
    try:
        if answer is None:
            return f"error forwarding port {port}: no answer is configured for this port (docs/nodes.md)"
        async with forward_target(answer) as (reader, writer):
            await _pump(received, send, reader, writer)
    except OSError as error:
        return f"error forwarding port {port}: {error}"
    finally:
        received.drop()
    return ""


async def _pump(
    received: _ClientData,
    send: Callable[[bytes], Awaitable[None]],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Copy in both directions until the target ends."""

    async def write() -> None:
        with contextlib.suppress(ConnectionError):  # the target reads no more, but may still send
            while (data := await received.get()) is not None:
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    async with concurrent(write(), "port-forward input"):
        while data := await reader.read(_READ_BYTES):
            await send(data)


@contextlib.asynccontextmanager
async def forward_target(
    answer: PortForwardAnswer, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect to the configured target; to an address with `tls`, if it is given. Raises OSError."""
    if answer.command:
        async with running_command(answer.command, stderr=DEVNULL) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            yield process.stdout, process.stdin
        return
    reader, writer = await asyncio.open_connection(answer.address, answer.port, ssl=tls)
    try:
        yield reader, writer
    finally:
        writer.close()
