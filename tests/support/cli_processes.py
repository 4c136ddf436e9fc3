"""Driving the command as its users do: `kubeloop` and kubectl as processes."""

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

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "deploy" / "examples" / "web.yaml"
MIXED = ROOT / "deploy" / "examples" / "mixed.yaml"
TIMEOUT_SECONDS = 120.0  # far more than anything here takes, on a busy machine too; only a hanging process meets it


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Ask again and again until the answer is true: what others do in their own time is waited for, never slept for."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < TIMEOUT_SECONDS, f"not within {TIMEOUT_SECONDS:g} s: {what}"
        time.sleep(0.05)


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port that only those get who ask for it by its number, however often they come and go in the meantime.

    Held by a socket that does not listen: Linux gives such a port to nobody else, server or client, who asks for any.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


class Kubeloop:
    """The command, with a runtime folder of its own so that test runs do not see each other."""

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
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

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
    """A kubeloop process that stays up. Both its outputs are read all the time, so that it never blocks on them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._open = 2  # outputs that are not at their end
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (process.stdout, process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first line in which `pattern` is found. Fails if the process ends without it."""

        def search() -> re.Match[str] | None:
            return next((found for line in self.lines if (found := re.search(pattern, line))), None)

        with self._changed:
            ended = self._changed.wait_for(lambda: search() is not None or not self._open, TIMEOUT_SECONDS)
            found = search()
        assert found is not None, f"no line with {pattern!r} ({'ended' if ended else 'timed out'}):\n" + "".join(
            self.lines
        )
        return found

    def wait_for_end(self) -> None:
        """Until both outputs are closed: by this process, and by children that hold them."""
        for reader in self._readers:
            reader.join(TIMEOUT_SECONDS)
            assert not reader.is_alive(), "somebody still holds the output of a process that is gone"

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; the exit code."""
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
            self._open -= 1
            self._changed.notify_all()


class Kubectl:
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

    def __call__(self, *arguments: object, stdin: str | None = None) -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(map(str, arguments))}: {done.stderr}{done.stdout}"
        return done.stdout

    def json(self, *arguments: object) -> dict:
        return json.loads(self(*arguments, "-o", "json"))

    def shows(self, pattern: str, *arguments: object) -> str:
        """Ask until `pattern` is found in the answer, which is returned.

        For what comes after the change that a test has waited for: events, which are written behind, and statuses.
        """
        answer = ""

        def found() -> bool:
            nonlocal answer
            answer = self(*arguments)
            return re.search(pattern, answer) is not None

        try:
            wait_until(found, f"{pattern!r} in the answer to kubectl {' '.join(map(str, arguments))}")
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{answer}") from None
        return answer


@contextmanager
def running_cluster(kubeloop: Kubeloop, home: Path, *arguments: object) -> Iterator[tuple[KubeloopProcess, Kubectl]]:
    """`kubeloop up` with these arguments, once everything in it is complete, and kubectl for it."""
    with kubeloop.running("up", *arguments) as up:
        kubeconfig = up.wait_for(r"export KUBECONFIG=(\S+)").group(1)
        up.wait_for("runs until Ctrl-C")
        yield up, Kubectl(kubeconfig, home)
