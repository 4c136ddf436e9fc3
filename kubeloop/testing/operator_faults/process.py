"""The operator's processes: start, kill, pause, terminate; and a guard that ends them whatever happens to this one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kubeloop.kube.user_error import UserError

_GUARD = """
import os, shutil, signal, sys
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""
_IN_CLUSTER = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")  # would take precedence over the kubeconfig
_TAIL_BYTES, _TAIL_LINES, _LINE_LENGTH = 8192, 5, 240


class Guard:
    """A process that kills the operator's processes and removes the folder when this process ends, in any way."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _GUARD, str(folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the terminal does not reach it
        )

    def watch(self, group: int) -> None:
        self._send(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._send(f"-{group}\n")

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()

    def close(self) -> None:
        """Kill what runs, remove the folder, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class OperatorProcess:
    """A process of the operator, with its own process group. log: file of its output."""

    def __init__(self, process: asyncio.subprocess.Process, guard: Guard, log: Path) -> None:
        self._process = process
        self._guard = guard
        self.log = log

    @classmethod
    async def start(cls, command: Sequence[str], kubeconfig: Path, guard: Guard, log: Path) -> OperatorProcess:
        """Start a process whose output is appended to `log`. Raises UserError if there is no such program."""
        environment = {name: value for name, value in os.environ.items() if name not in _IN_CLUSTER}
        with log.open("ab") as output:
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=asyncio.subprocess.STDOUT,
                    env={**environment, "KUBECONFIG": str(kubeconfig)},
                    start_new_session=True,
                )
            except OSError as error:
                raise UserError(
                    f"--run: cannot start {command[0]}: {error.strerror}", hint="check the path and its permissions"
                ) from None
        guard.watch(process.pid)
        return cls(process, guard, log)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """Wait for the end of the process; return its exit code, negative for a signal."""
        code = await self._process.wait()
        self.signal(signal.SIGKILL)  # what it has left behind
        self._guard.forget(self.pid)
        return code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def terminate(self, seconds: float) -> bool:
        """Send SIGTERM, and SIGKILL after some seconds; return False if that was necessary."""
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            self.signal(signal.SIGKILL)
            return False
        return True

    def log_tail(self) -> list[str]:
        """Return the last lines of the output."""
        return log_tail(self.log)

    def is_computing(self) -> bool:
        """Return True if one of its threads runs or waits for a CPU; False where there is no /proc."""
        threads = (thread for pid in process_tree(self.pid) for thread in _threads(pid))
        return any(_read(f"{thread}/stat").rpartition(b")")[2][1:2] in (b"R", b"D") for thread in threads)


def process_tree(pid: int) -> Iterator[int]:
    """Yield a process and its descendants; the process alone where there is no /proc."""
    yield pid
    for thread in _threads(pid):
        for child in _read(f"{thread}/children").split():
            yield from process_tree(int(child))


def _threads(pid: int) -> list[str]:
    """Return the folders of a process's threads in /proc; none if it has ended."""
    return [f"/proc/{pid}/task/{name}" for name in names_in(f"/proc/{pid}/task")]


def names_in(folder: str) -> list[str]:
    """Return the names in a folder of /proc; none if its process has ended."""
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def _read(path: str) -> bytes:
    """Return the content of a file of /proc; nothing if its process has ended. Called for each thread, many times."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return os.read(descriptor, 1 << 16)
        finally:
            os.close(descriptor)
    return b""


def log_tail(log: Path) -> list[str]:
    """Return the last lines of a file."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
    return [line if len(line) <= _LINE_LENGTH else f"{line[:_LINE_LENGTH]}..." for line in lines]
