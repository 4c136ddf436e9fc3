"""An older Python gets a sentence about its version."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CHECK = ROOT / "kubeloop/python_version.py"


@pytest.mark.parametrize("script", ["kubeloop/python_version.py", "setup.py", "kubeloop/__init__.py"])
def test_files_of_the_check_can_be_read_by_python_3_7(script: str) -> None:
    ast.parse((ROOT / script).read_text(), feature_version=(3, 7))


@pytest.mark.parametrize("version", [(3, 9, 18), (3, 10, 0)])
def test_older_python_ends_with_a_sentence(monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...]) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    with pytest.raises(SystemExit) as raised:
        runpy.run_path(str(CHECK))
    text = f"error: kubeloop needs Python 3.11 or later, and this is Python {'.'.join(map(str, version))}\n  hint: "
    assert str(raised.value).startswith(text)


def test_this_python_passes() -> None:
    runpy.run_path(str(CHECK))


def test_command_and_build_check_before_anything_else() -> None:
    imports = [node for node in ast.parse((ROOT / "kubeloop/__main__.py").read_text()).body if _imports_kubeloop(node)]
    assert ast.unparse(imports[0]) == "import kubeloop.python_version"
    assert "runpy.run_path('kubeloop/python_version.py')" in ast.unparse(ast.parse((ROOT / "setup.py").read_text()))
    makefile = (ROOT / "Makefile").read_text()
    assert makefile.count("$(PYTHON) -m venv") == makefile.count(
        "@$(PYTHON) kubeloop/python_version.py\n\t$(PYTHON) -m"
    )


def _imports_kubeloop(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom) and "kubeloop" in ast.unparse(node)
