"""Values that mutation expressions create: Object{...} for apply configurations, and JSONPatch{...} operations.

Fields of objects have any type. The type names of nested objects must be their paths, which is checked when the value
is used. Source: k8s.io/apiserver pkg/cel/mutation, pkg/cel/library/jsonpatch.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from kubeloop.cel.costs.runtime_costs import STRING_TRAVERSAL_FACTOR, size_of
from kubeloop.cel.declarations import Overload
from kubeloop.cel.types import DYN, STRING, Type, list_of
from kubeloop.cel.values import ContainerValue, equal, is_list, is_map, lookup, no_overload
from kubeloop.kube.json_object import JSON
from kubeloop.kube.policy_cel.authorizer import AUTHORIZATION_LIBRARY


class _Fields(Mapping[str, Type]):
    """Types of declared fields, and one type for all others."""

    def __init__(self, declared: Mapping[str, Type], default: Type) -> None:
        self._declared, self._default = declared, default

    def __getitem__(self, name: str) -> Type:
        return self._declared.get(name, self._default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def __bool__(self) -> bool:
        return True


_NO_TYPE = Type("none", "")  # not assignable from any type, not even dyn
JSON_PATCH = Type(
    "struct", "JSONPatch", fields=_Fields({"op": STRING, "path": STRING, "from": STRING, "value": DYN}, _NO_TYPE)
)
OBJECT = Type("struct", "Object", fields=_Fields({}, DYN))
APPLY_CONFIGURATION_RESULT, JSON_PATCH_RESULT = (OBJECT,), (list_of(JSON_PATCH),)


def _struct_type(name: str) -> Type | None:
    if name == "JSONPatch":
        return JSON_PATCH
    is_object = name == "Object" or name.startswith("Object.")
    return Type("struct", name, fields=OBJECT.fields) if is_object else None


class CreatedObject(ContainerValue):
    """A struct created by an expression."""

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
        if not isinstance(other, CreatedObject) or self.name != other.name or self.fields.keys() != other.fields.keys():
            return False
        return all(equal(value, other.fields[name]) for name, value in self.fields.items())

    def type_name_errors(self) -> str:
        """Return one line per nested object whose type name is not its path; "" if there are none."""
        return "\n".join(_type_name_errors(self, self.name))


def _type_name_errors(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, CreatedObject):
        if value.name != path:
            reason = "which matches field name path from root Object type"
            yield f'unexpected type name "{value.name}", expected "{path}", {reason}'
        for name, member in value.fields.items():
            yield from _type_name_errors(member, f"{path}.{name}")
    elif type(value) is list:
        for item in value:
            yield from _type_name_errors(item, path)
    elif type(value) is dict:
        for member in value.values():
            yield from _type_name_errors(member, path)


def to_json(value: Any) -> Any:
    """Return a CEL value as JSON."""
    if isinstance(value, CreatedObject):
        return {name: to_json(member) for name, member in value.fields.items()}
    if is_list(value):
        return [to_json(item) for item in value]
    if is_map(value):
        return {str(key): to_json(lookup(value, key)[0]) for key in value}
    if value is None or type(value) in (bool, float, str):
        return value
    return int(value) if isinstance(value, int) else str(value)


def _escape_key(_context: Any, key: Any) -> str:
    if type(key) is not str:
        raise no_overload()
    return key.replace("~", "~0").replace("/", "~1")


MUTATION_LIBRARY = AUTHORIZATION_LIBRARY.extended(
    {
        "jsonpatch.escapeKey": [
            Overload("string_jsonpatch_escapeKey_string", (STRING,), STRING, False, frozenset()),
        ],
    },
    {"jsonpatch.escapeKey": _escape_key},
    {"jsonpatch.escapeKey": lambda args, _result: ceil(size_of(args[0]) * STRING_TRAVERSAL_FACTOR)},
    structs=_struct_type,
    create_struct=CreatedObject,
)
