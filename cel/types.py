"""CEL types, assignability, and the types and maximum sizes that an OpenAPI schema declares.

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
    """A CEL type. `kind`: "bool", "int", ... or "list", "map", "type", "opaque", "struct", "param", "error".

    `fields`: field types of a declared struct, by escaped field name.
    """

    kind: str
    name: str
    parameters: tuple[Type, ...] = ()
    fields: Mapping[str, Type] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        if self.kind in ("null", "timestamp", "duration"):
            return self.kind
        if self.kind == "error":
            return "!error!"
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
    type_.name: type_
    for type_ in (BOOL, BYTES, DOUBLE, INT, NULL, STRING, UINT, DURATION, TIMESTAMP, TYPE, DYN, IP, CIDR)
} | {
    "list": Type("list", "list", (DYN,)),
    "map": Type("map", "map", (DYN, DYN)),
    "optional_type": Type("opaque", "optional_type", (Type("param", "V"),)),
    **{type_.name: type_ for type_ in (QUANTITY, URL, SEMVER, FORMAT)},
}
"""Types by the identifier that denotes them in expressions."""


def list_of(element: Type) -> Type:
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("opaque", "optional_type", (value,))


def type_of_type(of: Type) -> Type:
    return Type("type", "type", (of,))


def unwrap_optional(type_: Type) -> tuple[Type, bool]:
    """Return (inner type, True) for an optional type, else (the type itself, False)."""
    if type_.kind == "opaque" and type_.name == "optional_type":
        return type_.parameters[0], True
    return type_, False


# --- assignability ----------------------------------------------------------------------------------------------------

Substitution = dict[str, Type]
"""Types assigned to type parameters, by parameter name."""

_NULLABLE = ("opaque", "struct", "any", "duration", "timestamp")


def is_assignable(substitution: Substitution, one: Type, other: Type) -> Substitution | None:
    """Return the extended substitution if `one` and `other` are assignable, else None."""
    extended = dict(substitution)
    return extended if _assignable(extended, one, other) else None


def are_assignable(substitution: Substitution, ones: list[Type], others: list[Type]) -> Substitution | None:
    extended = dict(substitution)
    return extended if _all_assignable(extended, ones, others) else None


def _all_assignable(substitution: Substitution, ones: Any, others: Any) -> bool:
    return len(ones) == len(others) and all(
        _assignable(substitution, one, other) for one, other in zip(ones, others, strict=True)
    )


def _assignable(substitution: Substitution, one: Type, other: Type) -> bool:
    if other.kind == "param":
        valid, assigned = _assign_parameter(substitution, one, other)
        if valid or assigned:
            return valid
    if one.kind == "param":
        return _assign_parameter(substitution, other, one)[0]
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
        return same and _all_assignable(substitution, one.parameters, other.parameters)
    return one.kind == other.kind and one.name == other.name


def _assign_parameter(substitution: Substitution, type_: Type, parameter: Type) -> tuple[bool, bool]:
    """Return (the type may replace the parameter, the parameter already has a type)."""
    if type_ == parameter:
        return True, True
    assigned = substitution.get(parameter.name)
    if assigned is not None:
        if type_ == assigned:
            return True, True
        if _assignable(substitution, type_, assigned):
            general = most_general(type_, assigned)
            if _does_not_occur(substitution, parameter, general):
                substitution[parameter.name] = general
            return True, True
        return False, True
    if _does_not_occur(substitution, parameter, type_):
        substitution[parameter.name] = type_
        return True, False
    return False, False


def _does_not_occur(substitution: Substitution, parameter: Type, type_: Type) -> bool:
    if parameter == type_:
        return False
    if type_.kind == "param":
        assigned = substitution.get(type_.name)
        return assigned is None or _does_not_occur(substitution, parameter, assigned)
    return all(_does_not_occur(substitution, parameter, inner) for inner in type_.parameters)


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


def substitute(substitution: Substitution, type_: Type, *, to_dyn: bool = False) -> Type:
    """Return the type with its parameters replaced by their substitutions; to_dyn: unassigned ones become dyn."""
    if type_.kind == "param":
        assigned = substitution.get(type_.name)
        if assigned is not None:
            return substitute(substitution, assigned, to_dyn=to_dyn)
        return DYN if to_dyn else type_
    if not type_.parameters:
        return type_
    inner = tuple(substitute(substitution, parameter, to_dyn=to_dyn) for parameter in type_.parameters)
    return type_ if inner == type_.parameters else Type(type_.kind, type_.name, inner)


# --- types from schemas -----------------------------------------------------------------------------------------------

MAX_REQUEST_BYTES = 3 * 1024 * 1024
_MAX_STRING_BYTES = MAX_REQUEST_BYTES - 2
_MAX_TIME_BYTES, _DATE_BYTES, _MIN_TIME_BYTES, _MIN_DURATION_BYTES = 32, 12, 21, 3


@dataclass(frozen=True, slots=True)
class DeclType:
    """Type and size limits of values of a schema (apiserver's DeclType).

    max_elements: maximum characters, items or entries; 0 for other types. min_size: bytes of the smallest value.
    """

    type: Type
    min_size: int
    max_elements: int = 0
    key: DeclType | None = None
    element: DeclType | None = None
    fields: Mapping[str, DeclType] | None = None


def schema_decl_type(schema: Schema, *, root: bool, name: str = "object") -> DeclType | None:
    """Return the type of a schema's values, or None if its type is unknown, which hides the values from expressions.

    root: the schema of a resource, with apiVersion, kind and metadata. name: of an object type; nested types append to
    it.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return DeclType(DYN, 1, _utf8_bytes(schema["maxLength"]) if "maxLength" in schema else _MAX_STRING_BYTES)
    if root or schema.get("x-kubernetes-embedded-resource"):
        schema = with_object_meta(schema)
    match schema.get("type"):
        case "array":
            return _list_decl_type(schema, name)
        case "object":
            return _object_decl_type(schema, name)
        case "string":
            return _string_decl_type(schema)
        case "boolean":
            return DeclType(BOOL, 4)
        case "number":
            return DeclType(DOUBLE, 1)
        case "integer":
            return DeclType(INT, 1)
    return None


def _list_decl_type(schema: Schema, name: str) -> DeclType | None:
    items = schema.get("items")
    element = schema_decl_type(items, root=False, name=f"{name}.@idx") if items is not None else None
    if element is None:
        return None
    limit = schema.get("maxItems")
    count = max(0, int(limit)) if limit is not None else (MAX_REQUEST_BYTES - 2) // (element.min_size + 1)
    return DeclType(list_of(element.type), 2, count, element=element)


def _object_decl_type(schema: Schema, name: str) -> DeclType | None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        element = schema_decl_type(additional, root=False, name=f"{name}.@elem")
        if element is None:
            return None
        limit = schema.get("maxProperties")
        count = max(0, int(limit)) if limit is not None else (MAX_REQUEST_BYTES - 2) // (element.min_size + 6)
        text = DeclType(STRING, 2)
        return DeclType(map_of(STRING, element.type), 2, count, key=text, element=element)
    fields: dict[str, DeclType] = {}
    size, required = 2, schema.get("required") or ()
    for property_name, property_schema in (schema.get("properties") or {}).items():
        escaped = escape(property_name)
        property_type = schema_decl_type(
            property_schema, root=False, name=f"{name}.{escaped if escaped is not None else property_name}"
        )
        if property_type is None:
            continue
        if escaped is not None:
            fields[escaped] = property_type
        if property_name in required and property_schema.get("default") is None:
            size += len(property_name.encode()) + property_type.min_size + 4
    types = {field_name: property_type.type for field_name, property_type in fields.items()}
    return DeclType(Type("struct", name, fields=types), size, fields=fields)


def _string_decl_type(schema: Schema) -> DeclType:
    length = schema.get("maxLength")
    match schema.get("format"):
        case "byte":
            return DeclType(BYTES, 2, max(0, int(length)) if length is not None else _MAX_STRING_BYTES)
        case "duration":
            return DeclType(DURATION, _MIN_DURATION_BYTES, _MAX_TIME_BYTES)
        case "date":
            return DeclType(TIMESTAMP, _DATE_BYTES, _DATE_BYTES)
        case "date-time":
            return DeclType(TIMESTAMP, _MIN_TIME_BYTES, _MAX_TIME_BYTES)
    if length is not None:
        return DeclType(STRING, 2, _utf8_bytes(length))
    if schema.get("enum"):
        longest = max((len(value.encode()) for value in schema["enum"] if isinstance(value, str)), default=0)
        return DeclType(STRING, 2, longest)
    return DeclType(STRING, 2, _MAX_STRING_BYTES)


def _utf8_bytes(length: Any) -> int:
    """Return the most bytes of a string of `length` code points (four bytes each)."""
    return max(0, int(length)) * 4


_STRING_SCHEMA: Schema = {"type": "string"}


def with_object_meta(schema: Schema) -> Schema:
    """Return a resource's schema with the properties of every resource: apiVersion, kind, and metadata's names."""
    meta: Schema = {"type": "object", "properties": {"name": _STRING_SCHEMA, "generateName": _STRING_SCHEMA}}
    metadata_properties = {"kind": _STRING_SCHEMA, "apiVersion": _STRING_SCHEMA, "metadata": meta}
    return {**schema, "type": "object", "properties": {**(schema.get("properties") or {}), **metadata_properties}}


# --- names ------------------------------------------------------------------------------------------------------------

RESERVED = frozenset({
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
    "loop", "package", "namespace", "return", "var", "void", "while",
})  # fmt: skip
_SIGNS = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_NAMES = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}


def escape(name: str) -> str | None:
    """Return a property's name as an identifier of expressions, or None if it cannot be escaped."""
    if not name or name[0] in "0123456789":
        return None
    if name in RESERVED:
        return f"__{name}__"
    if re.search(r"[^a-zA-Z0-9_./-]", name):
        return None
    return re.sub(r"__|[-./]", lambda match: _SIGNS[match[0]], name)


def unescape(name: str) -> str | None:
    """Return the property name of an escaped identifier, or None if an escape is invalid."""
    if "__" not in name:
        return name
    invalid = False

    def replaced(match: re.Match[str]) -> str:
        nonlocal invalid
        inner = match[0][2:-2]
        if inner in RESERVED:
            invalid = invalid or match[0] != name
            return inner
        invalid = invalid or inner not in _NAMES
        return _NAMES.get(inner, "")

    unescaped = re.sub(r"_{2}[^_]+_{2}", replaced, name)
    return None if invalid else unescaped
