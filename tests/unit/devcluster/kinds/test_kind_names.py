"""The rule of the package: what a kind does differently is in its strategy, not in comparisons with its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeloop.devcluster import kinds
from kubeloop.devcluster.api import served_resources
from kubeloop.devcluster.api.served_resources import BY_PATH
from kubeloop.kube.objects import resources
from kubeloop.kube.objects.resources import Resource

DEVCLUSTER = Path(str(kinds.__file__)).parents[1]
FOLDERS = (
    "admission", "api", "apiextensions", "handlers", "managedfields", "printers", "registry", "serializer", "storage",
    "validation",
)  # fmt: skip
EXCEPTIONS = {
    "admission/chain.py": "the target of a Binding is a field",
    "admission/optional/node_rules.py": "the rules of a node for each kind, as in kube-apiserver",
    "admission/optional/owner_references_permission_enforcement.py": "the status of pods is exempt",
    "admission/limit_ranger.py": "the type of a limit is a field",
    "admission/attributes.py": "a Namespace is in the namespace that it names",
    "api/request_attributes.py": "paths of namespaces contain other paths",
    "api/request_info.py": "paths of namespaces contain other paths",
    "apiextensions/definitions.py": "the controller of definitions",
    "handlers/subresources/binding.py": "the target of a Binding is a field",
    "handlers/containers/streams.py": "each proxy is a subresource with a handler of its own",
    "handlers/rest.py": "Bindings and reviews are answered and not stored",
    "managedfields/field_sets.py": "only of pods, many new ones have the same fields",
    "serializer/controller_revision_data.py": "the module of ControllerRevisions in this layer",
    "validation/common/object_meta.py": "the kind of an owner is a field",
    "validation/common/persistent_volume_claim_spec.py": "the kind of a data source is a field",
}
"""Modules that may compare names of kinds, with the reason."""
TABLES = {
    "api/errors.py": "keys in etcd, which messages contain",
    "admission/optional/node_rules.py": "the rules of a node for each kind",
    "api/served_resources.py": "declarations",
    "serializer/request_bodies.py": "kinds of API versions that are no longer served",
}
"""Modules that may have a table by kind."""

SERVED = [served.resource for served in BY_PATH.values()]
NAMES = {name for resource in SERVED for name in (resource.kind, resource.plural, resource.group_resource)}
CONSTANTS = {
    name
    for module in (resources, served_resources)
    for name, value in vars(module).items()
    if isinstance(value, Resource)
}


def is_kind(node: ast.expr) -> bool:
    """Return True for the name of a kind or resource, a resource's constant, or a collection of them."""
    match node:
        case ast.Constant(value=str(name)):
            return name in NAMES
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in CONSTANTS
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            return any(map(is_kind, elements))
    return False


def comparisons(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that compare something with a kind."""
    for node in ast.walk(tree):
        operands = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        if isinstance(node, ast.MatchValue):
            operands = [node.value]
        if any(map(is_kind, operands)):
            yield node.lineno


def tables(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of dicts whose keys are kinds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict) and len(node.keys) > 1 and all(key and is_kind(key) for key in node.keys):
            yield node.lineno


def modules() -> list[str]:
    return [
        str(path.relative_to(DEVCLUSTER)) for folder in FOLDERS for path in sorted((DEVCLUSTER / folder).rglob("*.py"))
    ]


def tree_of(module: str) -> ast.AST:
    return ast.parse((DEVCLUSTER / module).read_text())


@pytest.mark.parametrize(
    ("code", "is_detected"),
    [
        pytest.param('name == "pods"', True, id="resource"),
        pytest.param('resource.group_resource in ("jobs.batch", "pods")', True, id="one of several"),
        pytest.param("resource is NAMESPACES", True, id="constant"),
        pytest.param('match name:\n    case "pods" | "nodes":\n        pass', True, id="pattern"),
        pytest.param("store.get(NODES, name) is None", False, id="argument"),
        pytest.param('field == "spec"', False, id="field"),
    ],
)
def test_comparison_with_a_kind_is_detected(code: str, is_detected: bool):
    assert any(comparisons(ast.parse(code))) is is_detected


def test_only_the_module_of_a_kind_compares_its_name():
    lines = {module: numbers for module in modules() if (numbers := sorted({*comparisons(tree_of(module))}))}
    assert {module: numbers for module, numbers in lines.items() if module not in EXCEPTIONS} == {}
    assert sorted(lines) == sorted(EXCEPTIONS), "remove the exceptions that are no longer needed"


def test_no_table_is_keyed_by_kind():
    lines = {module: numbers for module in modules() if (numbers := [*tables(tree_of(module))])}
    assert {module: numbers for module, numbers in lines.items() if module not in TABLES} == {}
