"""Fields that must be there, by the types alone: the rule of kinds that have no rules of their own.

Only those that Go leaves out when they are empty; all other required fields are written whatever they hold.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.schema import StructType, TypeRef


def validate_required_fields(errors: ErrorList, struct: StructType, obj: JSON) -> None:
    """Add a cause for every required field of a decoded object that is empty."""
    _validate_struct(errors, struct, obj, "")


def _validate_struct(errors: ErrorList, struct: StructType, value: JSON, path: str) -> None:
    for name, field in struct.json.items():
        here = f"{path}.{name}" if path else name
        given = value.get(name)
        if field.required and field.omit_empty and not given:
            errors.required(here, "")
        elif given and _may_lack(field.type.go_type):
            _validate_value(errors, field.type, given, here)


def _validate_value(errors: ErrorList, ref: TypeRef, value: Any, path: str) -> None:
    if ref.kind == "struct" and ref.struct is not None:
        _validate_struct(errors, ref.struct, value, path)
    elif ref.kind == "list" and ref.element is not None:
        for index, each in enumerate(value):
            _validate_value(errors, ref.element, each, f"{path}[{index}]")
    elif ref.kind == "map" and ref.element is not None:
        for key, each in value.items():
            _validate_value(errors, ref.element, each, f"{path}[{key}]")


@cache
def _may_lack(go_type: str) -> bool:
    """Is there a field in this type that may be missing?"""
    seen: set[str] = set()

    def look(ref: TypeRef) -> bool:
        if ref.kind in ("list", "map") and ref.element is not None:
            return look(ref.element)
        if ref.kind != "struct" or ref.struct is None or ref.named in seen:
            return False
        seen.add(ref.named)
        return any((field.required and field.omit_empty) or look(field.type) for field in ref.struct.json.values())

    return look(schema.type_ref(go_type))
