"""Go types of the Kubernetes v1.36 API: names, JSON names, protobuf numbers, merge and list semantics.

`types.json` has the types of the groups that are served by default; tests/support/development/generate_schema.py
writes it from Kubernetes' Go sources, and this module gives typed access. A type is named by the Go package below
k8s.io/api (or apimachinery's meta/v1, resource, intstr, runtime, types) and the Go name: "core/v1.PodSpec",
"meta/v1.ObjectMeta", "resource.Quantity". Fields are in order of declaration.

The file is read on first use (about 2 ms), types are built on demand. Imports msgspec only.
"""

from __future__ import annotations

import re
from functools import cache, cached_property
from hashlib import sha512
from pathlib import Path
from typing import Any

import msgspec

SCALARS = {
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "intOrString",
    "meta/v1.Time": "time",
    "meta/v1.MicroTime": "microTime",
    "meta/v1.Duration": "duration",
    "meta/v1.FieldsV1": "fieldsV1",
    "runtime.RawExtension": "raw",
    "apiextensions/v1.JSON": "any",
    "apiextensions/v1.JSONSchemaPropsOrArray": "any",
    "apiextensions/v1.JSONSchemaPropsOrBool": "any",
    "apiextensions/v1.JSONSchemaPropsOrStringArray": "any",
}
"""Go structs that are a single value in JSON, and their kind in a TypeRef."""

_MAP = re.compile(r"map\[([^\]]+)\](.*)")


class TypeRef(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Type of a Go field, slice element or map value.

    kind: "struct", "list", "map", "string", "bool", "int32", "int64", "float64", "byte", "bytes" or one of SCALARS'
    values. go_type is the Go text with qualified names ("*core/v1.Protocol"); named is the alias or struct it names, ""
    for built-in and composite types.
    """

    go_type: str
    kind: str
    pointer: bool = False
    named: str = ""
    element: TypeRef | None = None
    key: TypeRef | None = None

    @cached_property
    def struct(self) -> StructType | None:
        """The struct of this type (directly or by pointer), else None."""
        return type_named(self.named) if self.kind == "struct" else None

    @property
    def enum(self) -> tuple[str, ...]:
        """Values of an alias that is marked as an enum, in order of declaration; () for other types."""
        return enum_values(self.named) if self.named else ()


class Field(msgspec.Struct, frozen=True, eq=False):
    """One field of a Go struct. proto_number is 0 for fields without protobuf (TypeMeta)."""

    go_name: str
    name: str  # in JSON; "" for inlined structs
    type: TypeRef
    proto_number: int
    inline: bool
    embedded: bool
    omit_empty: bool
    omit_zero: bool
    required: bool
    patch_strategy: tuple[str, ...] = ()
    patch_merge_key: str = ""
    list_type: str = ""  # "map", "set", "atomic" or ""
    list_map_keys: tuple[str, ...] = ()
    map_type: str = ""  # "granular", "atomic" or ""
    struct_type: str = ""
    default: Any = None


class StructType(msgspec.Struct, frozen=True, eq=False):
    """A Go struct. `fields` as declared; `json` maps JSON names to fields, with inlined structs flattened."""

    name: str
    fields: tuple[Field, ...]
    atomic: bool = False
    json: dict[str, Field] = {}

    @property
    def package(self) -> str:
        """Package, "core/v1" for "core/v1.PodSpec"."""
        return self.name.rpartition(".")[0]

    @property
    def go_package(self) -> str:
        """Go's package name of the type: "v1", "resource", "intstr"."""
        return self.package.rpartition("/")[2]

    @property
    def go_name(self) -> str:
        return self.name.rpartition(".")[2]


class _Table(msgspec.Struct):
    kinds: dict[str, str]
    aliases: dict[str, str]
    enums: dict[str, tuple[str, ...]]
    atomic: frozenset[str]
    types: dict[str, msgspec.Raw]


@cache
def _table() -> _Table:
    return msgspec.json.decode(Path(__file__).with_name("types.json").read_bytes(), type=_Table)


@cache
def type_ref(go_type: str) -> TypeRef:
    """Parse a Go type expression. Raises KeyError for an unknown name."""
    if go_type.startswith("*"):
        inner = type_ref(go_type[1:])
        return TypeRef(go_type, inner.kind, True, inner.named, inner.element, inner.key)
    if go_type.startswith("[]"):
        element = type_ref(go_type[2:])
        return TypeRef(go_type, "bytes" if element.kind == "byte" else "list", element=element)
    if match := _MAP.fullmatch(go_type):
        return TypeRef(go_type, "map", key=type_ref(match[1]), element=type_ref(match[2]))
    if go_type in SCALARS:
        return TypeRef(go_type, SCALARS[go_type], named=go_type)
    if "." not in go_type:
        return TypeRef(go_type, go_type)
    table = _table()
    if go_type in table.types:
        return TypeRef(go_type, "struct", named=go_type)
    target = type_ref(table.aliases[go_type])
    return TypeRef(go_type, target.kind, target.pointer, target.named or go_type, target.element, target.key)


def _field(row: list[Any]) -> Field:
    go_name, name, go_type, number, _wire, flags, *rest = row
    extra: dict[str, Any] = rest[0] if rest else {}
    strategy = extra.get("patchStrategy", "")
    return Field(
        go_name=go_name,
        name=name,
        type=type_ref(go_type),
        proto_number=number,
        inline="i" in flags,
        embedded="e" in flags,
        omit_empty="o" in flags,
        omit_zero="z" in flags,
        required="r" in flags,
        patch_strategy=tuple(strategy.split(",")) if strategy else (),
        patch_merge_key=extra.get("patchMergeKey", ""),
        list_type=extra.get("listType", ""),
        list_map_keys=tuple(extra.get("listMapKeys", ())),
        map_type=extra.get("mapType", ""),
        struct_type=extra.get("structType", ""),
        default=extra.get("default"),
    )


@cache
def type_named(name: str) -> StructType | None:
    """Return the struct with this qualified name ("core/v1.PodSpec"), or None."""
    table = _table()
    raw = table.types.get(name)
    if raw is None:
        return None
    fields = tuple(_field(row) for row in msgspec.json.decode(raw))
    by_json: dict[str, Field] = {}
    for struct_field in fields:
        if struct_field.inline:
            inner = struct_field.type.struct
            if inner is not None:
                by_json.update(inner.json)
        else:
            by_json[struct_field.name] = struct_field
    return StructType(name=name, fields=fields, atomic=name in table.atomic, json=by_json)


@cache
def type_for(group: str, version: str, kind: str) -> StructType | None:
    """Return the struct of a kind: type_for("apps", "v1", "Deployment"), core group "". None for an unknown kind."""
    name = _table().kinds.get(f"{group}/{version}/{kind}")
    return type_named(name) if name is not None else None


def kinds() -> dict[tuple[str, str, str], str]:
    """Return all (group, version, kind) with the name of their struct."""
    result: dict[tuple[str, str, str], str] = {}
    for key, name in _table().kinds.items():
        group, version, kind = key.split("/")
        result[(group, version, kind)] = name
    return result


def fingerprint() -> bytes:
    """Return a hash of all types."""
    table = _table()
    return sha512(repr((table.kinds, table.types, table.enums)).encode()).digest()


def enum_values(alias: str) -> tuple[str, ...]:
    """Return the values of an enum such as "core/v1.RestartPolicy", in order of declaration; () for other types."""
    return _table().enums.get(alias, ())
