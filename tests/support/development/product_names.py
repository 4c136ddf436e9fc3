"""Names of the product: modules, docstrings, functions, members of classes, words; for tests of references to them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kubeloop.kube.feature_gates import GATES
from support.development.syntax import statements

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("cel", "controllers", "devcluster", "informers", "kube", "kubeloop", "scheduler", "tracing")
FILES = [
    path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if not any(parent.is_symlink() for parent in path.parents)
]
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}
_DESCRIPTION = re.compile(r'""".*?"""|^ *#[^\n]*|  # [^\n]*', re.DOTALL | re.MULTILINE)
_GATE = re.compile(r"[Ff]eature gates?\s+`?([A-Z]\w+)(\*?)")
_OLD_GATES = {"DefaultPodTopologySpread"}  # of v1.20
_CLASS = re.compile(r"^class (\w+)(?:\[[^\n]*?\])?(?:\(([^\n]*)\))?:\n((?:(?: .*)?\n)*)", re.MULTILINE)


class Names(NamedTuple):
    """What stands in the code and data of the product, outside of docstrings and comments."""

    functions: set[str]
    """Names that are defined as a function or class, or called."""
    words: set[str]
    """All words: names, words in strings and in JSON files, file names."""
    classes: dict[str, list[tuple[str, str]]]
    """Bases and body of the classes of a name."""

    def has_member(self, class_name: str, member: str) -> bool:
        """Return True if a class of this name, or a base of it, mentions the attribute or method."""
        return any(
            re.search(rf"\b{member}\b", body)
            or any(base != class_name and self.has_member(base, member) for base in re.findall(r"\w+", bases))
            for bases, body in self.classes.get(class_name, ())
        )


@cache
def docstrings(path: Path) -> list[str]:
    """Return the docstrings of a module."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(path.read_text())
    nodes = (tree, *statements(tree))
    return [text for node in nodes if isinstance(node, kinds) and (text := ast.get_docstring(node))]


@cache
def product_names() -> Names:
    names = Names(set(), set(), {})
    for path in FILES:
        code = _DESCRIPTION.sub("", path.read_text())
        names.functions.update(re.findall(r"(?:\b(?:def|class) )?(\w+)(?=\(|:\n)", code))
        names.words.update(path.relative_to(ROOT).with_suffix("").parts, re.findall(r"\w+", code))
        for name, bases, body in _CLASS.findall(code):
            names.classes.setdefault(name, []).append((bases, body))
    for path in (file for package in PACKAGES for file in (ROOT / package).rglob("*.json")):
        names.words.update(re.findall(r"\w+", path.read_text()))
    return names


def resolves(name: str) -> bool:
    """Return True for a module, or a name in its code. The packages of kubeloop are known with and without its name."""
    if name.removeprefix("kubeloop.").partition(".")[0] in PACKAGES:
        name = name.removeprefix("kubeloop.")
    module, _, attribute = name.rpartition(".")
    if name in MODULES:
        return True
    if module in MODULES:
        return re.search(rf"\b{attribute}\b", _DESCRIPTION.sub("", MODULES[module].read_text())) is not None
    return "." in module and resolves(module)  # an attribute of a class


def unknown_gates(text: str) -> list[str]:
    """Return the names after "feature gate" that are neither a gate nor, with "*", the beginning of one."""
    return [
        gate
        for gate, is_prefix in _GATE.findall(text)
        if gate not in {*GATES, *_OLD_GATES} and not (is_prefix and any(name.startswith(gate) for name in GATES))
    ]
