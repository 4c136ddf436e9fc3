"""Checks of an operator: selection of runs, and errors before any fault is injected."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import weakref
from pathlib import Path
from typing import cast

import pytest

from kubeloop.devcluster.server.listener import listening_socket
from kubeloop.kube.user_error import UserError
from kubeloop.testing.operator_faults import run, suite
from kubeloop.testing.operator_faults.operator_api import OperatorWrite, WriteId
from kubeloop.testing.operator_faults.run import ReferenceRuns, RunResult, RunSettings
from kubeloop.testing.operator_faults.suite import (
    OperatorOptions,
    OperatorReport,
    check_operator,
    selects,
)

OPERATORS = Path(__file__).resolve().parents[4] / "operators"
RESTLESS = """
import sys
sys.path.insert(0, sys.argv[1])
from site_operator import CONFIG_MAPS, Client
client = Client(sys.argv[2])
client.request("POST", CONFIG_MAPS, {"metadata": {"name": "clock"}})
number = 0
while True:
    number += 1
    body = {"data": {"number": str(number)}}
    client.request("PATCH", f"{CONFIG_MAPS}/clock", body, "application/merge-patch+json")
"""

UNREPEATABLE = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from site_operator import CONFIG_MAPS, Client
client = Client(sys.argv[2])
os.makedirs(sys.argv[3], exist_ok=True)
names = [*os.listdir(sys.argv[3]), "first"]
open(os.path.join(sys.argv[3], f"more-{len(names)}"), "w").close()
for name in names:
    client.request("POST", CONFIG_MAPS, {"metadata": {"name": name}})
time.sleep(60)
"""


