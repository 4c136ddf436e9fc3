"""exec and attach over a WebSocket: one message is a byte with the channel's number, and data.

    0 stdin   1 stdout   2 stderr   3 error: the final Status   4 resize   255 close a channel (v5)

Source: cri-streaming/pkg/streaming/remotecommand of v1.36 (websocket.go, exec.go).
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import ApiRequest, Response
from kubeloop.devcluster.handlers.containers.container_logs import file_additions
from kubeloop.devcluster.handlers.containers.local_commands import concurrent, running_command
from kubeloop.devcluster.handlers.containers.terminal import END_OF_INPUT, Terminal
from kubeloop.devcluster.handlers.containers.websocket import (
    CHANNEL_PROTOCOLS,
    V4,
    WebSocket,
    accept_websocket,
    websocket_protocol,
)
from kubeloop.devcluster.kubelet.containers.container_answers import AttachAnswer, ExecAnswer
from kubeloop.kube.json_object import JSON

V5 = "v5.channel.k8s.io"
_WITH_STATUS = (V5, V4, "v4.base64.channel.k8s.io")
"""Protocols in which the error channel has a Status; in others it has the text of an error."""
_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = b"\x00", b"\x01", b"\x02", b"\x03", b"\x04", b"\xff"
_READ_BYTES = 32 << 10
_SUCCESS: JSON = {"metadata": {}, "status": "Success"}


def begin_command(request: ApiRequest, answer: ExecAnswer | AttachAnswer, *, closes_streams: bool) -> Response:
    """Return the response that begins exec or attach. Raises StatusError 400.

    closes_streams: True serves the protocol in which a client can close its stdin.
    """
    streams = CommandStreams.of(request)
    protocol = websocket_protocol(request, (V5, *CHANNEL_PROTOCOLS) if closes_streams else CHANNEL_PROTOCOLS)
    if isinstance(answer, AttachAnswer):
        return accept_websocket(request, protocol, lambda websocket: _answer_attach(websocket, answer, streams))
    return accept_websocket(request, protocol, lambda websocket: _answer_exec(websocket, answer, streams, protocol))


@dataclass(frozen=True, slots=True)
class CommandStreams:
    """Streams that the client has requested. tty: the command has a terminal, so that stderr is part of stdout."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool

    @classmethod
    def of(cls, request: ApiRequest) -> CommandStreams:
        """Return the streams of a request. Raises StatusError 400 if there is none."""
        tty = request.flag("tty")
        streams = cls(request.flag("stdin"), request.flag("stdout"), request.flag("stderr") and not tty, tty)
        if not (streams.stdin or streams.stdout or streams.stderr):
            raise errors.bad_request("you must specify at least 1 of stdin, stdout, stderr")
        return streams


async def _answer_exec(websocket: WebSocket, answer: ExecAnswer, streams: CommandStreams, protocol: str) -> None:
    """Run the configured command, connected to the client, and report its exit code in the form of the protocol."""
    await _confirm(websocket, streams)
    environment = (("TERM", "xterm"), *answer.environment) if streams.tty else answer.environment
    try:
        with Terminal() if streams.tty else contextlib.nullcontext() as terminal:
            async with (
                running_command(
                    answer.command,
                    directory=answer.directory,
                    environment=environment,
                    stdin=PIPE if streams.stdin else DEVNULL,
                    terminal=terminal,
                ) as process,
                concurrent(_read_client(websocket, process, terminal, streams), "exec stdin") as reading,
                concurrent(_send_output(websocket, process, terminal, streams), "exec output") as output,
            ):
                await asyncio.wait((reading, output), return_when=asyncio.FIRST_COMPLETED)
                if reading.done() and not output.done():
                    return  # the client has disconnected
                await output
                code = await process.wait()
    except ConnectionError:
        raise
    except OSError as error:
        await _send_status(websocket, _failure(f"the configured command cannot be started: {error}"), protocol)
        return
    await _send_status(websocket, _SUCCESS if code == 0 else _exit_status(code), protocol)


async def _answer_attach(websocket: WebSocket, answer: AttachAnswer, streams: CommandStreams) -> None:
    """Send what is added to the configured file, until the client disconnects."""
    await _confirm(websocket, streams)

    async def send_additions() -> None:
        async for data in file_additions(answer.file):
            if streams.stdout:
                await websocket.send(_STDOUT + data)

    async with concurrent(send_additions(), "attach"):
        while await websocket.receive() is not None:
            pass  # a simulated container reads nothing


async def _confirm(websocket: WebSocket, streams: CommandStreams) -> None:
    """Send an empty message: the connection is established."""
    await websocket.send(_STDOUT if streams.stdout else _STDERR if streams.stderr else _ERROR)


async def _read_client(
    websocket: WebSocket, process: Process, terminal: Terminal | None, streams: CommandStreams
) -> None:
    """Write the client's input to the process, until the client disconnects."""
    while (message := await websocket.receive()) is not None:
        if message[:1] == _RESIZE:
            if terminal is not None:
                _resize(terminal, message[1:])
        elif streams.stdin and message[:1] == _STDIN:
            await _write(process, terminal, message[1:])
        elif streams.stdin and message[:2] == _CLOSE + _STDIN:
            await _write(process, terminal, None)


async def _write(process: Process, terminal: Terminal | None, data: bytes | None) -> None:
    """Write input to the process; None ends it."""
    stdin = process.stdin
    if terminal is not None:
        await terminal.write(END_OF_INPUT if data is None else data)
    elif stdin is not None and not stdin.is_closing():
        try:
            if data is None:
                stdin.close()
            else:
                stdin.write(data)
                await stdin.drain()
        except ConnectionError:  # the process reads no more
            stdin.close()


class _TerminalSize(msgspec.Struct, rename="pascal"):
    width: int
    height: int


def _resize(terminal: Terminal, data: bytes) -> None:
    with contextlib.suppress(msgspec.DecodeError):  # as in Kubernetes, another message does not resize
        size = msgspec.json.decode(data, type=_TerminalSize)
        terminal.resize(size.width, size.height)


async def _send_output(
    websocket: WebSocket, process: Process, terminal: Terminal | None, streams: CommandStreams
) -> None:
    async def send(channel: bytes, output: asyncio.StreamReader | Terminal | None, *, requested: bool) -> None:
        while output is not None and (data := await output.read(_READ_BYTES)):
            if requested:
                await websocket.send(channel + data)

    await asyncio.gather(
        send(_STDOUT, terminal or process.stdout, requested=streams.stdout),
        send(_STDERR, process.stderr, requested=streams.stderr),
    )


async def _send_status(websocket: WebSocket, status: JSON, protocol: str) -> None:
    if protocol in _WITH_STATUS:
        await websocket.send(_ERROR + msgspec.json.encode(status))
    elif status is not _SUCCESS:
        await websocket.send(_ERROR + status["message"].encode())


def _failure(message: str) -> JSON:
    return {**_SUCCESS, "status": "Failure", "message": message, "reason": "InternalError", "code": 500}


def _exit_status(code: int) -> JSON:
    """Return the Status of a command that failed. code: negative for the signal that ended the process."""
    code = code if code >= 0 else 128 - code
    return {
        **_SUCCESS,
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
