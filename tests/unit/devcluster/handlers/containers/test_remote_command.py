"""exec and attach over a WebSocket."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from pathlib import Path

import aiohttp
import pytest

from kubeloop.devcluster.handlers.containers.remote_command import V5
from kubeloop.devcluster.handlers.containers.websocket import V4
from kubeloop.devcluster.kubelet.containers.container_answers import (
    AttachAnswer,
    ContainerAnswers,
    Entry,
    ExecAnswer,
    Rule,
)
from kubeloop.kube.feature_gates import FeatureGates
from support.apiserver.stream_server import stream_server


def execs(*command: str, **fields: object) -> ContainerAnswers:
    return ContainerAnswers(execs=[Rule((Entry(ExecAnswer(command, **fields)),))])  # type: ignore[arg-type]


async def received(ws: aiohttp.ClientWebSocketResponse) -> dict[int, bytes]:
    """Return what was received on each channel until the server closed the connection."""
    channels: dict[int, bytes] = {}
    async for message in ws:
        channels[message.data[0]] = channels.get(message.data[0], b"") + message.data[1:]
    return channels


async def channels_of(answers: ContainerAnswers, streams: str) -> dict[int, bytes]:
    """Send an exec request and return all that is received."""
    async with stream_server(answers) as server, server.connect(f"exec?container=web&command=x&{streams}", V5) as ws:
        return await received(ws)


async def test_exec_runs_configured_command_and_not_the_clients(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.touch()
    script = 'echo "$GREETING"; pwd; echo problem >&2'
    answers = execs("sh", "-c", script, directory=tmp_path, environment=(("GREETING", "hello"),))
    path = f"exec?container=web&command=rm&command={victim}&stdout=true&stderr=true"
    async with stream_server(answers) as server, server.connect(path, V5) as ws:
        channels = await received(ws)
    assert channels[1] == f"hello\n{tmp_path}\n".encode()
    assert channels[2] == b"problem\n"
    assert json.loads(channels[3]) == {"metadata": {}, "status": "Success"}
    assert victim.exists()


@pytest.mark.parametrize(
    ("script", "code"), [("exit 3", "3"), ("kill -9 $$", "137")], ids=["exit code", "ended by a signal"]
)
async def test_exit_code_is_reported(script: str, code: str):
    status = json.loads((await channels_of(execs("sh", "-c", script), "stdout=true"))[3])
    assert (status["reason"], status["details"]["causes"]) == (
        "NonZeroExitCode",
        [{"reason": "ExitCode", "message": code}],
    )
    assert status["message"] == f"command terminated with non-zero exit code: exit status {code}"


async def test_command_that_cannot_start_is_reported():
    status = json.loads((await channels_of(execs("/no/such/command"), "stdout=true"))[3])
    assert (status["status"], "cannot be started" in status["message"]) == ("Failure", True)


async def test_terminal_has_one_output():
    script = "tty > /dev/null && echo terminal; echo problem >&2; echo $TERM"
    channels = await channels_of(execs("sh", "-c", script), "stdout=true&stderr=true&tty=true")
    assert channels[1] == b"terminal\r\nproblem\r\nxterm\r\n"
    assert 2 not in channels
    assert json.loads(channels[3])["status"] == "Success"


async def test_terminal_has_size_of_the_client():
    """The command prints its size at the start, after each resize, and ends at the end of input."""
    script = "trap 'stty size' WINCH; echo started; while read line; do echo [$line]; done; echo end"
    path = "exec?container=web&command=x&stdin=true&stdout=true&tty=true"
    async with stream_server(execs("bash", "-c", script)) as server, server.connect(path, V5) as ws:
        output = b""

        async def until(text: bytes) -> None:
            nonlocal output
            while text not in output:
                message = await ws.receive_bytes()
                assert message[:1] == b"\x01"
                output += message[1:]

        await until(b"started\r\n")
        await ws.send_bytes(b"\x04not a size")
        await ws.send_bytes(b"\x04" + b'{"Width":132,"Height":43}')
        await ws.send_bytes(b"\x00typed\n")  # bash runs the trap after `read`
        await until(b"[typed]\r\n")
        await until(b"43 132\r\n")
        await ws.send_bytes(b"\xff\x00")
        await until(b"end\r\n")
        assert json.loads((await received(ws))[3])["status"] == "Success"


async def test_terminal_controls_its_command(tmp_path: Path):
    """^C interrupts the command, as it has a session with this controlling terminal."""
    path = "exec?container=web&command=x&stdin=true&stdout=true&tty=true"
    script = "echo started; sleep 1000"
    async with stream_server(execs("bash", "-c", script)) as server, server.connect(path, V5) as ws:
        while b"started" not in await ws.receive_bytes():
            pass
        await ws.send_bytes(b"\x00\x03")
        status = json.loads((await received(ws))[3])
        assert status["details"]["causes"][0]["message"] == "130"


async def test_client_closes_stdin():
    path = "exec?container=web&command=x&stdin=true&stdout=true"
    async with stream_server(execs("cat")) as server, server.connect(path, V5) as ws:
        await ws.send_bytes(b"\x00")
        await ws.send_bytes(b"\x00input")
        await ws.send_bytes(b"\x04" + b'{"Width":80,"Height":25}')  # ignored without a terminal
        await ws.send_bytes(b"\xff\x00")
        channels = await received(ws)
    assert channels[1] == b"input"


async def test_command_ends_when_client_disconnects(tmp_path: Path):
    file = tmp_path / "pid"
    async with stream_server(execs("sh", "-c", f"echo $$ > {file}; sleep 1000 & wait")) as server:
        async with server.connect("exec?container=web&command=x&stdin=true&stdout=true", V5):
            while not file.exists() or not file.read_text():
                await asyncio.sleep(0.01)
        process = Path("/proc") / file.read_text().strip()
        while process.exists():
            await asyncio.sleep(0.01)


async def test_exec_without_streams_is_refused():
    async with stream_server(execs("cat")) as server:
        status, text = await server.get("exec?container=web&command=x")
    assert (status, "you must specify at least 1 of stdin, stdout, stderr" in text) == (400, True)


async def test_attached_client_receives_additions(tmp_path: Path):
    file = tmp_path / "log"
    file.write_text("before\n")
    answers = ContainerAnswers(attaches=[Rule((Entry(AttachAnswer(file)),))])
    async with stream_server(answers) as server, server.connect("attach?container=web&stdout=true", V5) as ws:
        assert await ws.receive_bytes() == b"\x01"
        await asyncio.sleep(0.1)
        with file.open("a") as stream:
            stream.write("after\n")
        assert await ws.receive_bytes() == b"\x01after\n"


_WITHOUT_TRANSLATION = {"TranslateStreamCloseWebsocketRequests": False, "ExtendWebSocketsToKubelet": False}


@pytest.mark.parametrize(
    ("gates", "protocol"),
    [
        pytest.param({}, V5, id="default"),
        pytest.param({"TranslateStreamCloseWebsocketRequests": False}, V5, id="translated by the kubelet"),
        pytest.param({"ExtendWebSocketsToKubelet": False}, V5, id="translated by the API server"),
        pytest.param(_WITHOUT_TRANSLATION, V4, id="not translated"),
    ],
)
async def test_newest_protocol_depends_on_gates(gates: dict[str, bool], protocol: str):
    async with stream_server(execs("true"), FeatureGates(gates)) as server:
        async with server.connect("exec?container=web&command=x&stdout=true", V5, V4) as ws:
            assert ws.protocol == protocol
        if protocol == V4:
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await server.connect("exec?container=web&command=x&stdout=true", V5).__aenter__()


@pytest.mark.parametrize("protocol", [V4, "channel.k8s.io", ""])
async def test_output_is_sent_in_binary_messages(protocol: str):
    answers, protocols = execs("sh", "-c", "cat; exit 3"), [protocol] if protocol else []
    async with stream_server(answers) as server:
        path = "exec?container=web&command=x&stdout=true"
        async with server.connect(path, *protocols) as ws:
            assert (ws.protocol or "") == protocol
            channels = await received(ws)
    error = channels[3].decode()
    message = "command terminated with non-zero exit code: exit status 3"
    assert (json.loads(error)["message"] if protocol == V4 else error) == message


@pytest.mark.parametrize("protocol", ["v4.base64.channel.k8s.io", "base64.channel.k8s.io"])
async def test_input_and_output_are_text_in_base64(protocol: str):
    path = "exec?container=web&command=x&stdin=true&stdout=true"
    async with (
        stream_server(execs("sh", "-c", "read line; echo got $line")) as server,
        server.connect(path, protocol) as ws,
    ):
        await ws.send_str("0" + b64encode(b"hello\n").decode())
        messages = [message.data async for message in ws]
    assert all(isinstance(message, str) for message in messages)
    assert b"".join(b64decode(message[1:]) for message in messages if message[0] == "1") == b"got hello\n"
    statuses = [json.loads(b64decode(message[1:])) for message in messages if message[0] == "3"]
    assert [status["status"] for status in statuses] == (["Success"] if protocol.startswith("v4") else [])


async def test_message_that_is_not_in_base64_ends_the_connection():
    path = "exec?container=web&command=x&stdin=true&stdout=true"
    async with stream_server(execs("cat")) as server, server.connect(path, "base64.channel.k8s.io") as ws:
        await ws.send_str("0?")
        assert await received_types(ws) == {aiohttp.WSMsgType.TEXT}
        assert ws.close_code == aiohttp.WSCloseCode.PROTOCOL_ERROR


async def received_types(ws: aiohttp.ClientWebSocketResponse) -> set[aiohttp.WSMsgType]:
    return {message.type async for message in ws}
