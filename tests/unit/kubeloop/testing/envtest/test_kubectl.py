"""The kubectl of envtest runs the one of the PATH."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kubeloop.testing.envtest.kubectl import main

COMMAND = [sys.executable, "-m", "kubeloop.testing.envtest.kubectl"]


def executable(folder: Path, text: str) -> None:
    folder.mkdir()
    path = folder / "kubectl"
    path.write_text(f'#!/bin/sh\necho {text} "$@"\n')
    path.chmod(0o755)


def test_kubectl_of_the_path_runs_with_the_arguments(tmp_path):
    executable(tmp_path / "assets", "wrong")
    executable(tmp_path / "bin", "right")
    path = f"{tmp_path}/assets:{tmp_path}/bin:/bin:/usr/bin"
    run = subprocess.run(
        [*COMMAND, f"{tmp_path}/assets", "get", "pods"], env={"PATH": path}, capture_output=True, text=True, check=True
    )
    assert run.stdout == "right get pods\n"


def test_missing_kubectl_is_reported(tmp_path, monkeypatch, capsys):
    executable(tmp_path / "assets", "wrong")
    monkeypatch.setenv("PATH", f"{tmp_path}/assets")
    assert main(f"{tmp_path}/assets", []) == 127
    assert capsys.readouterr().err.splitlines()[0] == "error: no kubectl on the PATH"
