"""Types, which of them fit which, and what is declared for values that have an OpenAPI schema.

Sources: cel-go checker/types.go, checker/format.go; k8s.io/apiserver pkg/cel/{types,escaping,limits}.go,
pkg/cel/common/schemas.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Type:
    """kind: "bool", "int", ... or "list", "map", "type", "opaque", "struct", "param" (by its name), "error".

    fields: of a struct that is declared, by their names as expressions write them.
    """

    kind: str
    name: str
    parameters: tuple[Type, ...] = ()
    fields: Mapping[str, Type] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        if self.kind == "error":
            return "!error!"
        if self.kind == "null":
            return "null"
        if self.kind == "timestamp":
            return "timestamp"
        if self.kind == "duration":
            return "duration"
        inner = f"({', '.join(map(str, self.parameters))})" if self.parameters else ""
        return self.name + inner

    @property
    def is_dyn(self) -> bool:
        return self.kind in ("dyn", "any")


DYN, ERROR = Type("dyn", "dyn"), Type("error", "*error*")
BOOL, BYTES, DOUBLE, INT = Type("bool", "bool"), Type("bytes", "bytes"), Type("double", "double"), Type("int", "int")
NULL, STRING, UINT = Type("null", "null_type"), Type("string", "string"), Type("uint", "uint")
DURATION = Type("duration", "google.protobuf.Duration")
TIMESTAMP = Type("timestamp", "google.protobuf.Timestamp")
TYPE = Type("type", "type")
QUANTITY, URL = Type("struct", "kubernetes.Quantity"), Type("struct", "kubernetes.URL")
SEMVER, FORMAT = Type("struct", "kubernetes.Semver"), Type("struct", "kubernetes.NamedFormat")
IP, CIDR = Type("opaque", "net.IP"), Type("opaque", "net.CIDR")

NAMED_TYPES = {
    each.name: each for each in (BOOL, BYTES, DOUBLE, INT, NULL, STRING, UINT, DURATION, TIMESTAMP, TYPE, DYN, IP, CIDR)
} | {
    "list": Type("list", "list", (DYN,)),
    "map": Type("map", "map", (DYN, DYN)),
    "optional_type": Type("opaque", "optional_type", (Type("param", "V"),)),
    **{each.name: each for each in (QUANTITY, URL, SEMVER, FORMAT)},
}
"""What stands for a type where an expression names it."""


def list_of(element: Type) -> Type:
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("opaque", "optional_type", (value,))


def type_of_type(of: Type) -> Type:
    return Type("type", "type", (of,))


def unwrap_optional(type_: Type) -> tuple[Type, bool]:
    """(the type inside of an optional, True), or the type itself."""
    if type_.kind == "opaque" and type_.name == "optional_type":
        return type_.parameters[0], True
    return type_, False


# --- which fit which --------------------------------------------------------------------------------------------------

Substitution = dict[str, Type]
"""What is known of type parameters, by their names."""

_NULLABLE = ("opaque", "struct", "any", "duration", "timestamp")


def is_assignable(known: Substitution, one: Type, other: Type) -> Substitution | None:
    """What is known of parameters if the types fit, None if they do not."""
    learned = dict(known)
    return learned if _assignable(learned, one, other) else None


def are_assignable(known: Substitution, ones: list[Type], others: list[Type]) -> Substitution | None:
    learned = dict(known)
    return learned if _all_assignable(learned, ones, others) else None


def _all_assignable(known: Substitution, ones: Any, others: Any) -> bool:
    return len(ones) == len(others) and all(
        _assignable(known, one, other) for one, other in zip(ones, others, strict=True)
    )


def _assignable(known: Substitution, one: Type, other: Type) -> bool:
    if other.kind == "param":
        valid, has = _substitutes(known, one, other)
        if valid or has:
            return valid
    if one.kind == "param":
        return _substitutes(known, other, one)[0]
    if one.is_dyn or other.is_dyn or one.kind == "error" or other.kind == "error":
        return True
    if one.kind == "null":
        return other.kind in _NULLABLE or other.kind == "null"
    if other.kind == "null":
        return one.kind in _NULLABLE
    if one.kind == "type":
        return other.kind == "type"
    if one.kind in ("opaque", "list", "map"):
        same = one.kind == other.kind and one.name == other.name
        return same and _all_assignable(known, one.parameters, other.parameters)
    return one.kind == other.kind and one.name == other.name


def _substitutes(known: Substitution, type_: Type, parameter: Type) -> tuple[bool, bool]:
    """(may the type stand for the parameter, is something known of the parameter)."""
    if type_ == parameter:
        return True, True
    found = known.get(parameter.name)
    if found is not None:
        if type_ == found:
            return True, True
        if _assignable(known, type_, found):
            general = most_general(type_, found)
            if _not_within(known, parameter, general):
                known[parameter.name] = general
            return True, True
        return False, True
    if _not_within(known, parameter, type_):
        known[parameter.name] = type_
        return True, False
    return False, False


def _not_within(known: Substitution, parameter: Type, type_: Type) -> bool:
    if parameter == type_:
        return False
    if type_.kind == "param":
        found = known.get(type_.name)
        return found is None or _not_within(known, parameter, found)
    return all(_not_within(known, parameter, each) for each in type_.parameters)


def most_general(one: Type, other: Type) -> Type:
    return one if _is_less_specific(one, other) else other


def _is_less_specific(one: Type, other: Type) -> bool:
    if one.is_dyn or one.kind == "param":
        return True
    if other.is_dyn or other.kind == "param" or one.kind != other.kind:
        return False
    if one.kind in ("opaque", "list", "map"):
        same = one.name == other.name and len(one.parameters) == len(other.parameters)
        return same and all(map(_is_less_specific, one.parameters, other.parameters))
    return one.kind == "type" or one == other


def substitute(known: Substitution, type_: Type, *, to_dyn: bool = False) -> Type:
    """A type with what is known of its parameters; to_dyn: the others become dyn."""
    if type_.kind == "param":
        found = known.get(type_.name)
        if found is not None:
            return substitute(known, found, to_dyn=to_dyn)
        return DYN if to_dyn else type_
    if not type_.parameters:
        return type_
    inner = tuple(substitute(known, each, to_dyn=to_dyn) for each in type_.parameters)
    return type_ if inner == type_.parameters else Type(type_.kind, type_.name, inner)


# --- types by schemas -------------------------------------------------------------------------------------------------

MAX_REQUEST_BYTES = 3 * 1024 * 1024
_MAX_TIME_BYTES, _DATE_BYTES, _MIN_TIME_BYTES, _MIN_DURATION_BYTES = 32, 12, 21, 3


@dataclass(frozen=True, slots=True)
class DeclType:
    """The type of values that have a schema, and how large they may get.

    max_elements: characters, items or entries; 0 where that means nothing. min_size: bytes of the smallest such value.
    """

    type: Type
    min_size: int
    max_elements: int = 0
    key: DeclType | None = None
    element: DeclType | None = None
    fields: Mapping[str, DeclType] | None = None


def schema_decl_type(schema: Schema, *, root: bool, name: str = "object") -> DeclType | None:
    """None for values that expressions do not see: those whose type nobody knows. root: of a resource.

    name: of the type of objects, which those in it append to.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return DeclType(DYN, 1, _max_text(schema) if "maxLength" not in schema else _bytes_of(schema["maxLength"]))
    if root or schema.get("x-kubernetes-embedded-resource"):
        schema = with_object_meta(schema)
    match schema.get("type"):
        case "array":
            return _declared_list(schema, name)
        case "object":
            return _declared_object(schema, name)
        case "string":
            return _declared_text(schema)
        case "boolean":
            return DeclType(BOOL, 4)
        case "number":
            return DeclType(DOUBLE, 1)
        case "integer":
            return DeclType(INT, 1)
    return None