async def check(command: str, **options: object) -> OperatorReport:
    defaults = {"files": (OPERATORS / "crd.yaml", OPERATORS / "site.yaml"), "quiet": 0.5, "timeout": 3.0}
    return await check_operator(OperatorOptions(command=command, **{**defaults, **options}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("only", "selected"),
    [
        ("crash-after", True),
        ("crash-after:7", True),
        ("7", True),
        ("crash-after:create of Secret", True),
        ("create of Secret", True),
        ("crash-before", False),
        ("crash-after:17", False),
        ("error:7", False),
        ("crash-after:create of ConfigMap", False),
        ("none", False),
    ],
)
def test_only_selects_runs_by_fault_number_or_title(only: str, selected: bool):
    assert selects(only, "crash-after", 7, "create of Secret a-*") == selected


@pytest.mark.parametrize(
    ("command", "options", "problem"),
    [
        ("/nowhere/operator --now", {}, "there is no command '/nowhere/operator'"),
        ("", {}, "there is no command ''"),
        ("sh -c 'x", {}, "--run: No closing quotation"),
        ("sleep 60", {"files": (OPERATORS / "crd.yaml",)}, "no custom resource and no workload"),
        ("sleep 60", {"files": (OPERATORS / "none.yaml",)}, "cannot read"),
        ("sleep 60", {"logs": OPERATORS / "crd.yaml"}, "cannot create"),
        ("sh -c 'echo no license; exit 3'", {}, r"exited by itself \(exit code 3\); its last output:\n +no license"),
        ("sh -c 'echo waiting; sleep 60'", {}, "sent no request to the API server within 3 s; its last output:"),
    ],
)
async def test_invalid_input_is_an_error_before_any_fault(
    command: str, options: dict[str, object], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(run, "_START_SECONDS", 3.0)
    with pytest.raises(UserError, match=problem):
        await check(command, **options)
    assert os.listdir(tmp_path) == []


async def test_invalid_definition_is_an_error(tmp_path: Path):
    (tmp_path / "crd.yaml").write_text((OPERATORS / "crd.yaml").read_text().replace("type: integer", "type: number7"))
    with pytest.raises(UserError, match=r"crd.yaml.*Unsupported value"):
        await check("sleep 60", files=(tmp_path / "crd.yaml", OPERATORS / "site.yaml"))


async def test_operator_that_writes_without_end_is_reported():
    command = f"{sys.executable} -c '{RESTLESS}' {OPERATORS} {{kubeconfig}}"
    with pytest.raises(
        UserError, match="without faults: the operator goes on writing after 3 s: patch of ConfigMap clock"
    ):
        await check(command)


async def test_runs_without_faults_that_end_differently_are_an_error(tmp_path: Path):
    command = f"{sys.executable} -c '{UNREPEATABLE}' {OPERATORS} {{kubeconfig}} {tmp_path / 'state'}"
    with pytest.raises(
        UserError, match=r"two runs without faults end differently: .*ConfigMap default/more-\* was created"
    ):
        await check(command)


async def test_step_that_fails_without_faults_is_an_error(tmp_path: Path):
    steps = tmp_path / "steps.yaml"
    steps.write_text("- patch: site/none\n  merge: {spec: {replicas: 1}}\n")
    command = f"{sys.executable} {OPERATORS}/site_operator.py"
    with pytest.raises(UserError, match=r"without faults: the step 'patch site/none' failed.*not found"):
        await check(command, steps=steps, timeout=30.0)


async def test_memory_of_ended_runs_is_freed(monkeypatch: pytest.MonkeyPatch):
    clusters: list[weakref.ref[Cycle]] = []

    class Cycle:
        def __init__(self, *arguments: object, **options: object) -> None:
            self.cycle = self
            clusters.append(weakref.ref(self))

        async def run(self) -> RunResult:
            gc.freeze()  # as after a long collection
            return RunResult([], [])

    monkeypatch.setattr(suite, "OperatorRun", Cycle)
    monkeypatch.setattr(suite, "_RUNS_BETWEEN_COLLECTIONS", 2)
    settings, expected = cast("RunSettings", None), cast("ReferenceRuns", None)
    write = OperatorWrite(WriteId("create", "secrets", "default", "a", 1), "Secret", False, 0.0)
    checked = suite._Suite(OperatorOptions(command="op"), settings, lambda *counts: None)
    await checked._run_all([("error", number) for number in (1, 2, 3)], [write] * 3, expected, 1)
    assert [cluster() is None for cluster in clusters] == [True, False, False]


@pytest.mark.parametrize(
    ("ports", "note", "jobs", "expected"),
    [
        ([], "", None, 8),
        ([{80, 33001}, {80, 33002}, {80, 33003}], "", None, 1),
        ([{33001}, {33002}, {33003}], "", None, 8),
        ([], "it talks to 10.0.0.1:443: no fault concerns it", None, 1),
        ([{80}], "", 3, 3),
    ],
)
async def test_runs_that_share_a_port_or_a_server_take_turns(
    ports: list[set[int]], note: str, jobs: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    references = [RunResult([], [], notes=[note], ports=frozenset(numbers)) for numbers in ports or [set()]]
    checked = suite._Suite(OperatorOptions(command="op", jobs=jobs), cast("RunSettings", None), lambda *counts: None)
    assert checked._jobs(references) == expected


async def test_instances_with_a_fixed_port_have_no_second_leader(tmp_path: Path):
    with listening_socket(0) as free:
        port = free.getsockname()[1]
    listening = f"import socket; s = socket.create_server(('127.0.0.1', {port})); s.listen()"
    (tmp_path / "sitecustomize.py").write_text(listening)
    operator = f"env PYTHONPATH={tmp_path} {sys.executable} {OPERATORS}/site_operator.py --leader-elect"
    selected = ("crash-after:create of Secret", "freeze-leader:create of Secret")
    report = await check(operator, only=selected, timeout=60.0)
    assert report.outcomes == {"crash-after:4": "passed"}
    assert report.notes[0].startswith(f"it listens on port {port}: one run takes place at a time")


async def test_selection_without_runs_is_an_error():
    command = f"{sys.executable} {OPERATORS}/site_operator.py"
    with pytest.raises(UserError, match="--only none selects none of"):
        await check(command, only=("none",), timeout=60.0)
