"""Names in backticks in docstrings that look like a path, a module of this repository or an option exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cel", "controllers", "devcluster", "informers", "kube", "kubeloop", "scheduler", "tracing")
FILES = [
    path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if not any(parent.is_symlink() for parent in path.parents)
]
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}
MODULE_NAMES = {name.rpartition(".")[2] for name in MODULES}
_FILE = re.compile(r"(?:[\w-]+/)*[\w-]+\.(?:py|md|json|yaml)")
_OPTION = re.compile(r"--[a-z][a-z-]+")
_DOTTED = re.compile(r"(?:kubeloop\.)?((?:" + "|".join(PACKAGES) + r")(?:\.\w+)+)")
_SENTENCE = re.compile(r"^`(\w+)`(?=,| and | \w+s\b)", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b")  # kinds/GROUP/KIND.py


def docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def references(path: Path) -> Iterator[str]:
    """Yield what is in backticks."""
    for text in docstrings(path):
        yield from re.findall(r"`([^`\n]+)`", text)


def exists(path: Path, reference: str) -> bool:
    """Return False for a file or module of this repository that does not exist."""
    if _FILE.fullmatch(reference) and not _PLACEHOLDER.search(reference):
        places = (ROOT, path.parent, ROOT / path.relative_to(ROOT).parts[0])
        return any((place / reference).exists() for place in places)
    if _DOTTED.fullmatch(reference):
        return any(resolves(name) for name in (reference, reference.removeprefix("kubeloop.")))
    return True


def resolves(name: str) -> bool:
    """Return True for a module, or a name that its module has."""
    module, _, attribute = name.rpartition(".")
    if name in MODULES:
        return True
    if module in MODULES:
        return re.search(rf"\b{attribute}\b", MODULES[module].read_text()) is not None
    return "." in module and resolves(module)  # an attribute of a class


def test_named_files_and_modules_exist() -> None:
    checked = [(path, reference) for path in FILES for reference in references(path)]
    assert len(checked) > 1000
    assert [f"{path}: {reference}" for path, reference in checked if not exists(path, reference)] == []


def test_package_docstrings_begin_sentences_with_existing_modules() -> None:
    """A line such as "`graph` decides ..." in the docstring of a package is about one of its modules or names."""
    missing = []
    for path in FILES:
        if path.name == "__init__.py":
            text = ast.get_docstring(ast.parse(path.read_text())) or ""
            code = path.read_text().replace(text, "")
            known = {entry.stem for entry in path.parent.iterdir()} | MODULE_NAMES | set(PACKAGES)
            missing += [f"{path}: {name}" for name in _SENTENCE.findall(text) if name not in known and name not in code]
    assert missing == []


def test_named_options_exist() -> None:
    options = set(_OPTION.findall("\n".join(path.read_text() for path in (ROOT / "kubeloop").rglob("*.py"))))
    named = {
        (path, option)
        for path in (ROOT / "kubeloop/cli").rglob("*.py")
        for reference in references(path)
        for option in _OPTION.findall(reference)
    }
    assert [f"{path}: {option}" for path, option in named if option not in options] == []


@pytest.mark.parametrize("reference", ["kube/no_such.py", "no_such.md", "scheduler.no_such.thing.at_all"])
def test_missing_reference_is_noticed(reference: str) -> None:
    assert not exists(ROOT / "kube/values/times.py", reference)
