"""Does an applied configuration fit its type? In the words of structured-merge-diff, which reads it first.

Unlike decoding it knows only maps, lists and three kinds of scalars, but also what lists with keys and sets may hold.
Source: sigs.k8s.io/structured-merge-diff typed/validate.go, typed/helpers.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kubeloop.devcluster.serializer.decoding import DecodeError, decode_base64, go_type_name
from kubeloop.devcluster.serializer.patches import format_go_syntax, format_go_value
from kubeloop.kube import schema

_TEXTS = frozenset({"string", "bytes"})
_NUMBERS = frozenset({"int32", "int64", "float64", "byte"})
_ANY_SCALAR = frozenset({"quantity", "intOrString", "time", "microTime", "duration"})
_GO_TYPES = {str: "string", bool: "bool", list: "[]interface {}", dict: "map[string]interface {}"}


def type_error(struct: schema.StructType, configuration: Any) -> str:
    """All that is wrong with a configuration, one per line if it is more than one thing; "" if nothing is."""
    wrong = list(struct_errors(struct, configuration, ""))
    return wrong[0] if len(wrong) == 1 else "".join(f"\n  {each}" for each in wrong).replace("\n", "errors:\n", 1)


def _told(path: str, wrong: str) -> str:
    return f"{path}: {wrong}" if path else wrong


def struct_errors(struct: schema.StructType, value: Any, path: str) -> Iterator[str]:
    """What is wrong with a value of a Go type, below `path` (".metadata")."""
    if value is None:
        return
    if type(value) is not dict:
        yield _told(path, f"expected map, got &{{{format_go_value(value)}}}")
        return
    for name, each in value.items():
        field = struct.json.get(name)
        if field is None:
            yield _told(f"{path}.{name}", "field not declared in schema")
            return
        yield from _value(field.type, field, each, f"{path}.{name}")


def _value(ref: schema.TypeRef, field: schema.Field | None, value: Any, path: str) -> Iterator[str]:
    if value is None:
        return
    kind = ref.kind
    if kind == "struct":
        assert ref.struct is not None
        yield from struct_errors(ref.struct, value, path)
    elif kind == "map":
        assert ref.element is not None
        if type(value) is not dict:
            yield _told(path, f"expected map, got &{{{format_go_value(value)}}}")
            return
        for key, each in value.items():
            yield from _value(ref.element, None, each, f"{path}.{key}")
    elif kind == "list":
        assert ref.element is not None
        if type(value) is not list:
            yield _told(path, f"expected list, got &{{{format_go_value(value)}}}")
            return
        yield from _list(ref.element, field, value, path)
    elif wrong := scalar_error(kind, value):
        yield _told(path, wrong)


def _list(element: schema.TypeRef, field: schema.Field | None, items: list[Any], path: str) -> Iterator[str]:
    list_type = field.list_type if field is not None else ""
    seen = set()
    for index, each in enumerate(items):
        place = f"[{index}]"
        if field is not None and list_type in ("map", "set"):
            wrong = _not_in_a_set(each) if list_type == "set" else _without_key(element, field, each)
            if wrong:
                yield _told(path, f"element {index}: {wrong}")
                return
            place = _text_of(each) if list_type == "set" else _key(element, field, each)
            if place in seen:
                yield _told(path, f"duplicate entries for key {place}")
            seen.add(place)
        yield from _value(element, None, each, f"{path}{place}")


def _text_of(value: Any) -> str:
    return f"[={msgspec.json.encode(value).decode()}]"


def _not_in_a_set(value: Any) -> str:
    if value is None:
        return "associative list without keys has an element that's an explicit null"
    if type(value) is dict:
        return "associative list without keys has an element that's a map type"
    return "not supported: associative list with lists as elements" if type(value) is list else ""


def _keys(element: schema.TypeRef, field: schema.Field, item: dict[str, Any]) -> dict[str, Any]:
    struct = element.struct
    keys = {}
    for name in sorted(field.list_map_keys):
        if name in item:
            keys[name] = item[name]
        elif struct is not None and name in struct.json:
            default = _default(struct.json[name])
            if default is not None:
                keys[name] = default
    return keys


def _default(field: schema.Field) -> Any:
    """The default of the published schema: Go's zero value for fields that are always written."""
    if field.default is not None or field.omit_empty or field.type.pointer:
        return field.default
    return {"string": "", "int32": 0, "int64": 0}.get(field.type.kind)


