"""`kubeloop test-operator`: outputs and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import kubeloop.cli.operator_faults as module
from kubeloop.__main__ import run
from kubeloop.cli.options.operator_fault_options import OperatorFaultOptions
from kubeloop.kube.user_error import UserError
from kubeloop.process.process_files import process_exists
from kubeloop.testing.operator_faults.suite import FaultFinding, OperatorOptions, OperatorReport

REPORT = OperatorReport("op", ["create of Secret a"], {"crash-after:1": "passed"}, [], [], [], omitted=0, seconds=3.0)
FINDING = FaultFinding("crash-after", 1, "after a crash, a second Secret a exists", [], ["create of Secret a"], [])


@pytest.fixture
def tested(monkeypatch: pytest.MonkeyPatch) -> list[OperatorOptions]:
    """Record the options of checks, which report no failure, but for the operator "broken"."""
    options: list[OperatorOptions] = []

    async def check(checked: OperatorOptions, progress: Any) -> OperatorReport:
        options.append(checked)
        progress(1, 1, 0)
        findings = [FINDING] if checked.command == "broken" else []
        return msgspec.structs.replace(REPORT, findings=findings)

    monkeypatch.setattr(module, "check_operator", check)
    return options


def test_exit_code_and_text_show_the_outcome(tested: list[OperatorOptions], capsys: pytest.CaptureFixture[str]):
    assert module.check_faults(OperatorFaultOptions(run="op")) == 0
    assert capsys.readouterr().out.endswith("1 writes, 1 fault classes, 1 runs, 3 s: 0 failures\n")
    assert module.check_faults(OperatorFaultOptions(run="broken", timeout=9.0)) == 1
    output = capsys.readouterr().out
    assert "1. after a crash, a second Secret a exists" in output
    assert output.endswith("repeat: kubeloop test-operator --run broken --timeout=9 --only crash-after:1\n")


def test_options_reach_the_check(tested: list[OperatorOptions], tmp_path: Path):
    (tmp_path / "steps.yaml").write_text("")
    arguments = [
        "--run",
        "op",
        "-f",
        "crds",
        "--only=7",
        "--jobs=2",
        "--nodes=1",
        "--controllers=*,-job",
        "--user=jane",
    ]
    assert run(["test-operator", *arguments, f"--steps={tmp_path}/steps.yaml", "--timeout=1m"]) == 0
    (options,) = tested
    assert (options.files, options.only, options.jobs, options.user) == ((Path("crds"),), ("7",), 2, "jane")
    assert (options.timeout, options.cluster.nodes, options.cluster.controllers) == (60.0, 1, "*,-job")


def test_json_and_junit_are_written(tested: list[OperatorOptions], capsys: pytest.CaptureFixture[str], tmp_path: Path):
    junit = tmp_path / "junit.xml"
    assert module.check_faults(OperatorFaultOptions(run="op", as_json=True, junit=junit)) == 0
    assert json.loads(capsys.readouterr().out)["writes"] == ["create of Secret a"]
    assert 'tests="1" failures="0"' in junit.read_text()
    with pytest.raises(UserError, match="cannot write"):
        module.check_faults(OperatorFaultOptions(run="op", junit=tmp_path / "none" / "junit.xml"))


def test_invalid_input_has_exit_code_2(capsys: pytest.CaptureFixture[str]):
    assert run(["test-operator", "--run", "/nowhere/operator", "-f", "crds"]) == 2
    assert "error: --run: there is no command '/nowhere/operator'" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_stopped_command_leaves_no_process_and_no_file(tmp_path: Path, number: signal.Signals, code: int):
    operators, temporary, pid_file = Path(__file__).resolve().parents[3] / "operators", tmp_path / "t", tmp_path / "pid"
    temporary.mkdir()
    operator = f"sh -c 'echo $$ > {pid_file}; sleep 60 & wait'"
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "kubeloop", "test-operator", f"--run={operator}"),
            *("-f", operators / "crd.yaml", "-f", operators / "site.yaml"),
        ],
        env={**os.environ, "TMPDIR": str(temporary)},
    ) as command:
        until(lambda: pid_file.exists() and pid_file.read_text() != "")
        assert os.listdir(temporary) != []
        command.send_signal(number)
        assert command.wait() == code
    until(lambda: not process_exists(int(pid_file.read_text())) and os.listdir(temporary) == [])


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.02)
