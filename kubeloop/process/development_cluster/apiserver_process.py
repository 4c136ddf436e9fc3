"""The development cluster as a separate process, for the length of a context."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator

import msgspec

from kubeloop.kube.user_error import UserError
from kubeloop.process.development_cluster.apiserver_command import STOP_SECONDS

_START_SECONDS = 30.0
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
    process: subprocess.Popen[bytes]
    stdout: asyncio.StreamReader
    messages: Messages

    async def ended(self) -> None:
        """Wait for the process to end, then raise UserError: it should run until it is stopped."""
        await self.stdout.read()
        code = self.process.wait()
        await self.messages.wait_complete()
        raise UserError(f"the development cluster ended (exit code {code})", hint="see its messages above, on stderr")


class StartingApiServer:
    """A development cluster that is starting."""

    def __init__(self, process: subprocess.Popen[bytes], stdout: asyncio.StreamReader, messages: Messages) -> None:
        self._process = process
        self._stdout = stdout
        self._messages = messages

    async def ready(self) -> ApiServerProcess:
        """Wait until it serves. Raises UserError after a timeout, ApiServerExited if it reported an error itself."""
        try:
            async with asyncio.timeout(_START_SECONDS):
                line = await self._stdout.readline()
        except TimeoutError:
            raise UserError(
                f"the development cluster did not start within {_START_SECONDS:g} s", hint="try again with -v debug"
            ) from None
        if not line:
            code = self._process.wait()
            await self._messages.wait_complete()
            raise ApiServerExited(code)
        return ApiServerProcess(msgspec.json.decode(line, type=Ready), self._process, self._stdout, self._messages)


@contextlib.asynccontextmanager
async def starting_api_server(process: subprocess.Popen[bytes]) -> AsyncIterator[StartingApiServer]:
    """Read the output of an api_server_process(), and stop it at the end of the context."""
    assert process.stdin is not None
    loop = asyncio.get_running_loop()
    # The transports close these pipes later: Popen must not close them first, so that their descriptors are reused.
    pipes, process.stderr, process.stdout = (process.stderr, process.stdout), None, None
    pipe, messages = await loop.connect_read_pipe(Messages, pipes[0])
    stdout = asyncio.StreamReader()
    output, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), pipes[1])
    try:
        yield StartingApiServer(process, stdout, messages)
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await stdout.read()  # ends with the process
        except TimeoutError:
            process.kill()
        process.wait()
        await messages.wait_complete()
        pipe.close()
        output.close()


class ApiServerExited(Exception):
    """The process could not start and has printed the reason; `code` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code
