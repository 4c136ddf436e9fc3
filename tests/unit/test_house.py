"""The house stands as DESIGN.md draws it: imports point down, and what is installed is `kubeloop` alone."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MAY_IMPORT = {
    "kube": set(),
    "informers": {"kube"},
    "tracing": {"informers", "kube"},
    "controllers": {"tracing", "informers", "kube"},
    "scheduler": {"tracing", "informers", "kube"},
    "devcluster": {"kube"},
}


def imported_rooms(source: str) -> set[str]:
    """Rooms of kubeloop that a module imports, anywhere in it; "kubeloop" for the public face itself."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    rooms = set()
    for name in names:
        first, *rest = name.split(".")
        if first == "kubeloop":
            rooms.add(rest[0] if rest and rest[0] in MAY_IMPORT else "kubeloop")
    return rooms


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_rooms_below_it(room):
    allowed = MAY_IMPORT[room] | {room}
    modules = sorted((ROOT / room).rglob("*.py"))
    assert modules
    wrong = {
        str(module.relative_to(ROOT)): forbidden
        for module in modules
        if (forbidden := imported_rooms(module.read_text()) - allowed)
    }
    assert wrong == {}


def test_no_room_is_imported_by_its_bare_name():
    wrong = [
        str(module.relative_to(ROOT))
        for folder in (*MAY_IMPORT, "kubeloop", "tests", "benchmarks")
        for module in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if (isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] in MAY_IMPORT)
        or (isinstance(node, ast.Import) and any(alias.name.split(".")[0] in MAY_IMPORT for alias in node.names))
    ]
    assert wrong == []


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_says_what_it_is_for(room):
    docstring = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text()))
    assert docstring
    assert "import" in docstring


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_is_linked_into_the_package(room):
    link = ROOT / "kubeloop" / room
    assert link.is_symlink()
    assert link.readlink() == Path("..") / room


def test_the_wheel_holds_kubeloop_alone(tmp_path):
    pytest.importorskip(
        "setuptools", minversion="77", reason="building the wheel needs setuptools 77 in this environment"
    )
    source = tmp_path / "source"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", source], check=True)
    code = "import setuptools.build_meta as b, sys; print(b.build_wheel(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=source, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"kubeloop"}
    assert "kubeloop/scheduler/api/extension_points.py" in names
    assert "kubeloop/py.typed" in names
    assert "kubeloop/tracing/views/assets/app.js" in names
