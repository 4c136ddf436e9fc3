"""What expressions of mutations make: Object{...}, which is applied, and JSONPatch{...}, which is done.

An object's fields have any type; that the names of nested ones are the paths to them is looked at when it is used.
Source: k8s.io/apiserver pkg/cel/mutation, pkg/cel/library/jsonpatch.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from kubeloop.devcluster.languages.cel.declarations import Overload
from kubeloop.devcluster.languages.cel.program import Library
from kubeloop.devcluster.languages.cel.runtime_costs import STRING_TRAVERSAL_FACTOR, size_of
from kubeloop.devcluster.languages.cel.types import DYN, STRING, Type, list_of
from kubeloop.devcluster.languages.cel.values import Container, equal, is_list, is_map, lookup, no_overload
from kubeloop.devcluster.languages.policy_cel.authorizer import AUTHORIZATION
from kubeloop.kube.json_object import JSON


class _Fields(Mapping[str, Type]):
    """Some fields, and all others with one type."""

    def __init__(self, known: Mapping[str, Type], others: Type) -> None:
        self._known, self._others = known, others

    def __getitem__(self, name: str) -> Type:
        return self._known.get(name, self._others)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __bool__(self) -> bool:
        return True


_NO_TYPE = Type("none", "")  # nothing can be assigned to it, not even what is unknown
JSON_PATCH = Type(
    "struct", "JSONPatch", fields=_Fields({"op": STRING, "path": STRING, "from": STRING, "value": DYN}, _NO_TYPE)
)
OBJECT = Type("struct", "Object", fields=_Fields({}, DYN))
APPLIED, OPERATIONS = (OBJECT,), (list_of(JSON_PATCH),)


def _type_of(name: str) -> Type | None:
    if name == "JSONPatch":
        return JSON_PATCH
    is_object = name == "Object" or name.startswith("Object.")
    return Type("struct", name, fields=OBJECT.fields) if is_object else None


class Made(Container):
    """A struct that an expression has made."""

    __slots__ = ("fields", "name")
    is_map = True

    def __init__(self, name: str, fields: JSON) -> None:
        self.name, self.fields = name, fields

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def find(self, key: Any) -> tuple[Any, bool]:
        return (self.fields[key], True) if key in self.fields else (None, False)

    def equals(self, other: Any) -> bool:
        if not isinstance(other, Made) or self.name != other.name or self.fields.keys() != other.fields.keys():
            return False
        return all(equal(each, other.fields[name]) for name, each in self.fields.items())

    def wrong_names(self) -> str:
        """Which objects in it have names that are not the paths to them, a line each; "" if none has."""
        return "\n".join(_wrong_names(self, self.name))


def _wrong_names(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Made):
        if value.name != path:
            told = "which matches field name path from root Object type"
            yield f'unexpected type name "{value.name}", expected "{path}", {told}'
        for name, each in value.fields.items():
            yield from _wrong_names(each, f"{path}.{name}")
    elif type(value) is list:
        for each in value:
            yield from _wrong_names(each, path)
    elif type(value) is dict:
        for each in value.values():
            yield from _wrong_names(each, path)


def as_json(value: Any) -> Any:
    """A value as it stands in an object."""
    if isinstance(value, Made):
        return {name: as_json(each) for name, each in value.fields.items()}
    if is_list(value):
        return [as_json(each) for each in value]
    if is_map(value):
        return {str(key): as_json(lookup(value, key)[0]) for key in value}
    if value is None or type(value) in (bool, float, str):
        return value
    return int(value) if isinstance(value, int) else str(value)


def _escaped(_context: Any, key: Any) -> str:
    if type(key) is not str:
        raise no_overload()
    return key.replace("~", "~0").replace("/", "~1")


MUTATION = Library(
    {
        **AUTHORIZATION.overloads,
        "jsonpatch.escapeKey": [
            Overload("string_jsonpatch_escapeKey_string", (STRING,), STRING, False, frozenset()),
        ],
    },
    {**AUTHORIZATION.functions, "jsonpatch.escapeKey": _escaped},
    {
        **AUTHORIZATION.costs,
        "jsonpatch.escapeKey": lambda args, _result: ceil(size_of(args[0]) * STRING_TRAVERSAL_FACTOR),
    },
    _type_of,
    Made,
)
