"""Port forwarding by SPDY streams in a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from kubeloop.devcluster.handlers.containers.port_forward import PROTOCOLS
from kubeloop.devcluster.handlers.containers.spdy_frames import SpdyEvent, SpdyFrames, StreamData, StreamOpened
from kubeloop.devcluster.kubelet.container_answers import ContainerAnswers, Entry, PortForwardAnswer, Rule
from kubeloop.kube.feature_gates import FeatureGates
from support.spdy_client import SpdyClient, control_frame
from support.stream_server import stream_server


class Tunnel:
    """The client's end of a tunnel."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self.websocket = websocket
        self._client = SpdyClient()
        self._frames = SpdyFrames()

    async def open(self, port: str, request: int = 0) -> tuple[int, int]:
        """Open the two streams of a connection and return their numbers."""
        streams = 4 * request + 1, 4 * request + 3
        for stream, kind in zip(streams, ("error", "data"), strict=True):
            await self.send(self._client.open(stream, streamtype=kind, port=port, requestid=str(request)))
        return streams

    async def send(self, frame: bytes) -> None:
        await self.websocket.send_bytes(frame)

    async def events(self, count: int) -> list[SpdyEvent]:
        """Receive until there are `count` frames with data or an end."""
        received: list[SpdyEvent] = []
        while len(received) < count:
            received += self._frames.receive(await self.websocket.receive_bytes())
        assert not any(isinstance(event, StreamOpened) for event in received)
        return received


@asynccontextmanager
async def tunnel(*entries: Entry[PortForwardAnswer]) -> AsyncIterator[Tunnel]:
    answers = ContainerAnswers(port_forwards=[Rule(entries)])
    async with stream_server(answers) as server, server.connect("portforward", *PROTOCOLS) as websocket:
        yield Tunnel(websocket)


@asynccontextmanager
async def echo_server() -> AsyncIterator[int]:
    """A server that answers the first bytes of a client and closes the connection."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"echo " + await reader.read(100))
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_connections_reach_the_configured_port():
    async with echo_server() as port, tunnel(Entry(PortForwardAnswer("127.0.0.1", port), (80,))) as client:
        for request in range(2):
            error, data = await client.open("80", request)
            await client.send(SpdyFrames.data(data, b"hello"))
            assert await client.events(3) == [
                StreamData(data, b"echo hello", False),
                StreamData(data, b"", True),
                StreamData(error, b"", True),
            ]


async def test_client_ends_input_of_configured_command():
    async with tunnel(Entry(PortForwardAnswer(command=("wc", "-c")))) as client:
        _, data = await client.open("1234")
        await client.send(SpdyFrames.data(data, b"12345", is_last=True))
        assert (await client.events(1))[0] == StreamData(data, b"5\n", False)


async def test_problem_is_reported_on_the_error_stream():
    async with tunnel(Entry(PortForwardAnswer("127.0.0.1", 1), (80,))) as client:
        for request, (port, message) in enumerate((("80", b"111"), ("81", b"no answer is configured"))):
            error, data = await client.open(port, request)
            problem, *ends = await client.events(3)
            assert isinstance(problem, StreamData)
            assert (problem.stream, message in problem.data) == (error, True)
            assert ends == [StreamData(data, b"", True), StreamData(error, b"", True)]


async def test_reset_ends_connection_and_pings_are_returned():
    async with tunnel(Entry(PortForwardAnswer(command=("cat",)))) as client:
        _, data = await client.open("80")
        await client.send(SpdyFrames.data(data, b"x"))
        await client.events(1)
        await client.send(control_frame(3, data.to_bytes(4, "big") + bytes(4)))
        ping = control_frame(6, b"\x00\x00\x00\x01")
        await client.send(ping)
        assert await client.websocket.receive_bytes() == ping


async def test_broken_frame_closes_tunnel():
    async with tunnel(Entry(PortForwardAnswer(command=("cat",)))) as client:
        await client.open("http")
        assert (await client.websocket.receive()).type == aiohttp.WSMsgType.CLOSE


@pytest.mark.parametrize("by_kubelet", [True, False], ids=["tunnelled by the kubelet", "not tunnelled"])
async def test_websocket_without_gate_of_the_server_needs_that_of_the_kubelet(by_kubelet: bool):
    gates = FeatureGates({"PortForwardWebsockets": False, "ExtendWebSocketsToKubelet": by_kubelet})
    answers = ContainerAnswers(port_forwards=[Rule((Entry(PortForwardAnswer("127.0.0.1", 1), (80,)),))])
    async with stream_server(answers, gates) as server:
        if by_kubelet:
            async with server.connect("portforward", *PROTOCOLS) as websocket:
                assert websocket.protocol == PROTOCOLS[0]
        else:
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await server.connect("portforward", *PROTOCOLS).__aenter__()
