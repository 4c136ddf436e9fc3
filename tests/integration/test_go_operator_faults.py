"""Planted defects of an operator in Go that test-operator finds, and that it does not report in the correct one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("defect", "only", "sentence"),
    [
        ("config-in-two-writes", "crash-after:create of ConfigMap dns-first", "has data null instead of"),
        (
            "missed-deletion",
            "blind:create of Deployment",
            "ConfigMap default/dns-first.example.com was created and never",
        ),
    ],
)
def test_planted_defect_of_the_go_operator_is_found(tmp_path: Path, defect: str, only: str, sentence: str):
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
    for arguments, code in (([], 0), (["-defect", defect], 1)):
        run = " ".join([str(operator), "-kubeconfig", "{kubeconfig}", *arguments])
        options = ["--run", run, "--only", only, "--timeout=10", "--quiet=1", "--jobs=2"]
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        assert (done.returncode, sentence in done.stdout) == (code, bool(code)), done.stdout + done.stderr
