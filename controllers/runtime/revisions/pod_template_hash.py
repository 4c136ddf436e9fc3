"""Pod templates: semantic equality, and the hash used in names and labels.

Templates are opaque JSON; the table of API types (`kubeloop.kube.schema`) defines which fields a Go program would
decode. Pure functions. Source: EqualIgnoreHash in util/deployment_util.go, ComputeHash in
pkg/controller/controller_utils.go (FNV-1a over k8s.io/apimachinery/pkg/util/dump, which prints with go-spew).
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from kubeloop.controllers.runtime.revisions.name_hash import fnv1a_32, safe_encode
from kubeloop.kube.objects.api_types import JSONValue
from kubeloop.kube.objects.object_fields import POD_TEMPLATE_HASH_LABEL
from kubeloop.kube.schema import Field, StructType, TypeRef, type_ref
from kubeloop.kube.values.quantities import Quantity, QuantityError, parse_quantity
from kubeloop.kube.values.times import ZERO_TIME_SECONDS, text_seconds

_TEMPLATE = "core/v1.PodTemplateSpec"
_ZERO: dict[str, Any] = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "float64": 0.0,
    "byte": 0,
    "bytes": "",
}


def with_hash_label(template: Mapping[str, JSONValue], value: str) -> dict[str, JSONValue]:
    """Return a copy of `template` with the label pod-template-hash."""
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), POD_TEMPLATE_HASH_LABEL: value}
    return {**template, "metadata": {**metadata, "labels": labels}}


def without_hash_label(template: Mapping[str, JSONValue]) -> dict[str, JSONValue]:
    """Return a copy of `template` without the label pod-template-hash."""
    metadata = template.get("metadata") or {}
    labels = metadata.get("labels")
    if not labels or POD_TEMPLATE_HASH_LABEL not in labels:
        return dict(template)
    labels_left = {name: value for name, value in labels.items() if name != POD_TEMPLATE_HASH_LABEL}
    return {**template, "metadata": {**metadata, "labels": labels_left}}


def equal_ignore_hash(a: Mapping[str, JSONValue], b: Mapping[str, JSONValue]) -> bool:
    """Return True if two templates are equal except for the label pod-template-hash.

    Follows Go's semantic equality: absent and empty lists and maps are equal, quantities compare by value, unknown
    fields are ignored; a nil pointer differs from a pointer to a zero value.
    """
    a, b = without_hash_label(a), without_hash_label(b)
    # the specs first: their forms are stored, and those of two revisions differ
    return a == b or (_canonical_spec(a) == _canonical_spec(b) and _canonical_metadata(a) == _canonical_metadata(b))


# --- canonical form ------------------------------------------------------------------------------------------------

_ABSENT = object()
_MAX_CANONICAL_SPECS = 1024  # the most recently compared ones, some 5 KB each
_canonical_specs: OrderedDict[int, tuple[Mapping[str, JSONValue], Any]] = OrderedDict()


def canonical(template: Mapping[str, JSONValue]) -> Any:
    """Return a form of the template that compares equal (==) exactly for semantically equal templates."""
    return _canonical_metadata(template), _canonical_spec(template)


def _canonical_metadata(template: Mapping[str, JSONValue]) -> Any:
    return _canonical(type_ref("meta/v1.ObjectMeta"), template.get("metadata"))


def _canonical_spec(template: Mapping[str, JSONValue]) -> Any:
    """Return that form of the template's spec."""
    spec = template.get("spec")
    key = id(spec)
    cached = _canonical_specs.get(key)
    if cached is not None and cached[0] is spec:
        _canonical_specs.move_to_end(key)
        return cached[1]
    result = _canonical(type_ref("core/v1.PodSpec"), spec)
    if isinstance(spec, dict):
        # Every sync of a Deployment compares the same spec again. The entry keeps the spec alive, so that its id
        # is not reused.
        _canonical_specs[key] = (spec, result)
        if len(_canonical_specs) > _MAX_CANONICAL_SPECS:
            _canonical_specs.popitem(last=False)
    return result


def _canonical(ref: TypeRef, value: JSONValue) -> Any:
    if value is None:
        return _ABSENT
    kind = ref.kind
    result: Any = value
    if kind == "struct" and isinstance(value, dict):
        assert ref.struct is not None
        result = {}
        for name, field in ref.struct.json.items():
            member = _canonical(field.type, value.get(name))
            if member is not _ABSENT:
                result[name] = member
        return _ABSENT if not result and not ref.pointer else result
    if kind == "list" and isinstance(value, list) and ref.element is not None:
        element = ref.element
        result = [
            None if (canonical_item := _canonical(element, item)) is _ABSENT else canonical_item for item in value
        ]
        return result or _ABSENT
    if kind == "map" and isinstance(value, dict) and ref.element is not None:
        element = ref.element
        result = {
            name: None if (canonical_item := _canonical(element, item)) is _ABSENT else canonical_item
            for name, item in value.items()
        }
        return result or _ABSENT
    if kind == "quantity":
        try:
            result = parse_quantity(value)
        except QuantityError:
            return value
        return _ABSENT if not ref.pointer and result.sign == 0 else result
    if not ref.pointer and value == _ZERO.get(kind, _ABSENT):
        return _ABSENT
    return result


