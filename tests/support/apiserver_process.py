"""`kubeloop apiserver` as a process, for tests that speak HTTP to it."""

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


def apiserver_command(folder: Path, *more: str) -> list[str]:
    """The command without nodes; its kubeconfig is `folder`/kubeconfig."""
    return [
        sys.executable, "-m", "kubeloop", "apiserver", "--nodes=0", f"--kubeconfig={folder / 'kubeconfig'}", *more,
    ]  # fmt: skip


@asynccontextmanager
async def running_apiserver(folder: Path, *more: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The process and its URL without TLS, once it answers; killed in the end, if it still lives."""
    process = await asyncio.create_subprocess_exec(
        *apiserver_command(folder, *more), stdout=subprocess.PIPE, env={**os.environ, "KUBELOOP_TOKEN": TOKEN}
    )
    try:
        assert process.stdout is not None
        found = _URL.search((await process.stdout.readline()).decode())
        assert found, "it has ended; its last words are on stderr"
        yield process, f"http://{found[1]}"
    finally:
        kill_process(process)
        await process.wait()


def kill_process(process: asyncio.subprocess.Process) -> None:
    """SIGKILL. Not send_signal(), which may take the exit status away from whoever waits for it."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


@contextmanager
def running_apiserver_sync(command: list[str]) -> Iterator[tuple[str, Callable[[], str]]]:
    """As serving(), for tests without an event loop: the URL, and what the process has said on stderr so far."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "KUBELOOP_TOKEN": TOKEN}
        )
        try:
            assert process.stdout is not None
            found = _URL.search(process.stdout.readline())

            def told() -> str:
                log.seek(0)
                return log.read()

            assert found, told()
            yield f"http://{found[1]}", told
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
