"""Validation of required fields by the Go types alone, for kinds without validators of their own.

Covers only fields with omitempty: the decoder writes all other required fields, whatever their value.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.schema import StructType, TypeRef


def validate_required_fields(errors: ErrorList, struct: StructType, obj: JSON) -> None:
    """Add an error for every required field of a decoded object that is empty."""
    _validate_struct(errors, struct, obj, "")


def _validate_struct(errors: ErrorList, struct: StructType, value: JSON, path: str) -> None:
    for name, field in struct.json.items():
        field_path = f"{path}.{name}" if path else name
        nested = value.get(name)
        if field.required and field.omit_empty and not nested:
            errors.required(field_path, "")
        elif nested and _has_required_field(field.type.go_type):
            _validate_value(errors, field.type, nested, field_path)


def _validate_value(errors: ErrorList, ref: TypeRef, value: Any, path: str) -> None:
    if ref.kind == "struct" and ref.struct is not None:
        _validate_struct(errors, ref.struct, value, path)
    elif ref.kind == "list" and ref.element is not None:
        for index, item in enumerate(value):
            _validate_value(errors, ref.element, item, f"{path}[{index}]")
    elif ref.kind == "map" and ref.element is not None:
        for key, item in value.items():
            _validate_value(errors, ref.element, item, f"{path}[{key}]")


@cache
def _has_required_field(go_type: str) -> bool:
    """Return True if the type, or a type within it, has a required field that may be absent."""
    seen: set[str] = set()

    def has_required_field(ref: TypeRef) -> bool:
        if ref.kind in ("list", "map") and ref.element is not None:
            return has_required_field(ref.element)
        if ref.kind != "struct" or ref.struct is None or ref.named in seen:
            return False
        seen.add(ref.named)
        return any(
            (field.required and field.omit_empty) or has_required_field(field.type)
            for field in ref.struct.json.values()
        )

    return has_required_field(schema.type_ref(go_type))
