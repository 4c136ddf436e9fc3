"""Values as Go prints them in error messages: JSON of internal API types, and differences of two values.

kube-apiserver validates objects in their internal version, so a message shows the fields of the internal Go type.
"""

from __future__ import annotations

from difflib import unified_diff
from typing import Any

import msgspec

from kubeloop.devcluster.validation.common.internal_types import HOST_FIELDS, ORDER, PLAIN
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted


def go_json(value: Any, type_name: str = "") -> str:
    """Return a value as Go's json.Marshal writes it inside kube-apiserver.

    Types of meta/v1 have JSON tags, and those of scheduling/v1alpha2 are validated in their own version. All others are
    in their internal version, which has no tags: fields carry their Go names and are present even if they are empty.
    """
    if type_name.startswith(_VERSIONED):
        return _escaped(_encode(_versioned_value(value, type_name)))
    return _escaped(_encode(internal_value(value, type_name)))


_encode = msgspec.json.Encoder(enc_hook=str).encode
"""Encodes decoding.TimeOfAnyYear, too."""

_VERSIONED = ("meta/v1.", "scheduling/v1alpha2.")


def _escaped(text: bytes) -> str:
    """Escape HTML characters as Go's JSON encoder does."""
    return text.decode().replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _element(ref: schema.TypeRef) -> schema.TypeRef:
    return ref.element if ref.kind in ("list", "map") and ref.element is not None else ref


def _versioned_value(value: Any, type_name: str) -> Any:
    if type(value) is list:
        return [_versioned_value(item, type_name) for item in value]
    if type(value) is not dict:
        return value
    struct = schema.type_named(type_name) if type_name else None
    if struct is None:
        return {key: _versioned_value(value[key], "") for key in sorted(value)}
    return {
        name: _versioned_value(value[name], _element(field.type).named if field.type.kind != "map" else "")
        for name, field in struct.json.items()
        if name in value and not (field.omit_empty and value[name] in ([], {}))
    }


def internal_value(value: Any, type_name: str) -> Any:
    """Return a value of a type, or a list of such values, with the fields of the internal version of the Go struct."""
    if type(value) is list:
        return [internal_value(item, type_name) for item in value]
    if type(value) is not dict:
        return value
    struct = schema.type_named(type_name) if type_name else None
    if struct is None:
        return {key: internal_value(value[key], "") for key in sorted(value)}
    result: JSON = {}
    for field in struct.json.values():
        if field.go_name == "ObjectMeta":  # embedded, with its own JSON tags
            result |= _versioned_value(value.get(field.name, {}), field.type.named)
        else:
            result[field.go_name] = _internal_field(value.get(field.name), field.type)
            if result[field.go_name] is None and (type_name, field.go_name) in PLAIN:
                result[field.go_name] = 0
    order = ORDER.get(type_name)
    if order is None:
        return result
    if type_name == "core/v1.PodSpec" and result["SecurityContext"] is not None:
        result["SecurityContext"] |= {name: result[name] for name in HOST_FIELDS}
    return {name: result.get(name, False if name in _HOST_SWITCHES else None) for name in order}


_HOST_SWITCHES = HOST_FIELDS[:3]  # plain booleans; the other host fields are pointers


def struct_differences(old: Any, new: Any, type_name: str) -> str:
    """Return how a Go struct has changed, as Kubernetes appends it to some messages."""
    return json_differences(internal_value(old, type_name), internal_value(new, type_name))


def json_differences(old: Any, new: Any) -> str:
    """Return a unified diff without file names, as apimachinery's diff.Diff writes it."""
    before, after = (
        f"{_escaped(msgspec.json.format(_encode(version), indent=1))}\n".splitlines(keepends=True)
        for version in (old, new)
    )
    return "".join(list(unified_diff(before, after))[2:])


_ZERO: dict[str, Any] = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "float64": 0,
    "quantity": "0",
    "intOrString": 0,
    "duration": "0s",
}


def _internal_field(value: Any, ref: schema.TypeRef) -> Any:
    if value is None and (ref.pointer or ref.kind != "struct"):
        return None if ref.pointer else _ZERO.get(ref.kind)
    if ref.kind == "struct":
        return (
            _versioned_value(value, ref.named)
            if ref.named.startswith("meta/v1.")
            else internal_value(value or {}, ref.named)
        )
    if ref.kind == "list" and ref.element is not None:
        return [_internal_field(item, ref.element) for item in value]
    if ref.kind == "map" and ref.element is not None:
        return {key: _internal_field(value[key], ref.element) for key in sorted(value)}
    return value


def format_value(value: Any, type_name: str = "") -> str:
    """Return an invalid value as an error message shows it."""
    if type(value) is str:
        return quoted(value)
    if type(value) is bool:
        return "true" if value else "false"
    if value is None:
        return "null"
    if type(value) in (int, float):
        return str(value)
    return go_json(value, type_name)
