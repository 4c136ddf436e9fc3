"""`kubeloop apiserver` as a process, for tests that send requests over HTTP."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

TOKEN = "for-a-test"
_URL = re.compile(r"https://(127\.0\.0\.1:\d+)")


def apiserver_command(folder: Path, *flags: str) -> list[str]:
    """Return the command of an API server without nodes. It writes its kubeconfig to `folder`/kubeconfig."""
    return [
        sys.executable, "-m", "kubeloop", "apiserver", "--nodes=0", f"--kubeconfig={folder / 'kubeconfig'}", *flags,
    ]  # fmt: skip


def bare_apiserver_command(
    folder: Path, feature_gates: str = "", authorization_modes: str = "AlwaysAllow", plugins: str = ""
) -> list[str]:
    """Return the command of an API server without nodes and controllers, see `bare_apiserver`.

    plugins: comma-separated admission plugins that run in addition to the default ones.
    """
    script = Path(__file__).with_name("bare_apiserver.py")
    return [sys.executable, str(script), str(folder), feature_gates, authorization_modes, plugins]


@asynccontextmanager
async def running_apiserver(command: list[str]) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Start an API server by its command; yield the process and its URL without TLS once it serves.

    The process is killed at the end.
    """
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, env={**os.environ, "KUBELOOP_TOKEN": TOKEN}
    )
    try:
        assert process.stdout is not None
        address = _URL.search((await process.stdout.readline()).decode())
        assert address, "the API server exited; see stderr"
        yield process, f"http://{address[1]}"
    finally:
        kill_process(process)
        await process.wait()


def kill_process(process: asyncio.subprocess.Process) -> None:
    """Send SIGKILL. Does not use send_signal(), which may reap the process before `process.wait()` sees its status."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


@contextmanager
def running_apiserver_sync(command: list[str]) -> Iterator[tuple[str, Callable[[], str]]]:
    """Like running_apiserver(), for tests without an event loop; yield the URL and a function that reads stderr."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "KUBELOOP_TOKEN": TOKEN}
        )
        try:
            assert process.stdout is not None
            address = _URL.search(process.stdout.readline())

            def read_log() -> str:
                log.seek(0)
                return log.read()

            assert address, read_log()
            yield f"http://{address[1]}", read_log
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
