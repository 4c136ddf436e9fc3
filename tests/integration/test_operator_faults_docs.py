"""The example of docs/operator-faults.md, and planted defects in an operator in Python and one in Go."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "operator-faults.md"
BLOCK = re.compile(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", re.DOTALL)
SENTENCE = re.compile(r"^1\. after a crash.*$", re.MULTILINE)


def test_example_of_the_page_fails_as_the_page_shows(tmp_path: Path):
    pytest.importorskip("kubernetes", reason="kubernetes is not installed")
    blocks = dict(BLOCK.findall(DOCS.read_text()))
    assert list(blocks) == ["site_operator.py", "site.yaml", "test_site_operator.py"]
    for name, content in blocks.items():
        (tmp_path / name).write_text(content)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_site_operator.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    (expected,) = SENTENCE.findall(DOCS.read_text())
    assert expected in done.stdout
    assert "2 writes, 2 fault classes, 4 runs" in done.stdout


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
        options = ["--run", run, "--only", only, "--timeout=10", "--quiet=1"]
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        assert (done.returncode, sentence in done.stdout) == (code, bool(code)), done.stdout + done.stderr
