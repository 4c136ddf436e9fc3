"""Failures of standard streams: one line, and an exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubeloop import KUBERNETES_VERSION, __version__
from kubeloop.__main__ import run
from kubeloop.cli.main import commands
from kubeloop.devcluster.openapi.discovery import VERSION

COMMAND = [sys.executable, "-m", "kubeloop"]
FULL = Path("/dev/full")
_needs_full = pytest.mark.skipif(not FULL.exists(), reason="needs /proc")


@_needs_full
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("command", [["version"], ["up", "--help"], ["up", "--once", "--nodes", "1"]], ids=" ".join)
def test_full_device_is_an_error_in_one_line(command: list[str], unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with FULL.open("wb") as full:
        result = subprocess.run([*COMMAND, *command], stdout=full, stderr=subprocess.PIPE, env=environment, check=False)
    assert (result.returncode, result.stderr.decode()) == (
        1,
        "error: cannot write to stdout: No space left on device\n",
    )


@_needs_full
def test_exit_code_remains_when_stderr_fails() -> None:
    with FULL.open("wb") as full:
        assert subprocess.run([*COMMAND, "no-such-command"], stderr=full, check=False).returncode == 2


@pytest.mark.parametrize(("closed", "arguments", "code"), [(1, "version", 0), (2, "nope", 2), (0, "version", 0)])
def test_closed_stream_is_no_error(closed: int, arguments: str, code: int) -> None:
    script = f'exec "$@" {closed}>&-'
    result = subprocess.run(["sh", "-c", script, "sh", *COMMAND, arguments], capture_output=True, check=False)
    assert result.returncode == code
    assert b"Traceback" not in result.stderr


def test_reader_that_ends_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    result = subprocess.run([*COMMAND, "--help"], stdout=write_end, stderr=subprocess.PIPE, check=False)
    os.close(write_end)
    assert (result.returncode, result.stderr) == (1, b"")


def test_characters_that_the_encoding_lacks_are_replaced() -> None:
    code = "import kubeloop; kubeloop.__version__ = '\u25a0'; from kubeloop.__main__ import main; main()"
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-c", code, "version"]
    result = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.startswith(b"kubeloop ? ")


def test_version_and_server_state_the_release_that_is_followed() -> None:
    result = subprocess.run([*COMMAND, "version"], capture_output=True, text=True, check=True)
    assert result.stdout == f"kubeloop {__version__} (follows Kubernetes {KUBERNETES_VERSION})\n"
    assert VERSION["gitVersion"] == f"{KUBERNETES_VERSION}+kubeloop"
    assert KUBERNETES_VERSION.startswith(f"v{VERSION['major']}.{VERSION['minor']}.")


def test_lack_of_memory_is_an_error_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def fail(**_: object) -> None:
        raise ExceptionGroup("unhandled errors in a TaskGroup", [ExceptionGroup("inner", [MemoryError()])])

    monkeypatch.setattr(commands, "main", fail)
    assert run(["replay"]) == 2
    assert capsys.readouterr().err.startswith("error: not enough memory\n  hint: ")
