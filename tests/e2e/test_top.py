"""`kubeloop top` in a terminal of 80 columns, of a development cluster and of a process that observes it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.processes.cli_processes import TIMEOUT_SECONDS, Kubeloop, running_cluster

pytest.importorskip("textual", reason="textual is not installed")

LEAVE_SCREEN = b"\x1b[?1049l"
PENDING = """
apiVersion: v1
kind: Pod
metadata: {name: impossible, namespace: default}
spec:
  nodeSelector: {disk: none}
  containers: [{name: app, image: app}]
"""


class Terminal:
    """A command in a pseudo-terminal; `output` has all that it has written."""

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process = process
        self.output = b""
        self._fd = fd

    def wait_for(self, text: str) -> None:
        """Read until the output since the last key has `text`."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while text.encode() not in self.output[self._typed_at :]:
            assert time.monotonic() < deadline, self.output[self._typed_at :]
            self._read()

    _typed_at = 0

    def press(self, keys: str) -> None:
        self._typed_at = len(self.output)
        os.write(self._fd, keys.encode())

    def wait_for_end(self) -> int:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            self._read()
        self._read()
        return self.process.returncode

    def _read(self) -> None:
        if select.select([self._fd], [], [], 0.1)[0]:
            self.output += os.read(self._fd, 65536)


@contextmanager
def top(kubeloop: Kubeloop, *arguments: str, **environment: str) -> Iterator[Terminal]:
    fd, terminal = pty.openpty()
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    variables = {**kubeloop.environment, "TERM": "xterm-256color", **environment}
    variables.pop("COLUMNS")
    command = [sys.executable, "-m", "kubeloop", "top", *arguments]
    process = subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=variables, start_new_session=True
    )
    try:
        yield Terminal(process, fd)
    finally:
        process.kill()
        process.wait()
        os.close(fd)
        os.close(terminal)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("top")
    manifest = folder / "pending.yaml"
    manifest.write_text(PENDING)
    kubeloop = Kubeloop(folder)
    with running_cluster(kubeloop, folder, "--nodes=2", "--timeout=10s", "-f", manifest) as (up, kubectl):
        yield kubeloop, up, kubectl


def test_top_opens_waterfall_and_explanation_and_quits(cluster):
    kubeloop, _, _ = cluster
    with top(kubeloop) as terminal:
        terminal.wait_for("default/impossible")
        terminal.press("\r")
        terminal.wait_for("queue unschedulable")
        terminal.press("\x1b")
        terminal.wait_for("pods 1 ")  # of the list; a detail has the name of the pod, too
        terminal.press("e")
        terminal.wait_for("NodeAffinity")
        terminal.press("q")
        terminal.wait_for("pods 1 ")
        terminal.press(":nodes\r")
        terminal.wait_for("nodes 2 ")
        terminal.press("q")
        assert terminal.wait_for_end() == 0
        assert terminal.output.endswith(LEAVE_SCREEN) or LEAVE_SCREEN in terminal.output[-400:]
    assert b"Traceback" not in terminal.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_top_restores_the_terminal_at_a_signal(cluster, number):
    kubeloop, _, _ = cluster
    with top(kubeloop) as terminal:
        terminal.wait_for("default/impossible")
        terminal.process.send_signal(number)
        assert terminal.wait_for_end() == 0
        assert LEAVE_SCREEN in terminal.output


def test_no_color_writes_no_colors(cluster):
    kubeloop, _, _ = cluster
    with top(kubeloop, NO_COLOR="1") as terminal:
        terminal.wait_for("default/impossible")
        terminal.press("q")
        terminal.wait_for_end()
    codes = {int(code or 0) for codes in re.findall(rb"\x1b\[([\d;]*)m", terminal.output) for code in codes.split(b";")}
    assert codes
    assert not {code for code in codes if 30 <= code <= 38 or 40 <= code <= 48 or code >= 90}


def test_top_shows_an_observed_cluster(cluster, tmp_path):
    kubeloop, up, _ = cluster
    kubeconfig = up.wait_for(r"export KUBECONFIG=(\S+)").group(1)
    with kubeloop.running("observe", "--kubeconfig", kubeconfig) as observe:
        url = observe.wait_for(r"endpoint (http://\S+)").group(1)
        with top(kubeloop, "--endpoint", url) as terminal:
            terminal.wait_for("default/impossible")
            terminal.press("d")
            terminal.wait_for("PodScheduled")
            terminal.press("\x1b")
            terminal.wait_for("default/impossible")
            terminal.press("e")
            terminal.wait_for("node affinity")
            terminal.press("q")
            terminal.wait_for("default/impossible")
            terminal.press(":nodes\r")
            terminal.wait_for("nodes 2 ")
            terminal.press("q")
            assert terminal.wait_for_end() == 0


def test_top_in_a_pipe_is_an_error(cluster):
    kubeloop, _, _ = cluster
    result = kubeloop.run("top")
    assert result.returncode == 2
    assert "needs a terminal" in result.stderr