def _declared_list(schema: Schema, name: str) -> DeclType | None:
    items = schema.get("items")
    element = schema_decl_type(items, root=False, name=f"{name}.@idx") if items is not None else None
    if element is None:
        return None
    limit = schema.get("maxItems")
    count = max(0, int(limit)) if limit is not None else (MAX_REQUEST_BYTES - 2) // (element.min_size + 1)
    return DeclType(list_of(element.type), 2, count, element=element)


def _declared_object(schema: Schema, name: str) -> DeclType | None:
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        element = schema_decl_type(more, root=False, name=f"{name}.@elem")
        if element is None:
            return None
        limit = schema.get("maxProperties")
        count = max(0, int(limit)) if limit is not None else (MAX_REQUEST_BYTES - 2) // (element.min_size + 6)
        text = DeclType(STRING, 2)
        return DeclType(map_of(STRING, element.type), 2, count, key=text, element=element)
    fields: dict[str, DeclType] = {}
    size, required = 2, schema.get("required") or ()
    for each, below in (schema.get("properties") or {}).items():
        escaped = escape(each)
        found = schema_decl_type(below, root=False, name=f"{name}.{escaped if escaped is not None else each}")
        if found is None:
            continue
        if escaped is not None:
            fields[escaped] = found
        if each in required and below.get("default") is None:
            size += len(each.encode()) + found.min_size + 4
    types = {each: found.type for each, found in fields.items()}
    return DeclType(Type("struct", name, fields=types), size, fields=fields)


