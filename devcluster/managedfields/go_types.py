"""Value types of the Go types of Kubernetes' API."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

from kubeloop.devcluster.api.strategy import CustomResource
from kubeloop.devcluster.api.value_types import UNTYPED, ValueType
from kubeloop.kube import schema
from kubeloop.kube.objects.resources import Resource


class GoValueType(ValueType):
    """The type of a Go field, slice element or map value. The declaration of a field overrides that of its type."""

    def __init__(self, ref: schema.TypeRef, field: schema.Field | None) -> None:
        self._ref = ref
        self._declared = ""
        if field is not None:
            self._declared = field.struct_type or field.map_type
            self.list_type = field.list_type if field.list_type in ("map", "set") else ""
            self.list_keys = tuple(sorted(field.list_map_keys))
            self.default = _default(field)
        self.kind = "map" if ref.kind == "struct" else ref.kind
        self.is_open = ref.kind != "struct"

    @cached_property
    def is_atomic(self) -> bool:  # type: ignore[override]
        if self._declared:
            return self._declared == "atomic"
        struct = self._ref.struct
        return struct.atomic if struct is not None else self.kind != "map"

    @cached_property
    def fields(self) -> dict[str, ValueType]:
        struct = self._ref.struct
        return {} if struct is None else {name: _go_type(field.type, field) for name, field in struct.json.items()}

    @cached_property
    def members(self) -> ValueType:
        return _go_type(self._ref.element) if self._ref.element is not None else UNTYPED

    @cached_property
    def items(self) -> ValueType:
        return self.members


def _default(field: schema.Field) -> Any:
    """Return the default in the published schema: Go's zero value for fields that are always encoded."""
    if field.default is not None or field.omit_empty or field.type.pointer:
        return field.default
    return {"string": "", "int32": 0, "int64": 0}.get(field.type.kind)


@cache
def _go_type(ref: schema.TypeRef, field: schema.Field | None = None) -> ValueType:
    return GoValueType(ref, field)


def go_type(name: str) -> ValueType:
    """Return the value type of a Go type with this qualified name ("meta/v1.ObjectMeta")."""
    return _go_type(schema.type_ref(name))


def value_type_of(resource: Resource[Any]) -> ValueType:
    """Return the type of the objects of a resource."""
    if isinstance(resource, CustomResource):
        return resource.rules.value_type
    struct = schema.type_for(resource.group, resource.version, resource.kind)
    assert struct is not None, resource
    return go_type(struct.name)