# --- hash ----------------------------------------------------------------------------------------------------------


def pod_template_hash(template: Mapping[str, JSONValue], collision_count: int | None) -> str:
    """Return the value of the label pod-template-hash."""
    data = dump(template).encode()
    if collision_count is not None:
        data += struct.pack("<I4x", collision_count & 0xFFFFFFFF)
    return safe_encode(fnv1a_32(data))


def dump(template: Mapping[str, JSONValue]) -> str:
    """Return the text that Go hashes: all fields of the PodTemplateSpec with their types, in declaration order."""
    ref = type_ref(_TEMPLATE)
    return f"({_go_type(ref.go_type)})" + "".join(_dump(ref, template))


@cache
def _go_type(go_type: str) -> str:
    """Return a type as Go prints it: with the last part of its package path."""
    for prefix, bare in (("core/v1.", "v1."), ("meta/v1.", "v1.")):
        go_type = go_type.replace(prefix, bare)
    return "[]uint8" if go_type == "[]byte" else go_type


def _dump(ref: TypeRef, value: JSONValue) -> Iterable[str]:
    """Yield the text of the value, without its type."""
    kind = ref.kind
    if value is None and (ref.pointer or kind in ("list", "map", "bytes", "raw")):
        yield "<nil>"
    elif kind == "struct":
        assert ref.struct is not None
        yield from _dump_struct(ref.struct, value if isinstance(value, dict) else {})
    elif kind == "list" and ref.element is not None:
        yield "["
        for position, item in enumerate(value):
            if position:
                yield " "
            yield from _dump(ref.element, item)
        yield "]"
    elif kind == "map" and ref.element is not None:
        yield "map["
        for position, name in enumerate(sorted(value)):
            yield f" {name}:" if position else f"{name}:"
            yield from _dump(ref.element, value[name])
        yield "]"
    elif kind == "quantity":
        yield _dump_quantity(value)
    elif kind == "intOrString":
        text, number = (value, 0) if isinstance(value, str) else ("", value or 0)
        type_ = 1 if isinstance(value, str) else 0
        yield f"{{Type:(intstr.Type){type_} IntVal:(int32){number} StrVal:(string){text}}}"
    elif kind in ("time", "microTime"):
        yield f"{{Time:(time.Time){{wall:(uint64)0 ext:(int64){_go_seconds(value)} loc:(*time.Location)<nil>}}}}"
    elif kind == "bool":
        yield "true" if value else "false"
    elif value is None:
        yield str(_ZERO.get(kind, ""))
    else:
        yield str(value)


def _dump_struct(type_: StructType, value: Mapping[str, JSONValue]) -> Iterable[str]:
    yield "{"
    for field, head, absent in _heads(type_):
        member = _member(field, value)
        if member is None:
            yield absent
        else:
            yield head
            yield from _dump(field.type, member)
    yield "}"


@cache
def _heads(type_: StructType) -> list[tuple[Field, str, str]]:
    """Return the fields with the text before their values, and with the whole text of an absent value."""
    heads = []
    for position, field in enumerate(type_.fields):
        head = f"{' ' if position else ''}{field.go_name}:({_go_type(field.type.go_type)})"
        heads.append((field, head, head + "".join(_dump(field.type, None))))
    return heads


def _member(field: Field, value: Mapping[str, JSONValue]) -> JSONValue:
    """Return the JSON of a field; the fields of an embedded struct are members of the parent."""
    if not field.inline:
        return value.get(field.name)
    inner = field.type.struct
    if inner is None:
        return None
    members = {name: value[name] for name in inner.json if value.get(name) is not None}
    return members if members or not field.type.pointer else None


def _dump_quantity(value: JSONValue) -> str:
    big = "<nil>"
    if value is None:
        return _quantity_text(0, 0, big, "", "")
    try:
        quantity: Quantity = parse_quantity(value)
    except QuantityError:
        return _quantity_text(0, 0, big, "", "")
    small, unscaled, exponent, text = quantity.parts
    if value == "0":
        return _quantity_text(0, 0, big, text, "")
    if small:
        return _quantity_text(unscaled, exponent, big, text, quantity.format.value)
    words, remaining = [], abs(unscaled)
    while remaining:
        words.append(str(remaining & (1 << 64) - 1))
        remaining >>= 64
    negative = "true" if unscaled < 0 else "false"
    big = (
        f"{{unscaled:(big.Int){{neg:(bool){negative} abs:(big.nat)[{' '.join(words)}]}} scale:(inf.Scale){-exponent}}}"
    )
    return _quantity_text(0, 0, big, "", quantity.format.value)


def _quantity_text(number: int, scale: int, big: str, text: str, format_: str) -> str:
    return (
        f"{{i:(resource.int64Amount){{value:(int64){number} scale:(resource.Scale){scale}}} "
        f"d:(resource.infDecAmount){{Dec:(*inf.Dec){big}}} s:(string){text} Format:(resource.Format){format_}}}"
    )


def _go_seconds(value: JSONValue) -> int:
    """Return the seconds since the year 1, Go's internal representation; 0 for the zero time."""
    if not isinstance(value, str) or not value:
        return 0
    return text_seconds(value)[0] - ZERO_TIME_SECONDS
