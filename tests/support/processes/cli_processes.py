"""`kubeloop` and kubectl as processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
WEB = ROOT / "deploy" / "examples" / "web.yaml"
MIXED = ROOT / "deploy" / "examples" / "mixed.yaml"
TIMEOUT_SECONDS = 120.0  # far longer than any step takes, even on a busy machine


def wait_until(condition: Callable[[], object], description: str) -> None:
    """Poll `condition` until it is true. Raises AssertionError with the description after TIMEOUT_SECONDS."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < TIMEOUT_SECONDS, f"not within {TIMEOUT_SECONDS:g} s: {description}"
        time.sleep(0.05)


@contextmanager
def reserved_port() -> Iterator[int]:
    """Yield a port that processes can bind by its number, repeatedly.

    A bound socket that does not listen reserves the port: Linux does not assign it as an ephemeral port.
    """
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


class Kubeloop:
    """The kubeloop command, with its own runtime folder so that test runs are isolated."""

    def __init__(self, folder: Path) -> None:
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "COLUMNS": "160"}
        self.environment.pop("KUBECONFIG", None)

    def run(self, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kubeloop", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            env=self.environment | environment,
        )

    def json(self, *arguments: object) -> dict:
        result = self.run(*arguments)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    @contextmanager
    def running(self, *arguments: object, **environment: str) -> Iterator[KubeloopProcess]:
        process = subprocess.Popen(
            [sys.executable, "-m", "kubeloop", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=self.environment | environment,
        )
        running = KubeloopProcess(process)
        try:
            yield running
        finally:
            running.stop()


class KubeloopProcess:
    """A running kubeloop process. Threads read stdout and stderr, so that the process never blocks on its output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._open_streams = 2
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (process.stdout, process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the first match of `pattern` in the output. Fails if the output ends without a match."""

        def search() -> re.Match[str] | None:
            return next((match for line in self.lines if (match := re.search(pattern, line))), None)

        with self._changed:
            ended = self._changed.wait_for(lambda: search() is not None or not self._open_streams, TIMEOUT_SECONDS)
            match = search()
        assert match is not None, f"no line with {pattern!r} ({'ended' if ended else 'timed out'}):\n" + "".join(
            self.lines
        )
        return match

    def wait_for_end(self) -> None:
        """Wait until stdout and stderr are closed by the process and by children that inherited them."""
        for reader in self._readers:
            reader.join(TIMEOUT_SECONDS)
            assert not reader.is_alive(), "a child process still holds the output of the exited process"

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the process to exit and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(TIMEOUT_SECONDS)
        for reader in self._readers:
            reader.join(TIMEOUT_SECONDS)
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()
        return code

    def _read(self, stream) -> None:
        for line in stream:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._open_streams -= 1
            self._changed.notify_all()


class Kubectl:
    """The kubectl command with a kubeconfig."""

    def __init__(self, kubeconfig: str, home: Path) -> None:
        self._environment = {**os.environ, "KUBECONFIG": kubeconfig, "HOME": str(home)}

    def run(self, *arguments: object, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["kubectl", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            input=stdin,
            env=self._environment,
        )

    def start(self, *arguments: object, terminal: int | None = None) -> subprocess.Popen[str]:
        """Start a command whose stdout the caller reads. terminal: its end of a terminal, else stdout is a pipe."""
        stdout = subprocess.PIPE if terminal is None else terminal
        return subprocess.Popen(
            ["kubectl", *map(str, arguments)], stdin=terminal, stdout=stdout, text=True, env=self._environment
        )

    def __call__(self, *arguments: object, stdin: str | None = None) -> str:
        result = self.run(*arguments, stdin=stdin)
        assert result.returncode == 0, f"kubectl {' '.join(map(str, arguments))}: {result.stderr}{result.stdout}"
        return result.stdout

    def json(self, *arguments: object) -> dict:
        return json.loads(self(*arguments, "-o", "json"))

    def wait_for_output(self, pattern: str, *arguments: object) -> str:
        """Repeat a command until its output matches `pattern`, and return the output.

        For values that are written asynchronously: events and statuses.
        """
        output = ""

        def matches() -> bool:
            nonlocal output
            output = self(*arguments)
            return re.search(pattern, output) is not None

        try:
            wait_until(matches, f"{pattern!r} in the output of kubectl {' '.join(map(str, arguments))}")
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{output}") from None
        return output


@contextmanager
def running_cluster(kubeloop: Kubeloop, home: Path, *arguments: object) -> Iterator[tuple[KubeloopProcess, Kubectl]]:
    """Run `kubeloop up` and yield it, once the cluster is complete or its --timeout has passed, with kubectl for it."""
    with kubeloop.running("up", *arguments) as up:
        kubeconfig = up.wait_for(r"export KUBECONFIG=(\S+)").group(1)
        up.wait_for("runs until Ctrl-C|not complete after")
        yield up, Kubectl(kubeconfig, home)
