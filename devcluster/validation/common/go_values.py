"""Values as Go prints them in error messages: JSON of internal API types, and differences of two values.

kube-apiserver validates objects in their internal version, so a message shows the fields of the internal Go type."""

from __future__ import annotations

from difflib import unified_diff
from typing import Any

import msgspec

from kubeloop.devcluster.api.errors import quoted
from kubeloop.devcluster.validation.common.internal_types import HOST_FIELDS, ORDER, PLAIN
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON


def go_json(value: Any, type_name: str = "") -> str:
    """A value as Go's json.Marshal writes it inside kube-apiserver.

    Types of meta/v1 have JSON tags. All others are there in their internal version, which has none: fields carry their
    Go names and appear even if they are empty.
    """
    if type_name.startswith("meta/v1."):
        return _escaped(msgspec.json.encode(_tagged(value, type_name)))
    return _escaped(msgspec.json.encode(internal(value, type_name)))


def _escaped(text: bytes) -> str:
    """Go's encoder writes what HTML gives a meaning in hexadecimal."""
    return text.decode().replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _element(ref: schema.TypeRef) -> schema.TypeRef:
    return ref.element if ref.kind in ("list", "map") and ref.element is not None else ref


def _tagged(value: Any, type_name: str) -> Any:
    if type(value) is list:
        return [_tagged(each, type_name) for each in value]
    if type(value) is not dict:
        return value
    struct = schema.type_named(type_name) if type_name else None
    if struct is None:
        return {key: _tagged(value[key], "") for key in sorted(value)}
    return {
        name: _tagged(value[name], _element(each.type).named if each.type.kind != "map" else "")
        for name, each in struct.json.items()
        if name in value and not (each.omit_empty and value[name] in ([], {}))
    }


def internal(value: Any, type_name: str) -> Any:
    """A value of a type by its name, or of a list of them, as the internal version of its Go struct."""
    if type(value) is list:
        return [internal(each, type_name) for each in value]
    if type(value) is not dict:
        return value
    struct = schema.type_named(type_name) if type_name else None
    if struct is None:
        return {key: internal(value[key], "") for key in sorted(value)}
    result: JSON = {}
    for each in struct.json.values():
        if each.go_name == "ObjectMeta":  # embedded, and has tags of its own
            result |= _tagged(value.get(each.name, {}), each.type.named)
        else:
            result[each.go_name] = _internal_field(value.get(each.name), each.type)
            if result[each.go_name] is None and (type_name, each.go_name) in PLAIN:
                result[each.go_name] = 0
    order = ORDER.get(type_name)
    if order is None:
        return result
    if type_name == "core/v1.PodSpec" and result["SecurityContext"] is not None:
        result["SecurityContext"] |= {name: result[name] for name in HOST_FIELDS}
    return {name: result.get(name, False if name in _HOST_SWITCHES else None) for name in order}


_HOST_SWITCHES = HOST_FIELDS[:3]  # the others are pointers


def struct_differences(old: Any, new: Any, type_name: str) -> str:
    """How a Go struct has changed, as Kubernetes appends it to some messages."""
    return json_differences(internal(old, type_name), internal(new, type_name))


def json_differences(old: Any, new: Any) -> str:
    """A unified diff without the names of files, as apimachinery's diff.Diff writes it."""
    before, after = (
        f"{_escaped(msgspec.json.format(msgspec.json.encode(each), indent=1))}\n".splitlines(keepends=True)
        for each in (old, new)
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
        return _tagged(value, ref.named) if ref.named.startswith("meta/v1.") else internal(value or {}, ref.named)
    if ref.kind == "list" and ref.element is not None:
        return [_internal_field(each, ref.element) for each in value]
    if ref.kind == "map" and ref.element is not None:
        return {key: _internal_field(value[key], ref.element) for key in sorted(value)}
    return value


def shown(value: Any, type_name: str = "") -> str:
    """A bad value inside a message."""
    if type(value) is str:
        return quoted(value)
    if type(value) is bool:
        return "true" if value else "false"
    if value is None:
        return "null"
    if type(value) in (int, float):
        return str(value)
    return go_json(value, type_name)
