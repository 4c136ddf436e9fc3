"""Names in backticks in docstrings exist: paths, modules, functions, attributes, options, feature gates."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.development.product_names import (
    FILES,
    MODULES,
    PACKAGES,
    ROOT,
    docstrings,
    product_names,
    resolves,
    unknown_gates,
)

MODULE_NAMES = {name.rpartition(".")[2] for name in MODULES}
_FILE = re.compile(r"(?:[\w-]+/)*[\w-]+\.(?:py|md|json|yaml)")
_OPTION = re.compile(r"--[a-z][a-z-]+")
_DOTTED = re.compile(r"(?:kubeloop\.)?((?:" + "|".join(PACKAGES) + r")(?:\.\w+)+)")
_SENTENCE = re.compile(r"^`(\w+)`(?=,| and | \w+s\b)", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b")  # kinds/GROUP/KIND.py
_MEMBER = re.compile(r"(?<![\w./`-])([A-Z]\w+)\.(_?[a-z]\w+)\b(?![/-])")
_CODE = re.compile(r"[A-Za-z_][\w.]*\w(?:\(.*\))?")

FOREIGN = {
    "PluginClass",  # a class of the user
    "Regexp.allMatches",  # of Go
    "Sub",  # of Go's time.Time
    "run_until_complete",  # of event loops
}
"""Names in code that are neither defined nor used by the product."""


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
        return resolves(reference)
    return True


def unknown_names(reference: str) -> list[str]:
    """Return the names in a piece of code that do not exist: functions, variables, attributes, words of Kubernetes."""
    if not _CODE.fullmatch(reference):
        return []
    names = product_names()
    unknown = [name for name in re.findall(r"(?<![\w.])([a-z_]\w+)\(", reference) if name not in names.functions]
    for name, member in re.findall(r"(?<![\w./])([A-Z]\w+)\.(\w+)", reference):
        if name in names.classes and not names.has_member(name, member):
            unknown.append(f"{name}.{member}")
    words = re.findall(r"[A-Za-z_]\w*", reference.partition("(")[0])
    unknown += [word for word in words if word not in names.words]
    return [name for name in unknown if name not in FOREIGN]


def test_named_files_and_modules_exist() -> None:
    checked = [(path, reference) for path in FILES for reference in references(path)]
    assert len(checked) > 1000
    assert [f"{path}: {reference}" for path, reference in checked if not exists(path, reference)] == []


def test_named_functions_and_attributes_exist() -> None:
    missing = [
        f"{path}: {name} in `{reference}`"
        for path in FILES
        for reference in references(path)
        if not _FILE.fullmatch(reference)
        for name in unknown_names(reference)
    ]
    assert missing == []


def unknown_members(text: str) -> list[str]:
    """Return the members of classes in text, outside backticks, that do not exist."""
    names = product_names()
    return [
        f"{name}.{member}"
        for name, member in _MEMBER.findall(text)
        if f"{name}.{member}" not in FOREIGN and not (name in names.classes and names.has_member(name, member))
    ]


def test_members_in_text_exist() -> None:
    named = {path: " ".join(docstrings(path)) for path in FILES}
    assert sum(len(_MEMBER.findall(text)) for text in named.values()) > 15
    assert [f"{path}: {name}" for path, text in named.items() for name in unknown_members(text)] == []
    assert unknown_members("values: of NoClass.values and WorkQueue.done, not WorkQueue.finish") == [
        "NoClass.values",
        "WorkQueue.finish",
    ]


def test_named_feature_gates_exist() -> None:
    """In docstrings and comments."""
    text = {path: " ".join(re.sub(r"^ *# ?", "", path.read_text(), flags=re.MULTILINE).split()) for path in FILES}
    assert sum(content.count("eature gate ") for content in text.values()) > 30
    assert [f"{path}: {gate}" for path, content in text.items() for gate in unknown_gates(content)] == []


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


@pytest.mark.parametrize(
    ("reference", "unknown"),
    [
        ("parse_quantity", []),
        ("parse_quantity()", []),
        ("parse_quantities", ["parse_quantities"]),
        ("parse_quantities(text)", ["parse_quantities"]),
        ("WorkQueue.done", []),
        ("WorkQueue.finish", ["WorkQueue.finish"]),
        ("WorkerQueue", ["WorkerQueue"]),
        ("validation.no_such_module", ["no_such_module"]),
        ("DeploymentList", []),  # a type of Kubernetes
    ],
)
def test_unknown_name_is_noticed(reference: str, unknown: list[str]) -> None:
    assert sorted(set(unknown_names(reference))) == unknown


def test_unknown_feature_gate_is_noticed() -> None:
    text = (
        "with the feature gate GangScheduling, the feature gates StaleControllerConsistency* and feature gate GangSched"
    )
    assert unknown_gates(text) == ["GangSched"]
