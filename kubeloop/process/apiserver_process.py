"""The development cluster as a process of its own, for the length of a context."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence

import msgspec

from kubeloop.kube.errors import UserError

_START_SECONDS = 30.0
_STOP_SECONDS = 5.0


class Ready(msgspec.Struct, frozen=True):
    """What the child announces on its stdout, as one line of JSON, once it serves."""

    server: str
    plain_server: str
    kubeconfig: str


class ApiServerProcess(msgspec.Struct, frozen=True):
    """A development cluster that runs. `plain_server` is its URL without TLS, for this process alone."""

    server: str
    plain_server: str
    kubeconfig: str
    process: asyncio.subprocess.Process

    async def ended(self) -> None:
        """Wait for the process. Always raises UserError: it should have outlived us."""
        code = await self.process.wait()
        raise UserError(f"the development cluster ended (exit code {code})", hint="its last words are above, on stderr")


class StartingApiServer:
    """A development cluster on its way."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ready(self) -> ApiServerProcess:
        """Wait until it serves. Raises UserError if it takes too long, ClusterFailed if it has told the user why."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_START_SECONDS):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise UserError(
                f"the development cluster did not start within {_START_SECONDS:g} s", hint="try again with -v debug"
            ) from None
        if not line:
            raise ApiServerExited(await self._process.wait())
        ready = msgspec.json.decode(line, type=Ready)
        return ApiServerProcess(ready.server, ready.plain_server, ready.kubeconfig, self._process)


@contextlib.asynccontextmanager
async def starting_api_server(arguments: Sequence[str], *, token: str) -> AsyncIterator[StartingApiServer]:
    """Start `kubeloop apiserver` with these arguments, and stop it in the end.

    The child ends by itself when this process is gone, however that came about: it reads a pipe that we hold open.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kubeloop",
        "apiserver",
        "--supervised",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBELOOP_TOKEN": token},  # not an argument: those are for every user of the machine to see
        start_new_session=True,  # Ctrl-C in our terminal is for us; we then stop the child in order
    )
    assert process.stdin is not None
    try:
        yield StartingApiServer(process)
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


class ApiServerExited(Exception):
    """The child could not start and has told the user why; `code` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code
