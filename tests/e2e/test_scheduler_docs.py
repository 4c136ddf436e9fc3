"""docs/scheduler.md: the test writes its files and runs its commands in order."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.processes.cli_processes import ROOT, TIMEOUT_SECONDS, reserved_port, running_cluster

PAGE = ROOT / "docs" / "scheduler.md"
EXTENDER_PORT = "10888"


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    """The page, with a free port for the extender."""
    with reserved_port() as port:
        yield PAGE.read_text().replace(EXTENDER_PORT, str(port))


@pytest.fixture
def folder(page, tmp_path) -> Path:
    """A folder with the files of the page, in which its commands run."""
    for name, text in re.findall(r"^```\w+\n# (\S+\.(?:yaml|py))\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    return tmp_path


def commands(page: str, title: str) -> list[str]:
    section = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section is not None
    return [line for block in re.findall(r"^```sh\n(.*?)^```", section[1], re.M | re.S) for line in block.splitlines()]


class PageCommands:
    """Runs commands of the page. `kubeloop up` keeps running until the next `kubeloop up`."""

    def __init__(self, kubeloop, folder: Path, stack: contextlib.ExitStack) -> None:
        self._kubeloop = kubeloop
        self._folder = folder
        self._up = stack.enter_context(contextlib.ExitStack())
        self._background = stack
        self.environment = kubeloop.environment
        self.outputs: dict[str, str] = {}
        self.cluster = None
        self.kubectl = None

    def run(self, line: str) -> None:
        if line.startswith("kubeloop up "):
            self._up.close()
            arguments = [self._existing_path(word) for word in shlex.split(line)[2:]]
            self.cluster, self.kubectl = self._up.enter_context(
                running_cluster(self._kubeloop, self._folder, *arguments)
            )
            self.environment = self.environment | {"PID": str(self.cluster.process.pid)}
        elif line.startswith("export ENDPOINT="):
            self.environment = self.environment | {"ENDPOINT": self.cluster.wait_for(r"endpoint (http://\S+)").group(1)}
        elif line.endswith(" &"):
            process = subprocess.Popen([sys.executable, *shlex.split(line)[1:-1]], cwd=self._folder)
            self._background.callback(process.wait)
            self._background.callback(process.kill)
        else:
            # `python -m kubeloop`, because kubeloop need not be on the PATH
            command = re.sub(r"^kubeloop ", f"{shlex.quote(sys.executable)} -m kubeloop ", line)
            result = subprocess.run(
                command,
                shell=True,
                cwd=self._folder,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
            assert result.returncode == 0, f"{line}: {result.stderr}"
            self.outputs[line] = result.stdout

    def _existing_path(self, word: str) -> str:
        path = self._folder / word
        return os.fspath(path) if path.exists() else word


@pytest.fixture
def page_commands(kubeloop, folder):
    with contextlib.ExitStack() as stack:
        yield PageCommands(kubeloop, folder, stack)


def test_configuration_commands(page_commands, page, folder):
    for line in commands(page, "Configuration"):
        page_commands.run(line)
    complete = yaml.safe_load((folder / "complete.yaml").read_text())
    assert [profile["schedulerName"] for profile in complete["profiles"]] == ["default-scheduler", "packing"]
    (configz,) = (output for line, output in page_commands.outputs.items() if "configz" in line)
    assert "MostAllocated" in configz
    assert "roundRobin" in configz


def test_table_lists_all_kubeloop_keys(page):
    from kubeloop.scheduler.config.v1 import KubeloopSettings

    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(KubeloopSettings.__struct_encode_fields__)


def test_legacy_configuration_commands(page_commands, page, folder):
    for line in commands(page, "Legacy configuration"):
        page_commands.run(line)
    translated = yaml.safe_load((folder / "translated.yaml").read_text())
    assert "SelectorSpread" in str(translated)


@pytest.mark.usefixtures("needs_kubectl")
def test_extenders_commands(page_commands, page):
    for line in commands(page, "Extenders"):
        page_commands.run(line)
    nodes = {pod["spec"]["nodeName"] for pod in page_commands.kubectl.json("get", "pods")["items"]}
    assert nodes
    assert all(name[-1] in "02468" for name in nodes)


def test_pod_group_commands_have_the_documented_output(page_commands, page):
    section = re.search(r"^## Pod groups\n(.*?)(?=^## )", page, re.MULTILINE | re.DOTALL)[1]
    explanation, trace = re.findall(r"^```text\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    for line in commands(page, "Pod groups"):
        page_commands.run(line)
        if line.startswith("kubeloop nodes add"):
            page_commands.cluster.wait_for("runs until Ctrl-C")
    outputs = page_commands.outputs
    assert "group attempt 1" in outputs["kubeloop trace podgroup/train"]
    assert _normalized(explanation) in _normalized(outputs["kubeloop explain podgroup/simulation"])
    shown = {*map(_normalized, outputs["kubeloop trace podgroup/simulation"].splitlines())}
    assert {*map(_normalized, trace.splitlines())} <= shown


def _normalized(output: str) -> str:
    """Remove what differs between runs: names of pods, durations and their bars, line breaks."""
    output = re.sub(r" Next attempt in \d+ s\.|[█▏▎▍▌▋▊▉]", "", output)
    output = re.sub(r"simulation-\d-\w{5}", "simulation-N", output)
    return " ".join(re.sub(r"[\d.]+ (µs|ms|s)\b", "", output).split())


def test_explain_and_debug_commands(page_commands, page):
    for line in (*commands(page, "Why is this pod pending?"), *commands(page, "Cache and queue")):
        page_commands.run(line)
    assert "NodeAffinity" in page_commands.outputs["kubeloop explain pod/impossible -n mixed"]
    assert '"differences"' in page_commands.outputs["curl -sf $ENDPOINT/debug/scheduler"]
    page_commands.cluster.wait_for("Dump of scheduling queue")