def _declared_text(schema: Schema) -> DeclType:
    length = schema.get("maxLength")
    match schema.get("format"):
        case "byte":
            return DeclType(BYTES, 2, max(0, int(length)) if length is not None else _max_text(schema))
        case "duration":
            return DeclType(DURATION, _MIN_DURATION_BYTES, _MAX_TIME_BYTES)
        case "date":
            return DeclType(TIMESTAMP, _DATE_BYTES, _DATE_BYTES)
        case "date-time":
            return DeclType(TIMESTAMP, _MIN_TIME_BYTES, _MAX_TIME_BYTES)
    if length is not None:
        return DeclType(STRING, 2, _bytes_of(length))
    if schema.get("enum"):
        longest = max((len(each.encode()) for each in schema["enum"] if isinstance(each, str)), default=0)
        return DeclType(STRING, 2, longest)
    return DeclType(STRING, 2, _max_text(schema))


def _max_text(_schema: Schema) -> int:
    return MAX_REQUEST_BYTES - 2


def _bytes_of(length: Any) -> int:
    """A code point has four bytes at most."""
    return max(0, int(length)) * 4


_TEXT: Schema = {"type": "string"}


def with_object_meta(schema: Schema) -> Schema:
    """A resource's schema with what expressions see of every resource: its apiVersion, kind and names."""
    meta: Schema = {"type": "object", "properties": {"name": _TEXT, "generateName": _TEXT}}
    known = {"kind": _TEXT, "apiVersion": _TEXT, "metadata": meta}
    return {**schema, "type": "object", "properties": {**(schema.get("properties") or {}), **known}}


# --- names ------------------------------------------------------------------------------------------------------------

RESERVED = frozenset({
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
    "loop", "package", "namespace", "return", "var", "void", "while",
})  # fmt: skip
_SIGNS = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_NAMES = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}


def escape(name: str) -> str | None:
    """A property's name as expressions write it; None if they cannot."""
    if not name or name[0] in "0123456789":
        return None
    if name in RESERVED:
        return f"__{name}__"
    if re.search(r"[^a-zA-Z0-9_./-]", name):
        return None
    return re.sub(r"__|[-./]", lambda match: _SIGNS[match[0]], name)


def unescape(name: str) -> str | None:
    """The property that an expression's name means; None if the escapes in it are none."""
    if "__" not in name:
        return name
    wrong = False

    def replaced(match: re.Match[str]) -> str:
        nonlocal wrong
        inner = match[0][2:-2]
        if inner in RESERVED:
            wrong = wrong or match[0] != name
            return inner
        wrong = wrong or inner not in _NAMES
        return _NAMES.get(inner, "")

    found = re.sub(r"_{2}[^_]+_{2}", replaced, name)
    return None if wrong else found
