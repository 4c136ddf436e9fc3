"""Port forwarding by SPDY streams in a WebSocket."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from kubeloop.devcluster.handlers.containers.port_forward import TUNNEL
from kubeloop.devcluster.handlers.containers.spdy_frames import SpdyEvent, SpdyFrames, StreamData, StreamOpened
from kubeloop.devcluster.handlers.containers.websocket import V4 as CHANNELS
from kubeloop.devcluster.kubelet.containers.container_answers import ContainerAnswers, Entry, PortForwardAnswer, Rule
from kubeloop.kube.feature_gates import FeatureGates
from support.apiserver.spdy_client import SpdyClient, control_frame
from support.apiserver.stream_server import stream_server


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
    async with stream_server(answers) as server, server.connect("portforward", TUNNEL) as websocket:
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
            async with server.connect("portforward", TUNNEL) as websocket:
                assert websocket.protocol == TUNNEL
        else:
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await server.connect("portforward", TUNNEL).__aenter__()


# --- Channels, as of the Python client --------------------------------------------------------------------------------


@asynccontextmanager
async def channels(ports: str, *entries: Entry[PortForwardAnswer]) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    answers = ContainerAnswers(port_forwards=[Rule(entries)])
    async with stream_server(answers) as server, server.connect(f"portforward?{ports}", CHANNELS) as websocket:
        assert websocket.protocol == CHANNELS
        yield websocket


async def received(websocket: aiohttp.ClientWebSocketResponse) -> dict[int, bytes]:
    """Return what was received on each channel until the server closed the connection."""
    data: dict[int, bytes] = {}
    async for message in websocket:
        data[message.data[0]] = data.get(message.data[0], b"") + message.data[1:]
    return data


async def test_channels_reach_the_configured_ports():
    entries = Entry(PortForwardAnswer(command=("head", "-c", "5"))), Entry(PortForwardAnswer("127.0.0.1", 1), (81,))
    async with channels("ports=80&ports=81,82", *entries) as websocket:
        await websocket.send_bytes(b"\x00hello")
        await websocket.send_bytes(b"\x04he")
        await websocket.send_bytes(b"\x04llo, more than it reads")
        await websocket.send_bytes(b"\x09there is no such channel")
        data = await received(websocket)
    problem = data.pop(3)
    assert data == {0: b"P\x00hello", 1: b"P\x00", 2: b"Q\x00", 4: b"R\x00hello", 5: b"R\x00"}
    assert problem.startswith(b"Q\x00error forwarding port 81: ")


async def test_ended_channel_does_not_delay_others():
    """The target of the first port reads nothing and ends; more data than is queued follows for it."""
    entries = Entry(PortForwardAnswer(command=("true",)), (80,)), Entry(PortForwardAnswer(command=("cat",)))
    async with channels("ports=80,81", *entries) as websocket:
        for _ in range(200):
            await websocket.send_bytes(b"\x00" + bytes(10_000))
        await websocket.send_bytes(b"\x02hello")
        while (await websocket.receive_bytes()) != b"\x02hello":
            pass


async def test_targets_end_when_the_client_of_channels_disconnects(tmp_path: Path):
    file = tmp_path / "pid"
    command = ("sh", "-c", f"echo $$ > {file}; exec sleep 1000")
    answers = ContainerAnswers(port_forwards=[Rule((Entry(PortForwardAnswer(command=command)),))])
    async with stream_server(answers) as server:
        async with server.connect("portforward?ports=80", CHANNELS):
            while not file.exists() or not file.read_text():
                await asyncio.sleep(0.01)
        while (Path("/proc") / file.read_text().strip()).exists():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("query", "message"),
    [("", 'query parameter "ports" is required'), ("?ports=0", 'port "0" must be > 0 and < 65536')],
)
async def test_channels_need_ports(query: str, message: str):
    answers = ContainerAnswers(port_forwards=[Rule((Entry(PortForwardAnswer(command=("cat",))),))])
    headers = {"Upgrade": "websocket", "Sec_WebSocket_Key": "eA==", "Sec_WebSocket_Protocol": CHANNELS}
    async with stream_server(answers) as server:
        status, text = await server.get(f"portforward{query}", Connection="Upgrade", **headers)
        assert (status, json.loads(text)["message"]) == (400, message)


PYTHON_CLIENT = """
import sys, time
from kubernetes import client
from kubernetes.stream import portforward

configuration = client.Configuration()
configuration.host = sys.argv[1]
connect = client.CoreV1Api(client.ApiClient(configuration)).connect_get_namespaced_pod_portforward
forward = portforward(connect, "p", "default", ports="80,81")
socket = forward.socket(80)
socket.sendall(b"hello")
print(socket.recv(100).decode())
while forward.error(81) is None:
    time.sleep(0.01)
print(forward.error(81))
"""


async def test_python_client_forwards_a_port():
    async with echo_server() as port:
        answers = ContainerAnswers(port_forwards=[Rule((Entry(PortForwardAnswer("127.0.0.1", port), (80,)),))])
        async with stream_server(answers) as server:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", PYTHON_CLIENT, server.url, stdout=asyncio.subprocess.PIPE
            )
            output, _ = await process.communicate()
    problem = "error forwarding port 81: no answer is configured for this port (docs/nodes.md)"
    assert output.decode().splitlines() == ["echo hello", problem]
