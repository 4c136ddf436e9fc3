"""Files that documents and docstrings name exist, and lists of modules are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("document", ["code-map.md", "architecture.md"])
def test_named_files_exist(document: str) -> None:
    files = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / document).read_text())
    assert len(files) > 25
    assert [file for file in files if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize(
    "package",
    [
        "controllers/runtime",
        "devcluster/admission/policies",
        "devcluster/apiextensions",
        "kube/cel",
        "kubeloop/cli",
        "kubeloop/testing",
        "scheduler/devices",
    ],
)
def test_docstring_lists_all_modules(package: str) -> None:
    folder = ROOT / package
    listed = re.findall(r"^    (\w+(?:\.py|/)) ", (folder / "__init__.py").read_text(), re.MULTILINE)
    modules = [file.name for file in folder.glob("*.py") if file.name != "__init__.py"]
    folders = [f"{file.parent.name}/" for file in folder.glob("*/__init__.py")]
    assert sorted(listed) == sorted(modules + folders)