def _without_key(element: schema.TypeRef, field: schema.Field, item: Any) -> str:
    if item is None:
        return "associative list with keys may not have a null element"
    if type(item) is not dict:
        return "associative list with keys may not have non-map elements"
    if not _keys(element, field, item):
        names = " ".join(f'"{name}"' for name in field.list_map_keys)
        why = "(and doesn't have default values for any key fields)"
        return f"associative list with keys has an element that omits all key fields [{names}] {why}"
    return ""


def _key(element: schema.TypeRef, field: schema.Field, item: dict[str, Any]) -> str:
    pairs = _keys(element, field, item).items()
    return f"[{','.join(f'{name}={msgspec.json.encode(value).decode()}' for name, value in pairs)}]"


def scalar_error(kind: str, value: Any) -> str:
    """What is wrong with a value of a kind of scalar ("string", "int64", "bool", ...); "" if nothing is."""
    given = type(value)
    if kind in _TEXTS:
        return (
            "" if given is str else f"expected string, got &value.valueUnstructured{{Value:{format_go_syntax(value)}}}"
        )
    if kind in _NUMBERS:
        right = given in (int, float)
        return "" if right else f"expected numeric (int or float), got {_GO_TYPES.get(given, given.__name__)}"
    if kind == "bool":
        return "" if given is bool else f"expected boolean, got &{{{format_go_value(value)}}}"
    if kind in _ANY_SCALAR and given in (dict, list):
        return f"expected any scalar, got &{{{format_go_value(value)}}}"
    return ""


# --- conversion -------------------------------------------------------------------------------------------------------

_GO_KINDS = {str: "string", bool: "bool", int: "int64", float: "float64", list: "slice", dict: "map"}
_SCALAR_KINDS = _TEXTS | _NUMBERS | {"bool"}


def conversion_error(ref: schema.TypeRef, value: Any) -> str:
    """What runtime.DefaultUnstructuredConverter says of the first value that is no `ref`; "" where it says nothing.

    The result of a strategic merge patch is read by it, and not by the JSON decoder.
    """
    if value is None:
        return ""
    kind, given = ref.kind, _GO_KINDS[type(value)]
    if kind == "struct":
        if given != "map":
            return f"cannot restore struct from: {given}"
        assert ref.struct is not None
        parts = ((field.type, value[name]) for name, field in ref.struct.json.items() if name in value)
    elif kind == "map":
        if given != "map":
            return f"cannot restore map from {given}"
        assert ref.element is not None
        parts = ((ref.element, each) for each in value.values())
    elif kind == "list":
        if given != "slice":
            return f"cannot restore slice from {given}"
        assert ref.element is not None
        parts = ((ref.element, each) for each in value)
    elif kind == "bytes":
        return _bytes_error(given, value)
    else:
        return _scalar_error(ref, given, value) if kind in _SCALAR_KINDS else ""
    return next((wrong for part, each in parts if (wrong := conversion_error(part, each))), "")


_BITS = {"int32": 32, "int64": 64}


def with_go_numbers(ref: schema.TypeRef, value: Any) -> Any:
    """`value`, which has no conversion_error(), with its numbers as that converter leaves them: cut to their bits."""
    if type(value) is dict:
        fields = ref.struct.json if ref.struct is not None else None
        if fields is not None:
            return {k: with_go_numbers(fields[k].type, v) if k in fields else v for k, v in value.items()}
        return {k: with_go_numbers(ref.element, v) for k, v in value.items()} if ref.element is not None else value
    if type(value) is list:
        return [with_go_numbers(ref.element, each) for each in value] if ref.element is not None else value
    bits = _BITS.get(ref.kind)
    if bits is None or type(value) not in (int, float):
        return value
    half = 1 << bits - 1
    return (int(value) + half) % (2 * half) - half


def _bytes_error(given: str, value: Any) -> str:
    if given != "string":
        return f"cannot restore slice from {given}"
    try:
        decode_base64(value)
    except DecodeError as error:
        return f"error decoding from json: {error}"
    return ""


def _scalar_error(ref: schema.TypeRef, given: str, value: Any) -> str:
    kind = ref.kind
    if kind in _NUMBERS and given in ("int64", "float64"):
        fits = kind == "float64" or given == "int64" or value == int(value)
    elif kind == "string" and given == "int64":
        fits = False
    else:
        return "" if given == kind else f"unrecognized type: {kind}"
    return "" if fits else f"cannot convert {given} to {go_type_name(ref.named or ref.go_type)}"
