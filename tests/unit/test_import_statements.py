"""Docstrings that state what a module or package imports ("May import ...", "Imports ...") are true.

Names of kubeloop's modules stand in backticks; "this folder" is the module's package. Third-party packages are named as
well, except where a module "may import" without "only". A package's statement is about what its modules import from
elsewhere in kubeloop.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from support.development.syntax import statements as nested_statements

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cel", "kube", "informers", "controllers", "scheduler", "tracing", "devcluster")
STATEMENT = re.compile(r"\b(May import|Imports) (.+?)(?:\.(?=\s|$)|: |$)", re.DOTALL)
IS_COMPLETE = re.compile(r"`|\bonly\b|\bnothing\b|standard library")  # not: "Imports no controller"
DISTRIBUTIONS = {"yaml": "PyYAML"}


def module_files() -> Iterator[tuple[str, Path]]:
    """Yield the dotted name and the file of every module of kubeloop."""
    for folder in (*PACKAGES, "kubeloop/cli", "kubeloop/process", "kubeloop/testing"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            parts = parts if parts[0] == "kubeloop" else ("kubeloop", *parts)
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file


MODULES = dict(module_files())


@cache
def imported_modules(file: Path) -> frozenset[str]:
    """Return the absolute names that a module imports anywhere; of kubeloop's, the module and not a name inside it."""
    names = set[str]()
    for node in nested_statements(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            names |= modules or {node.module}
    return frozenset(names - {"__future__"})


def statements() -> Iterator[object]:
    for name, file in MODULES.items():
        text = file.read_text()
        docstring = ast.get_docstring(ast.parse(text)) if STATEMENT.search(text) else None
        for verb, statement in STATEMENT.findall(docstring or ""):
            if IS_COMPLETE.search(statement):
                yield pytest.param(name, file, verb, statement, id=f"{name}: {verb}")


def resolve(reference: str, name: str) -> str:
    """Return the module that `reference` names in the docstring of module `name`."""
    enclosing = name.split(".")
    candidates = [".".join([*enclosing[:length], reference]) for length in range(len(enclosing), 0, -1)]
    module = next((candidate for candidate in [*candidates, reference] if candidate in MODULES), None)
    assert module is not None, f"{name} names an unknown module: {reference}"
    return module


def is_below(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def violations(name: str, file: Path, verb: str, statement: str) -> set[str]:
    """Return the modules that `file` imports and the statement does not name; for "Imports", also the reverse."""
    is_package = file.name == "__init__.py"
    named = {resolve(reference, name) for reference in re.findall(r"`([\w.]+)`", statement)}
    package = name if is_package else name.rpartition(".")[0]
    allowed = named | ({package} if is_package or "this folder" in statement else set())
    files = [other for module, other in MODULES.items() if module == name or (is_package and is_below(module, name))]
    imported = set[str]().union(*map(imported_modules, files))
    own = {module for module in imported if module.split(".")[0] == "kubeloop"}
    wrong = {module for module in own if not any(is_below(module, other) for other in allowed)}
    if not is_package and (verb == "Imports" or "only" in statement.split()):
        third_party = {module.split(".")[0] for module in imported - own} - sys.stdlib_module_names
        wrong |= {other for other in third_party if DISTRIBUTIONS.get(other, other) not in statement}
    if verb == "Imports":
        wrong |= {module for module in named if not any(is_below(other, module) for other in own)}
    return wrong


@pytest.mark.parametrize(("name", "file", "verb", "statement"), [*statements()])
def test_import_statement_is_true(name: str, file: Path, verb: str, statement: str) -> None:
    assert violations(name, file, verb, statement) == set()


@pytest.mark.parametrize(
    ("verb", "statement", "wrong"),
    [
        ("Imports", "`user_error` and msgspec only", set()),
        ("Imports", "`user_error` only", {"msgspec"}),
        ("Imports", "msgspec only", {"kubeloop.kube.user_error"}),
        ("Imports", "`user_error`, `clock` and msgspec", {"kubeloop.kube.clock"}),
        ("May import", "`kube` and `cel`", set()),
        ("May import", "`cel`", {"kubeloop.kube.user_error"}),
        ("May import", "`kube` only", {"msgspec"}),
    ],
)
def test_false_import_statement_is_noticed(verb: str, statement: str, wrong: set[str]) -> None:
    name = "kubeloop.kube.client.endpoint"
    assert violations(name, MODULES[name], verb, statement) == wrong


# --- layers in docstrings of packages, and in the import contract -----------------------------------------------------

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = {contract["id"]: contract["layers"] for contract in CONTRACTS if contract["type"] == "layers"}


def missing_layers(docstring: str, layers: list[str]) -> set[str]:
    """Return the modules of a contract that no line of the docstring begins with."""
    listed = {
        module
        for line in re.findall(r"^(?:    |- )([a-z_]+(?:(?: \| |, )[a-z_]+)*)(?:  +|:|$)", docstring, re.MULTILINE)
        for module in re.split(r" \| |, ", line)
    }
    return {module for layer in layers for module in layer.replace("|", " ").split() if module not in listed}


@pytest.mark.parametrize("package", ["devcluster", "kube", "scheduler", "tracing"])
def test_docstring_lists_all_layers_of_the_import_contract(package: str) -> None:
    docstring = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text())) or ""
    assert missing_layers(docstring, LAYERS[package]) == set()


def test_missing_layer_is_noticed() -> None:
    assert missing_layers("Layers:\n\n    a | b    text\n- c, d: text\n", ["a", "b | c", "d | e"]) == {"e"}
