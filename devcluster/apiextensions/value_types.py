"""Value types of the schemas of custom resources.

Maps are granular unless declared atomic, lists are atomic unless declared as sets or maps. Source: kube-openapi
pkg/schemaconv.
"""

from __future__ import annotations

from functools import cached_property

from kubeloop.devcluster.api.value_types import UNTYPED, ValueType
from kubeloop.devcluster.apiextensions.structural_schema import (
    EMBEDDED,
    INT_OR_STRING,
    LIST_KEYS,
    LIST_TYPE,
    MAP_TYPE,
    PRESERVE,
    Schema,
    additional_properties_of,
)
from kubeloop.devcluster.managedfields.go_types import go_type

_KINDS = {
    "object": "map", "array": "list", "string": "string", "integer": "int64", "number": "float64", "boolean": "bool",
}  # fmt: skip


class SchemaValueType(ValueType):
    """The type of the values of a structural schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        int_or_string = bool(schema.get(INT_OR_STRING))
        self.kind = "any" if int_or_string else _KINDS.get(schema.get("type") or "", "any")
        self.is_atomic = int_or_string or schema.get(MAP_TYPE) == "atomic"
        self.is_open = bool(schema.get(PRESERVE) or schema.get("additionalProperties") is not None)
        self.is_open |= not schema.get("properties")
        list_type = schema.get(LIST_TYPE)
        self.list_type = list_type if list_type in ("map", "set") else ""
        self.list_keys = tuple(sorted(schema.get(LIST_KEYS) or ()))
        self.default = schema.get("default")

    @cached_property
    def fields(self) -> dict[str, ValueType]:
        declared = {name: schema_type(schema) for name, schema in (self._schema.get("properties") or {}).items()}
        return {**declared, **_object_fields()} if self._schema.get(EMBEDDED) else declared

    @cached_property
    def members(self) -> ValueType:
        return schema_type(additional_properties_of(self._schema)[1])

    @cached_property
    def items(self) -> ValueType:
        return schema_type(self._schema.get("items"))


def schema_type(schema: Schema | None) -> ValueType:
    """Return the type of the values of a schema, or of values without one."""
    return SchemaValueType(schema) if schema is not None else UNTYPED


def object_type(schema: Schema) -> ValueType:
    """Return the type of whole objects, which includes their metadata."""
    return SchemaValueType({**schema, EMBEDDED: True})


def _object_fields() -> dict[str, ValueType]:
    string = schema_type({"type": "string"})
    return {"apiVersion": string, "kind": string, "metadata": go_type("meta/v1.ObjectMeta")}
