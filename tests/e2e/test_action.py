"""The steps of action.yml, run as GitHub's runner runs them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.processes.cli_processes import ROOT, TIMEOUT_SECONDS, WEB

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]  # pip downloads
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())


@dataclass
class Runner:
    """A job: the folder of its files, and what the steps have exported to following steps."""

    folder: Path
    inputs: dict[str, str]

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run the steps whose condition holds, up to the first that fails; return the last."""
        for step in ACTION["runs"]["steps"]:
            if self._holds(step.get("if", "")):
                result = self.shell(step["run"], **{name: self._value(text) for name, text in step["env"].items()})
                if result.returncode:
                    break
        return result

    def shell(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        files = {name: str(self.folder / name) for name in ("GITHUB_PATH", "GITHUB_ENV", "GITHUB_OUTPUT")}
        path = ":".join([*self.exported("GITHUB_PATH"), str(Path(sys.executable).parent), os.environ["PATH"]])
        variables = dict(line.split("=", 1) for line in self.exported("GITHUB_ENV"))
        own = dict.fromkeys(("HOME", "RUNNER_TEMP", "XDG_RUNTIME_DIR"), str(self.folder))
        own |= {"PATH": path, "PIP_NO_COMPILE": "1"}
        inherited = {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "PATH")}
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=ROOT,
            env=inherited | files | own | variables | environment,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    def exported(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def _value(self, text: str) -> str:
        values = {f"${{{{ inputs.{name} }}}}": value for name, value in self.inputs.items()}
        return (values | {"${{ github.action_path }}": str(ROOT)})[text]

    def _holds(self, condition: str) -> bool:
        conditions = {"": True, "inputs.files != ''": self.inputs["files"] != ""}
        conditions["inputs.files == ''"] = not conditions["inputs.files != ''"]
        return conditions[condition]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Iterator[Path]:
    """The temporary folder of a runner, where the first step of the first test installs kubeloop."""
    folder = tmp_path_factory.mktemp("runner")
    yield folder
    shutil.rmtree(folder)  # pytest would keep it for three runs, and then remove it while no test runs


@pytest.fixture
def runner(folder):
    for name in ("GITHUB_PATH", "GITHUB_ENV", "GITHUB_OUTPUT"):
        (folder / name).unlink(missing_ok=True)
    defaults = {name: str(entry["default"]) for name, entry in ACTION["inputs"].items()}
    return Runner(folder, defaults)


def require(result: subprocess.CompletedProcess[str]) -> None:
    if "No matching distribution found" in result.stderr:
        pytest.skip("no package index: pip cannot install the dependencies")
    assert result.returncode == 0, result.stderr + result.stdout


def test_cluster_runs_until_the_job_ends_and_later_steps_have_its_kubeconfig(runner, needs_kubectl):
    runner.inputs["arguments"] = "--nodes=3"
    require(runner.run())
    try:
        nodes = runner.shell("kubectl get nodes --no-headers")
        assert nodes.stdout.count(" Ready ") == 3, nodes.stderr
        kubeconfig = runner.exported("GITHUB_OUTPUT")[0].removeprefix("kubeconfig=")
        assert runner.exported("GITHUB_ENV") == [f"KUBECONFIG={kubeconfig}"]
        assert runner.shell("kubeloop version").returncode == 0
    finally:
        (process,) = runner.shell(f"pgrep -f 'kubeloop up --kubeconfig {runner.folder}'").stdout.split()
        os.kill(int(process), signal.SIGTERM)
        runner.shell(f"timeout {TIMEOUT_SECONDS} tail --pid={process} -f /dev/null")


def test_check_of_manifests_succeeds_and_leaves_no_cluster(runner):
    runner.inputs["files"] = f"{WEB}\n"
    require(runner.run())
    assert runner.exported("GITHUB_ENV") == []


def test_check_of_manifests_fails_with_the_reason(runner, tmp_path):
    manifest = tmp_path / "pod name.yaml"
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "99"}}}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "large"}, "spec": {"containers": containers}}
    manifest.write_text(yaml.safe_dump(pod))
    runner.inputs |= {"files": f"{WEB}\n{manifest}\n", "arguments": "--timeout=3s"}
    result = runner.run()
    if "No matching distribution found" in result.stderr:
        pytest.skip("no package index: pip cannot install the dependencies")
    assert result.returncode == 1
    assert "Insufficient cpu" in result.stdout + result.stderr


def test_cluster_that_does_not_start_fails_with_its_log(runner):
    runner.inputs["arguments"] = "--nodes=many"
    result = runner.run()
    if "No matching distribution found" in result.stderr:
        pytest.skip("no package index: pip cannot install the dependencies")
    assert result.returncode == 1
    assert "::error::the cluster did not start" in result.stdout
    assert "'many' is not a valid" in result.stdout
