"""Runs of an operator: credentials of its client, and what a run shows."""

from __future__ import annotations

import base64
import dataclasses
import shlex
import sys
from pathlib import Path

import msgspec
import pytest
from cryptography import x509

from kubeloop.testing.cluster_options import ClusterOptions
from kubeloop.testing.faults.state import Variations
from kubeloop.testing.operator_faults.operator_api import OperatorWrite, WriteId
from kubeloop.testing.operator_faults.process import Guard
from kubeloop.testing.operator_faults.run import OperatorRun, RunResult, RunSettings
from kubeloop.testing.operator_faults.scenario import read_scenario

OPERATORS = Path(__file__).resolve().parents[4] / "operators"


@pytest.fixture
def settings(tmp_path: Path):
    folder = tmp_path / "runs"
    folder.mkdir()
    guard = Guard(folder)
    command = [sys.executable, str(OPERATORS / "site_operator.py"), "--kubeconfig", "{kubeconfig}"]
    scenario = read_scenario([OPERATORS / "crd.yaml", OPERATORS / "site.yaml"], None)
    yield RunSettings(command, scenario, ClusterOptions(nodes=1), folder, guard, quiet_seconds=0.5)
    guard.close()


async def test_run_without_faults_shows_writes_states_and_watches(settings: RunSettings):
    result = await OperatorRun(settings, "reference").run()
    titles = [write.title for write in result.writes]
    assert titles[:3] == [
        "update of Site blog",
        "status write of Site blog",
        "create of ConfigMap dns-first.example.com",
    ]
    assert "delete of ConfigMap dns-first.example.com" in titles
    assert len(result.states) == 2
    assert result.states[1].differences(result.states[0])
    assert result.watched == {"sites", "secrets", "persistentvolumeclaims", "deployments"}
    assert (result.problems, result.notes, result.has_lease) == ([], [], False)


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        ("", "CN=operator,O=system:masters"),
        ("jane", "CN=jane"),
        (
            "system:serviceaccount:web:site",
            "CN=system:serviceaccount:web:site,O=system:serviceaccounts:web,O=system:serviceaccounts",
        ),
    ],
)
async def test_certificate_names_user_and_groups(settings: RunSettings, user: str, subject: str):
    document = msgspec.json.decode(dataclasses.replace(settings, user=user).kubeconfig(1))
    certificate = base64.b64decode(document["users"][0]["user"]["client-certificate-data"])
    assert x509.load_pem_x509_certificate(certificate).subject.rfc4514_string() == subject


def test_ports_in_the_command_are_free_and_the_same_by_name(settings: RunSettings):
    command = shlex.split("op --metrics=:{port:metrics} --health=:{port:health} --again={port:metrics}")
    run = OperatorRun(dataclasses.replace(settings, command=command), "ports")
    _, metrics, health, again = run.command(Path("/k"))
    assert metrics.removeprefix("--metrics=:") == again.removeprefix("--again=")
    assert metrics.partition("=")[2] != health.partition("=")[2]


def test_only_deletions_of_stable_names_count():
    def write(kind: str, name: str, deleted: bool) -> OperatorWrite:
        return OperatorWrite(WriteId("delete", "x", "default", name, 1), kind, False, 0.0, 200, deleted)

    result = RunResult(
        [write("Secret", "a", True), write("Secret", "a", False), write("Pod", "b", True), write("Job", "j-1", True)],
        [],
    )
    variations = Variations(names=frozenset({("Job", "default", "j-")}))
    assert result.deletions(variations) == {("Secret", "default", "a"): 1}
