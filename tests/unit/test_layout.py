"""Layout of the repository: packages, the wheel, and tests that mirror the source tree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from support.development.syntax import statements

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"

MAY_IMPORT = {
    "cel": set(),
    "kube": {"cel"},
    "informers": {"kube"},
    "tracing": {"informers", "kube"},
    "controllers": {"tracing", "informers", "kube", "cel"},
    "scheduler": {"tracing", "informers", "kube", "cel"},
    "devcluster": {"kube", "cel"},
}

OWN_FOLDERS = sorted(
    path.name for path in (ROOT / "kubeloop").iterdir() if (path / "__init__.py").is_file() and not path.is_symlink()
)
"""Folders of `kubeloop/` itself."""

# --- packages ---------------------------------------------------------------------------------------------------------


class Module(NamedTuple):
    """Imports and public classes of a module, and whether it has logic."""

    imports: frozenset[str]
    """Absolute names that it imports, anywhere in it; also those of `from a import b`: a and a.b."""
    public_classes: tuple[str, ...]
    has_logic: bool
    """True if it defines a function with a body."""


@cache
def read_module(path: Path) -> Module:
    imports, has_logic, tree = set[str](), False, ast.parse(path.read_text())
    for node in statements(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imports |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            has_logic = has_logic or any(not isinstance(statement, ast.Expr) for statement in node.body)
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    return Module(frozenset(imports), tuple(classes), has_logic)


def imported_packages(path: Path) -> set[str]:
    """Return the packages of kubeloop that a module imports; "kubeloop" for modules outside the packages."""
    packages = set()
    for name in read_module(path).imports:
        first, *rest = name.split(".")
        if first == "kubeloop" and rest:
            packages.add(rest[0] if rest[0] in MAY_IMPORT else "kubeloop")
    return packages


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_package_imports_only_packages_below_it(package):
    allowed = MAY_IMPORT[package] | {package}
    modules = sorted((ROOT / package).rglob("*.py"))
    assert modules
    violations = {
        str(module.relative_to(ROOT)): forbidden
        for module in modules
        if (forbidden := imported_packages(module) - allowed)
    }
    assert violations == {}


def test_packages_are_imported_below_kubeloop():
    violations = [
        str(module.relative_to(ROOT))
        for folder in (*MAY_IMPORT, "kubeloop", "tests", "benchmarks")
        for module in (ROOT / folder).rglob("*.py")
        if any(name.split(".")[0] in MAY_IMPORT for name in read_module(module).imports)
    ]
    assert violations == []


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_package_docstring_states_allowed_imports(package):
    docstring = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text()))
    assert docstring
    assert "import" in docstring


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_package_is_linked_into_kubeloop(package):
    link = ROOT / "kubeloop" / package
    assert link.is_symlink()
    assert link.readlink() == Path("..") / package


def test_wheel_contains_only_kubeloop(tmp_path):
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
    assert "kubeloop/scheduler/api/__init__.py" in names
    assert "kubeloop/py.typed" in names
    assert "kubeloop/kube/schema/types.json" in names
    assert not [name for name in names if name.endswith("/generate.py")]
    assert "kubeloop/tracing/views/assets/app.js" in names


# --- tests ------------------------------------------------------------------------------------------------------------


def source_modules() -> Iterator[Path]:
    """Yield the modules with logic: those that define a function with a body."""
    packages = [(ROOT / "kubeloop" / folder) for folder in OWN_FOLDERS]
    packages += [ROOT / package for package in MAY_IMPORT]
    for package in packages:
        for module in sorted(package.rglob("*.py")):
            if read_module(module).has_logic:
                yield module.relative_to(ROOT)


def dotted_name(module: Path) -> str:
    parts = [part for part in module.with_suffix("").parts if part != "__init__"]
    return ".".join(parts if parts[0] == "kubeloop" else ["kubeloop", *parts])


def is_tested(module: Path) -> bool:
    """Return True if a test of the module's folder, or of a folder below, imports it."""
    name = dotted_name(module)
    return any(name in read_module(test).imports for test in (TESTS / "unit" / module.parent).rglob("test_*.py"))


def test_modules_are_imported_by_tests_of_their_folder():
    assert [str(module) for module in source_modules() if not is_tested(module)] == []


def test_unit_tests_mirror_the_source_tree():
    folders = {test.parent.relative_to(TESTS / "unit") for test in (TESTS / "unit").rglob("test_*.py")}
    assert sorted(str(folder) for folder in folders if not (ROOT / folder).is_dir()) == []


def test_support_modules_are_in_folders_that_the_readme_names():
    support = TESTS / "support"
    assert sorted(path.name for path in support.glob("*.py")) == []
    folders = {path.relative_to(support).parts[0] for path in support.rglob("*.py")}
    readme = (support / "README.md").read_text()
    assert sorted(folder for folder in folders if f"`{folder}/`" not in readme) == []
    named = re.findall(r"`([a-z]+/[a-z_]+\.py)`", readme)
    assert [name for name in named if not (support / name).is_file()] == []


def test_no_test_module_imports_another():
    roots = {path.name for path in TESTS.iterdir() if path.is_dir()} - {"support"}
    violations = {
        str(module.relative_to(ROOT)): names
        for module in TESTS.rglob("*.py")
        if (
            names := sorted(
                name
                for name in read_module(module).imports
                if name.split(".")[0] in roots
                or any(part.startswith(("test_", "conftest")) for part in name.split("."))
            )
        )
    }
    assert violations == {}


def test_public_class_names_are_defined_once():
    modules: dict[str, list[str]] = {}
    for folder in [ROOT / "kubeloop" / name for name in OWN_FOLDERS] + [ROOT / package for package in MAY_IMPORT]:
        for module in folder.rglob("*.py"):
            for name in read_module(module).public_classes:
                modules.setdefault(name, []).append(str(module.relative_to(ROOT)))
    assert sorted(name for name, files in modules.items() if len(files) > 1) == []
