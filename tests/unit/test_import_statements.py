"""Docstrings that state what a module or package may import ("May import ...") are true.

Names of kubeloop's modules stand in backticks. A module's statement with "only" names third-party packages as
well. A package's statement is about what its modules import from elsewhere in kubeloop.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cel", "kube", "informers", "controllers", "scheduler", "tracing", "devcluster")
STATEMENT = re.compile(r"May import (.+?)(?:\.(?=\s|$)|: |$)", re.DOTALL)


def module_files() -> Iterator[tuple[str, Path]]:
    """Yield the dotted name and the file of every module of kubeloop."""
    for folder in (*PACKAGES, "kubeloop/cli", "kubeloop/process", "kubeloop/testing"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            parts = parts if parts[0] == "kubeloop" else ("kubeloop", *parts)
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file


MODULES = dict(module_files())


def imported_modules(file: Path) -> set[str]:
    """Return the absolute names that a module imports anywhere; of kubeloop's, the module and not a name inside it."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            names |= modules or {node.module}
    return names - {"__future__"}


def statements() -> Iterator[object]:
    for name, file in MODULES.items():
        docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
        if match := STATEMENT.search(docstring):
            yield pytest.param(name, file, match[1], id=name)


def resolve(reference: str, name: str) -> str:
    """Return the module that `reference` names in the docstring of module `name`."""
    enclosing = name.split(".")
    candidates = [".".join([*enclosing[:length], reference]) for length in range(len(enclosing), 0, -1)]
    module = next((candidate for candidate in [*candidates, reference] if candidate in MODULES), None)
    assert module is not None, f"{name} names an unknown module: {reference}"
    return module


def is_below(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@pytest.mark.parametrize(("name", "file", "statement"), [*statements()])
def test_import_statement_is_true(name: str, file: Path, statement: str) -> None:
    is_package = file.name == "__init__.py"
    allowed = [resolve(reference, name) for reference in re.findall(r"`([\w.]+)`", statement)]
    if is_package:
        allowed.append(name)
    files = [other for module, other in MODULES.items() if module == name or (is_package and is_below(module, name))]
    imported = set[str]().union(*map(imported_modules, files))
    own = {module for module in imported if module.split(".")[0] == "kubeloop"}
    assert {module for module in own if not any(is_below(module, package) for package in allowed)} == set()
    if "only" in statement.split() and not is_package:
        third_party = {module.split(".")[0] for module in imported - own} - sys.stdlib_module_names
        assert {package for package in third_party if package not in statement} == set()
