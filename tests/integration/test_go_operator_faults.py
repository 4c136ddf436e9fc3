"""Planted defects of an operator in Go that test-operator finds, and that it does not report in the correct one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


CHECKS = {
    "": (["crash-after:create of ConfigMap dns-first", "blind:create of Deployment"], ""),
    "config-in-two-writes": (["crash-after:create of ConfigMap dns-first"], "has data null instead of"),
    "missed-deletion": (
        ["blind:create of Deployment"],
        "ConfigMap default/dns-first.example.com was created and never",
    ),
}
"""By defect, "" for none: the runs, and a part of the finding."""


def test_planted_defects_of_the_go_operator_are_found(tmp_path: Path):
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    clients, operator = ROOT / "tests/clients/go", tmp_path / "siteoperator"
    downloaded = subprocess.run(["go", "mod", "download"], cwd=clients, capture_output=True, check=False)
    if downloaded.returncode:
        pytest.skip("the modules of Go cannot be downloaded")
    built = subprocess.run(
        ["go", "build", "-o", operator, "./siteoperator"], cwd=clients, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    files = ROOT / "tests" / "operators"
    command = [sys.executable, "-m", "kubeloop", "test-operator", "-f", files / "crd.yaml", "-f", files / "site.yaml"]
    running = {}
    for defect, (only, _) in CHECKS.items():  # at the same time: they mostly wait
        run = f"--run={operator} -kubeconfig {{kubeconfig}} -defect={defect}"
        options = [run, "--timeout=10", "--quiet=1", "--jobs=2", *(f"--only={text}" for text in only)]
        running[defect] = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    for defect, (_, sentence) in CHECKS.items():
        output, _ = running[defect].communicate()
        assert (running[defect].returncode, sentence in output) == (int(bool(defect)), True), output
