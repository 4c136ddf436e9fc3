"""Validation of applied configurations against their type, with the errors of structured-merge-diff.

In contrast to decoding, it distinguishes only maps, lists and three kinds of scalars, but checks keys and duplicates of
lists. Source: sigs.k8s.io/structured-merge-diff typed/validate.go, typed/helpers.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kubeloop.devcluster.api.value_types import ValueType
from kubeloop.devcluster.languages.go_text import go_print
from kubeloop.devcluster.managedfields.field_sets import keys_of
from kubeloop.devcluster.serializer.decoding import DecodeError, decode_base64, go_type_name
from kubeloop.devcluster.serializer.patches import format_go_syntax
from kubeloop.kube import schema

_STRING_KINDS = frozenset({"string", "bytes"})
_NUMBER_KINDS = frozenset({"int32", "int64", "float64", "byte"})
_UNTYPED_SCALAR_KINDS = frozenset({"quantity", "intOrString", "time", "microTime", "duration"})
_CONTAINERS = {"map": dict, "list": list}
_GO_TYPES = {str: "string", bool: "bool", list: "[]interface {}", dict: "map[string]interface {}"}


def type_error(value_type: ValueType, configuration: Any) -> str:
    """Return all errors of a configuration, one per line if there are several; "" if there are none."""
    errors = list(_value_errors(value_type, configuration, ""))
    return errors[0] if len(errors) == 1 else "".join(f"\n  {error}" for error in errors).replace("\n", "errors:\n", 1)


def _with_path(path: str, error: str) -> str:
    return f"{path}: {error}" if path else error


def _value_errors(value_type: ValueType, value: Any, path: str) -> Iterator[str]:
    """Yield the errors of a value at `path` (".metadata")."""
    kind = value_type.kind
    if value is None:
        return
    if kind in _CONTAINERS:
        if type(value) is not _CONTAINERS[kind]:
            yield _with_path(path, f"expected {kind}, got &{{{go_print(value)}}}")
            return
    elif error := _scalar_type_error(kind, value):
        yield _with_path(path, error)
        return
    if type(value) is dict:
        for name, member in value.items():
            if not value_type.is_open and name not in value_type.fields:
                yield _with_path(f"{path}.{name}", "field not declared in schema")
                return
            yield from _value_errors(value_type.member(name), member, f"{path}.{name}")
    elif type(value) is list:
        yield from _list_errors(value_type, value, path)


def _list_errors(value_type: ValueType, items: list[Any], path: str) -> Iterator[str]:
    elements = set()
    for index, item in enumerate(items):
        path_element = f"[{index}]"
        if value_type.list_type:
            if error := _item_error(value_type, item):
                yield _with_path(path, f"element {index}: {error}")
                return
            path_element = _path_element(value_type, item)
            if path_element in elements:
                yield _with_path(path, f"duplicate entries for key {path_element}")
            elements.add(path_element)
        yield from _value_errors(value_type.items, item, f"{path}{path_element}")


def _item_error(value_type: ValueType, item: Any) -> str:
    if value_type.list_type == "set":
        if item is None:
            return "associative list without keys has an element that's an explicit null"
        if type(item) is dict:
            return "associative list without keys has an element that's a map type"
        return "not supported: associative list with lists as elements" if type(item) is list else ""
    if item is None:
        return "associative list with keys may not have a null element"
    if type(item) is not dict:
        return "associative list with keys may not have non-map elements"
    if not keys_of(value_type, item):
        names = " ".join(f'"{name}"' for name in value_type.list_keys)
        reason = "(and doesn't have default values for any key fields)"
        return f"associative list with keys has an element that omits all key fields [{names}] {reason}"
    return ""


def _path_element(value_type: ValueType, item: Any) -> str:
    """Return an item as errors name it: [name="a"] in a list map, [="a"] in a set."""
    pairs = keys_of(value_type, item).items() if value_type.list_type == "map" else [("", item)]
    return f"[{','.join(f'{name}={msgspec.json.encode(value).decode()}' for name, value in pairs)}]"


def _scalar_type_error(kind: str, value: Any) -> str:
    """Return the error of a value of a scalar kind ("string", "int64", "bool", ...), or ""."""
    type_ = type(value)
    if kind in _STRING_KINDS:
        return (
            "" if type_ is str else f"expected string, got &value.valueUnstructured{{Value:{format_go_syntax(value)}}}"
        )
    if kind in _NUMBER_KINDS:
        is_number = type_ in (int, float)
        return "" if is_number else f"expected numeric (int or float), got {_GO_TYPES.get(type_, type_.__name__)}"
    if kind == "bool":
        return "" if type_ is bool else f"expected boolean, got &{{{go_print(value)}}}"
    if kind in _UNTYPED_SCALAR_KINDS and type_ in (dict, list):
        return f"expected any scalar, got &{{{go_print(value)}}}"
    return ""


# --- conversion -------------------------------------------------------------------------------------------------------

_GO_KINDS = {str: "string", bool: "bool", int: "int64", float: "float64", list: "slice", dict: "map"}
_CONTAINER_KINDS = {"struct": "map", "map": "map", "list": "slice"}
_SCALAR_KINDS = _STRING_KINDS | _NUMBER_KINDS | {"bool"}


def conversion_error(ref: schema.TypeRef, value: Any) -> str:
    """Return the error of runtime.DefaultUnstructuredConverter for the first invalid value, or "".

    Kubernetes decodes the result of a strategic merge patch with it and not with the JSON decoder.
    """
    if value is None:
        return ""
    kind, kind_name = ref.kind, _GO_KINDS[type(value)]
    if kind == "bytes":
        return _bytes_error(kind_name, value)
    if kind not in _CONTAINER_KINDS:
        return _scalar_error(ref, kind_name, value) if kind in _SCALAR_KINDS else ""
    if kind_name != _CONTAINER_KINDS[kind]:
        return f"cannot restore {'struct from:' if kind == 'struct' else f'{_CONTAINER_KINDS[kind]} from'} {kind_name}"
    if ref.struct is not None:
        parts = [(field.type, value[name]) for name, field in ref.struct.json.items() if name in value]
    else:
        assert ref.element is not None
        parts = [(ref.element, item) for item in (value.values() if kind == "map" else value)]
    return next((error for part, part_value in parts if (error := conversion_error(part, part_value))), "")


_BITS = {"int32": 32, "int64": 64}


def truncate_numbers(ref: schema.TypeRef, value: Any) -> Any:
    """Return a valid value with its numbers truncated to their bits, as DefaultUnstructuredConverter does."""
    if type(value) is dict:
        fields = ref.struct.json if ref.struct is not None else None
        if fields is not None:
            return {k: truncate_numbers(fields[k].type, v) if k in fields else v for k, v in value.items()}
        return {k: truncate_numbers(ref.element, v) for k, v in value.items()} if ref.element is not None else value
    if type(value) is list:
        return [truncate_numbers(ref.element, item) for item in value] if ref.element is not None else value
    bits = _BITS.get(ref.kind)
    if bits is None or type(value) not in (int, float):
        return value
    half = 1 << bits - 1
    return (int(value) + half) % (2 * half) - half


def _bytes_error(kind_name: str, value: Any) -> str:
    if kind_name != "string":
        return f"cannot restore slice from {kind_name}"
    try:
        decode_base64(value)
    except DecodeError as error:
        return f"error decoding from json: {error}"
    return ""


def _scalar_error(ref: schema.TypeRef, kind_name: str, value: Any) -> str:
    kind = ref.kind
    if kind in _NUMBER_KINDS and kind_name in ("int64", "float64"):
        fits = kind == "float64" or kind_name == "int64" or value == int(value)
    elif kind == "string" and kind_name == "int64":
        fits = False
    else:
        return "" if kind_name == kind else f"unrecognized type: {kind}"
    return "" if fits else f"cannot convert {kind_name} to {go_type_name(ref.named or ref.go_type)}"
