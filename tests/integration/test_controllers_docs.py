"""The example of docs/controllers.md: its tests, types, manifests and program."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "controllers.md"
BLOCK = re.compile(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", re.DOTALL)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the files of the page."""
    for name, content in BLOCK.findall(DOCS.read_text()):
        (tmp_path / name).write_text(content)
    return tmp_path


def run(project: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(project), "MYPYPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_page_has_all_files():
    assert [name for name, _ in BLOCK.findall(DOCS.read_text())] == [
        "my_operator.py",
        "site.yaml",
        "test_my_operator.py",
        "main.py",
    ]


def test_tests_of_the_page_pass(project: Path):
    run(project, "pytest", "-q", "-p", "no:cacheprovider", "test_my_operator.py")


def test_project_is_clean_with_mypy_strict(project: Path):
    # silent about kubeloop itself, as for installed packages
    options = ("--strict", "--follow-imports=silent", "--cache-dir", str(project / "cache"))
    run(project, "mypy", *options, "my_operator.py", "main.py", "test_my_operator.py")


def test_project_is_clean_with_pyright(project: Path):
    if shutil.which("basedpyright") is None:
        pytest.skip("basedpyright is not installed")
    configuration = {"extraPaths": [str(ROOT)], "typeCheckingMode": "strict", "reportMissingTypeStubs": False}
    (project / "pyrightconfig.json").write_text(json.dumps(configuration))
    command = ["basedpyright", "--pythonpath", sys.executable, "."]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_manifests_are_printed_for_the_operator(project: Path):
    output = run(project, "kubeloop", "manifests", "--controllers", "my_operator:Sites", "--image", "registry/sites:1")
    assert "sites/finalizers" in output
    assert "--controllers=my_operator:Sites" in output
