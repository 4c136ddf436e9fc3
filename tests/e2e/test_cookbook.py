"""docs/cookbook.md: each task as a script, with a development cluster."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes.cli_processes import MIXED, ROOT, Kubeloop

PAGE = (ROOT / "docs" / "cookbook.md").read_text()
TASKS = re.findall(r"^## \d+\. ([^\n]+)\n\n```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Iterator[dict[str, str]]:
    """The variables of a shell in which kubeloop and kubectl use a development cluster."""
    folder = tmp_path_factory.mktemp("cluster")
    kubeloop = Kubeloop(folder)
    with kubeloop.running("up", "-f", MIXED, "--nodes=6", f"--kubeconfig={folder / 'kubeconfig'}") as up:
        up.wait_for("runs until Ctrl-C")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        yield kubeloop.environment | {"KUBECONFIG": str(folder / "kubeconfig"), "PATH": path}


def test_cookbook_has_twenty_tasks():
    assert len(TASKS) == 20
    assert PAGE.count("\n## ") == 20


@pytest.mark.parametrize(("title", "commands"), TASKS, ids=[title for title, _ in TASKS])
def test_task_succeeds(title, commands, environment, tmp_path, needs_kubectl):
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    script = re.sub(r"^\$ ", "", commands, flags=re.MULTILINE)
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, output
    assert "error:" not in output or "jane" in script
