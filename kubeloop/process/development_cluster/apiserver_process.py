"""The development cluster as a separate process, for the length of a context."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence

import msgspec

from kubeloop.kube.user_error import UserError

_START_SECONDS = 30.0
_STOP_SECONDS = 5.0
_MESSAGES_SECONDS = 1.0


class Ready(msgspec.Struct, frozen=True):
    """Readiness message of the process: one line of JSON on its stdout.

    root_ca: certificates in PEM that verify the server. service_account_key: file of the key that signs service account
    tokens. certificate_authority: file of the cluster's certificate authority, with its key.
    """

    server: str
    plain_server: str
    kubeconfig: str
    root_ca: str
    service_account_key: str
    certificate_authority: str


class Messages(asyncio.Protocol):
    """Copies the messages of the process to sys.stderr, which a live display replaces so that they appear above it."""

    def __init__(self) -> None:
        self._complete = asyncio.Event()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def data_received(self, data: bytes) -> None:
        sys.stderr.write(self._decoder.decode(data))
        sys.stderr.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._complete.set()

    async def wait_complete(self) -> None:
        """Wait until all messages are copied; not longer than a moment, as a child of the process may hold the pipe."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MESSAGES_SECONDS):
                await self._complete.wait()


class ApiServerProcess(msgspec.Struct, frozen=True):
    """A running development cluster. `plain_server` in `ready` is its URL without TLS, for this process alone."""

    ready: Ready
    process: asyncio.subprocess.Process
    messages: Messages

    async def ended(self) -> None:
        """Wait for the process to end, then raise UserError: it should run until it is stopped."""
        code = await self.process.wait()
        await self.messages.wait_complete()
        raise UserError(f"the development cluster ended (exit code {code})", hint="see its messages above, on stderr")


class StartingApiServer:
    """A development cluster that is starting."""

    def __init__(self, process: asyncio.subprocess.Process, messages: Messages) -> None:
        self._process = process
        self._messages = messages

    async def ready(self) -> ApiServerProcess:
        """Wait until it serves. Raises UserError after a timeout, ApiServerExited if it reported an error itself."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_START_SECONDS):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise UserError(
                f"the development cluster did not start within {_START_SECONDS:g} s", hint="try again with -v debug"
            ) from None
        if not line:
            code = await self._process.wait()
            await self._messages.wait_complete()
            raise ApiServerExited(code)
        return ApiServerProcess(msgspec.json.decode(line, type=Ready), self._process, self._messages)


@contextlib.asynccontextmanager
async def starting_api_server(arguments: Sequence[str], *, token: str) -> AsyncIterator[StartingApiServer]:
    """Start `kubeloop apiserver` with these arguments, and stop it at the end of the context.

    It also ends when this process ends in any way: it reads a pipe that this process holds open.
    """
    read_end, write_end = os.pipe()
    try:
        pipe, messages = await asyncio.get_running_loop().connect_read_pipe(Messages, os.fdopen(read_end, "rb"))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "kubeloop",
            "apiserver",
            "--supervised",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=write_end,
            env={**os.environ, "KUBELOOP_TOKEN": token},  # arguments are visible to all users of the machine
            start_new_session=True,  # Ctrl-C in the terminal stops this process, which then stops the cluster in order
        )
    finally:
        os.close(write_end)
    assert process.stdin is not None
    try:
        yield StartingApiServer(process, messages)
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        await messages.wait_complete()
        pipe.close()


class ApiServerExited(Exception):
    """The process could not start and has printed the reason; `code` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code
