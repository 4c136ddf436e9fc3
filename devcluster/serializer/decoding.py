"""Decoding: a client's JSON to the form in which the API server stores and returns objects.

kube-apiserver decodes every body into Go structs and encodes those again. This drops unknown fields, nulls and empty
values of `omitempty` fields, canonicalizes quantities and times, and adds fields that Go always encodes
(`resources: {}`, `lastProbeTime: null`). `decode` does the same to JSON values, using the type table of kube.schema.

One converter per Go struct is built on first use. Converters do not track paths, because almost all bodies are valid;
if one fails, a second, slower walk finds the path for the error.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, NoReturn

import msgspec

from kubeloop.devcluster.api.strategy import CustomResource
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON, sorted_map
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.values.quantities import Quantity, QuantityError, parse_quantity
from kubeloop.kube.values.times import ZERO_TIME_SECONDS, quoted_text, text_seconds, time_text

Convert = Callable[[Any], Any]
_encode_json, _decode_json = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode


class DecodeError(Exception):
    """The JSON does not fit the type. The message is that of Go's decoder, without the server's prefix."""


class _Mismatch(Exception):
    """A nested value has the wrong type; the slow walk finds it."""


class _UnknownField(Exception):
    """A nested object has a field that its type lacks."""


# --- single values ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def canonical_quantity(value: str | int | float) -> str:
    """Return a quantity in canonical form: "0.5" -> "500m"; "+10" stays as it is.

    Raises DecodeError with the message of ParseQuantity.
    """
    try:
        return str(parse_quantity(value.strip() if isinstance(value, str) else value))
    except QuantityError as error:
        message = str(error)
        raise DecodeError(message if message.startswith("unable to parse") else _INVALID_QUANTITY) from error


_INVALID_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


_NANO_PER_MILLI = 1_000_000


@lru_cache(maxsize=4096)
def _round_up_to_milli(value: str) -> str:
    """Round a quantity of a resource list up to thousandths. Source: SetDefaults_ResourceList."""
    quantity = parse_quantity(value)
    nano = quantity.nano()  # exact; exbibytes in thousandths would exceed an int64
    if nano % _NANO_PER_MILLI == 0:
        return value
    milli = -(-nano // _NANO_PER_MILLI) if nano > 0 else nano // _NANO_PER_MILLI
    return Quantity(milli, -3, quantity.format).canonical()


def _quantity(value: Any) -> str:
    if type(value) in (str, int, float):
        return canonical_quantity(value)
    raise DecodeError(_INVALID_QUANTITY)


_TIME_LAYOUT = "2006-01-02T15:04:05Z07:00"
_MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"
# Per element of the layouts: pattern, highest value. Go accepts an hour of one digit.
_LAYOUT_STEPS = (
    ("2006", r"\d{4}", 9999), ("-", "-", 0), ("01", r"\d\d", 12), ("-", "-", 0), ("02", r"\d\d", 99), ("T", "T", 0),
    ("15", r"\d\d?", 23), (":", ":", 0), ("04", r"\d\d", 59), (":", ":", 0), ("05", r"\d\d", 59),
)  # fmt: skip
_CANONICAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII).fullmatch
_RANGE_NAMES = {"01": "month", "15": "hour", "04": "minute", "05": "second"}
_FRACTION = re.compile(r"[.,](\d+)", re.ASCII)
_SIX_DIGITS = re.compile(r"[.,](\+\d{5}|-\d{5}|\d{6})", re.ASCII)
_ZONE = re.compile(r"([+-])(\d\d):(\d\d)", re.ASCII)
_ZONE_LIMITS = ("time zone offset hour", 24), ("time zone offset minute", 60)  # Go accepts an offset of 24 hours


def _parse_rfc3339(text: str, layout: str) -> tuple[int, int]:
    """Return the seconds since 1970 and the microseconds. Raises DecodeError with the message of Go's time.Parse."""

    def cannot_parse(rest: str, element: str) -> DecodeError:
        where = f'as "{layout}": cannot parse {quoted_text(rest)} as "{element}"'
        return DecodeError(f"parsing time {quoted_text(text)} {where}")

    def problem(description: str) -> DecodeError:
        return DecodeError(f"parsing time {quoted_text(text)}: {description}")

    numbers: list[int] = []
    rest = text
    for element, pattern, limit in _LAYOUT_STEPS:
        match = re.match(pattern, rest, re.ASCII)
        if match is None:
            raise cannot_parse(rest, element)
        rest = rest[match.end() :]
        if match[0].isdigit():
            numbers.append(int(match[0]))
            if numbers[-1] > limit or (element == "01" and not numbers[-1]):
                raise problem(f"{_RANGE_NAMES[element]} out of range")
    microseconds, offset = 0, 0
    fraction = (_SIX_DIGITS if layout == _MICRO_LAYOUT else _FRACTION).match(rest)
    if fraction is not None:
        microseconds = int(fraction[1][:6].ljust(6, "0"))
        rest = rest[fraction.end() :]
    elif layout == _MICRO_LAYOUT:
        raise cannot_parse(rest, ".000000")
    if microseconds < 0:
        raise problem("fractional second out of range")
    if rest.startswith("Z"):
        rest = rest[1:]
    else:
        zone = _ZONE.match(rest)
        if zone is None:
            raise cannot_parse(rest, "Z07:00")
        for digits, (name, limit) in zip(zone.group(2, 3), _ZONE_LIMITS, strict=True):
            if int(digits) > limit:
                raise problem(f"{name} out of range")
        offset = (int(zone[2]) * 60 + int(zone[3])) * 60 * (-1 if zone[1] == "-" else 1)
        rest = rest[zone.end() :]
    if rest:
        raise problem(f"extra text: {quoted_text(rest)}")
    year, month, day, hour, minute, second = numbers
    try:
        seconds, _ = text_seconds(f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}Z")
    except ValueError:
        raise problem("day out of range") from None
    return seconds - offset, microseconds


@lru_cache(maxsize=4096)
def _canonical_time(text: str, layout: str) -> str | None:
    """Return a time in UTC; None for the year 1, January 1, Go's zero time."""
    if layout == _TIME_LAYOUT and _CANONICAL_TIME(text):
        with suppress(ValueError):  # out of range
            return None if text_seconds(text)[0] == ZERO_TIME_SECONDS else text
    seconds, microseconds = _parse_rfc3339(text, layout)
    if layout == _TIME_LAYOUT:
        return None if seconds == ZERO_TIME_SECONDS else time_text(seconds)
    return None if (seconds, microseconds) == (ZERO_TIME_SECONDS, 0) else time_text(seconds, microseconds)


class TimeOfAnyYear(str):
    """A canonical time of a protobuf body, whose year may be one that JSON's decoder refuses."""


def _time(value: Any, layout: str = _TIME_LAYOUT) -> str | None:
    if type(value) is str:
        return _canonical_time(value, layout)
    if type(value) is TimeOfAnyYear:
        return str(value)
    raise _Mismatch


def decode_time(text: str) -> str | None:
    """Return a metav1.Time in its stored form; None for Go's zero time. Raises DecodeError."""
    return _canonical_time(text, _TIME_LAYOUT)


def _string(value: Any) -> str:
    if type(value) is str:
        return value
    raise _Mismatch


def _bool(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise _Mismatch


def _int32(value: Any) -> int:
    if type(value) is int and -0x80000000 <= value <= 0x7FFFFFFF:
        return value
    raise _Mismatch


def _int64(value: Any) -> int:
    if type(value) is int and -(1 << 63) <= value < 1 << 63:
        return value
    raise _Mismatch


def _float(value: Any) -> float:
    if type(value) is float or type(value) is int:
        return value
    raise _Mismatch


def _int_or_string(value: Any) -> int | str:
    if type(value) is str:
        return value
    return _int32(value)


def _bytes(value: Any) -> str:
    if type(value) is not str:
        raise _Mismatch
    return b64encode(decode_base64(value)).decode()


def decode_base64(text: str) -> bytes:
    """Decode base64. Raises DecodeError with the message of Go's encoding/base64."""
    try:
        return b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except ValueError as error:  # binascii.Error, or non-ASCII characters
        good = re.match(r"[A-Za-z0-9+/]*", text)
        raise DecodeError(f"illegal base64 data at input byte {good.end() if good else 0}") from error


def _unchanged(value: Any) -> Any:
    return value


_KINDS: dict[str, tuple[Convert, Any]] = {
    "string": (_string, ""),
    "bool": (_bool, False),
    "int32": (_int32, 0),
    "int64": (_int64, 0),
    "float64": (_float, 0),
    "bytes": (_bytes, None),
    "quantity": (_quantity, "0"),
    "intOrString": (_int_or_string, 0),
    "time": (_time, None),
    "microTime": (lambda value: _time(value, _MICRO_LAYOUT), None),
    "duration": (_string, "0s"),
    "fieldsV1": (_unchanged, None),
    "raw": (_unchanged, None),
    "any": (_unchanged, None),
}
"""Converter of each scalar kind, and the JSON form of its zero value."""
_SCALARS = {kind: convert for kind, (convert, _) in _KINDS.items()}
_ZERO = {"list": None, "map": None, **{kind: zero for kind, (_, zero) in _KINDS.items()}}
_GO_STRUCT_KINDS = frozenset(
    {"struct", "quantity", "intOrString", "time", "microTime", "duration", "fieldsV1", "raw", "any"}
)


def _zero(ref: schema.TypeRef) -> Any:
    """Return the JSON form of a type's Go zero value."""
    if ref.pointer:
        return None
    if ref.kind == "struct":
        assert ref.struct is not None
        return {field.name: _zero(field.type) for field in _always_encoded(ref.struct)}
    return _ZERO[ref.kind]


@cache
def _always_encoded(struct: schema.StructType) -> tuple[schema.Field, ...]:
    """Return the fields that Go encodes even if they are unset."""
    return tuple(
        field
        for field in struct.json.values()
        if not field.omit_zero
        and (not field.omit_empty or (not field.type.pointer and field.type.kind in _GO_STRUCT_KINDS))
    )


def _omitted_when_empty(field: schema.Field) -> bool:
    return (
        (field.omit_empty or field.omit_zero)
        and not field.type.pointer
        and (field.type.kind not in _GO_STRUCT_KINDS or (field.omit_zero and field.type.kind in ("struct", "time")))
    )


@cache
def _converter(ref: schema.TypeRef) -> Convert:
    if ref.kind == "struct":
        assert ref.struct is not None
        return _struct_converter(ref.struct)
    if ref.kind == "list":
        assert ref.element is not None
        return _list_converter(ref.element)
    if ref.kind == "map":
        assert ref.element is not None
        convert = _map_converter(ref.element)
        if ref.named == "core/v1.ResourceList":
            return lambda value: {name: _round_up_to_milli(quantity) for name, quantity in convert(value).items()}
        return convert
    if ref.named in _NESTED_SCHEMAS:
        return _nested_schema
    return _SCALARS[ref.kind]


_NESTED_SCHEMAS = ("apiextensions/v1.JSONSchemaPropsOrArray", "apiextensions/v1.JSONSchemaPropsOrBool")


def _nested_schema(value: Any) -> Any:
    """Decode a schema in `items` or `additionalProperties`; Go silently drops unknown fields there."""
    if type(value) is list:
        return [_nested_schema(item) for item in value]
    return decode_named("apiextensions/v1.JSONSchemaProps", value)[0] if type(value) is dict else value


def _list_converter(element: schema.TypeRef) -> Convert:
    convert = _converter(element)

    def convert_list(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _Mismatch
        return [convert(item) if item is not None else _zero(element) for item in value]

    return convert_list


def _map_converter(element: schema.TypeRef) -> Convert:
    convert = _converter(element)
    zero = "" if element.kind == "bytes" else _zero(element)  # nil bytes in a map are stored as empty bytes
    if element.kind == "string":

        def convert_strings(value: Any) -> JSON:
            if type(value) is not dict:
                raise _Mismatch
            for item in value.values():
                if type(item) is not str:
                    return convert_map(value)
            return sorted_map(value)

    def convert_map(value: Any) -> JSON:
        if type(value) is not dict:
            raise _Mismatch
        return sorted_map({key: convert(item) if item is not None else zero for key, item in value.items()})

    return convert_strings if element.kind == "string" else convert_map


@cache
def _struct_converter(struct: schema.StructType) -> Convert:
    fields: dict[str, tuple[Convert | None, bool]] = {}
    always_encoded: tuple[tuple[str, schema.TypeRef], ...] = ()
    ready = False

    def prepare() -> None:  # on first use, because types are recursive (JSONSchemaProps and others)
        nonlocal always_encoded, ready
        for name, field in struct.json.items():
            plain, element = field.type.kind == "string", field.type.element
            # RuntimeClass has no defaulting function that would round its overhead
            exact = struct.name == "node/v1.Overhead" and element is not None
            convert = _map_converter(element) if exact and element is not None else _converter(field.type)
            fields[name] = (None if plain else convert, _omitted_when_empty(field))
        always_encoded = tuple((field.name, field.type) for field in _always_encoded(struct))
        ready = True

    def convert_struct(value: Any) -> JSON:
        if type(value) is not dict:
            raise _Mismatch
        if not ready:
            prepare()
        result: JSON = {}
        for name, item in value.items():
            entry = fields.get(name)
            if entry is None:
                raise _UnknownField
            if item is None:
                continue
            convert, omit = entry
            if convert is None:
                if type(item) is not str:
                    raise _Mismatch
            else:
                item = convert(item)  # noqa: PLW2901
            if omit and not item:
                continue
            result[name] = item
        for name, ref in always_encoded:
            if name not in result:
                result[name] = _zero(ref)
        return result

    return convert_struct


# --- whole objects ----------------------------------------------------------------------------------------------------


def decode(resource: Resource[Any], obj: JSON) -> tuple[JSON, list[str]]:
    """Return the decoded object and its strict errors: 'unknown field "spec.foo"', outermost first.

    Objects of kinds outside the type table are returned unchanged. Raises DecodeError.
    """
    struct = schema.type_for(resource.group, resource.version, resource.kind)
    if struct is None:
        return resource.rules.decode(obj) if isinstance(resource, CustomResource) else (obj, [])
    return decode_struct(struct, obj)


def decode_patched(
    resource: Resource[Any], obj: JSON, live: JSON, *, writes_status: bool = False
) -> tuple[JSON, list[str]]:
    """Decode a patched object as decode(). Values that are those of `live`, a decoded object, are only copied.

    These are its spec and status, and fields of its metadata. No write changes managedFields in place: they are shared.
    writes_status: of the object, only the status is written; all other values are shared.
    """
    if isinstance(resource, CustomResource):
        return decode(resource, obj)
    unchanged = _shared_values({name: obj[name] for name in ("spec", "status") if name in obj}, live)
    changed = {name: value for name, value in obj.items() if name not in unchanged}
    metadata: Any = changed.get("metadata")
    unchanged_metadata = _shared_values(metadata, live["metadata"]) if type(metadata) is dict else {}
    if unchanged_metadata:
        changed["metadata"] = {name: value for name, value in metadata.items() if name not in unchanged_metadata}
    decoded, unknown = decode(resource, changed)
    copied = {name: value for name, value in unchanged.items() if name == "status" or not writes_status}
    copied_metadata = {} if writes_status else {**unchanged_metadata}
    copied_metadata.pop("managedFields", None)
    if copied or copied_metadata:
        copied, copied_metadata = _decode_json(_encode_json((copied, copied_metadata)))
    if unchanged_metadata:
        values = {**decoded["metadata"], **unchanged_metadata, **copied_metadata}
        decoded["metadata"] = _in_order(values, metadata)
    return _in_order({**decoded, **unchanged, **copied}, obj), unknown


def _shared_values(obj: JSON, other: JSON) -> JSON:
    """Return the fields that are maps or lists with a content, and the same value in both objects."""
    return {
        name: value for name, value in obj.items() if type(value) in (dict, list) and value and value is other.get(name)
    }


def _in_order(obj: JSON, order: JSON) -> JSON:
    """Return `obj` with the fields of `order` first."""
    return {name: obj[name] for name in (*order, *obj) if name in obj}


def decode_named(name: str, obj: JSON) -> tuple[JSON, list[str]]:
    """Decode an object of a named type: decode_named("meta/v1.DeleteOptions", body). See decode()."""
    struct = schema.type_named(name)
    assert struct is not None, name
    return decode_struct(struct, obj)


def decode_struct(struct: schema.StructType, obj: JSON) -> tuple[JSON, list[str]]:
    """Decode an object of a struct of the type table. See decode()."""
    convert = _struct_converter(struct)
    try:
        return convert(obj), []
    except _UnknownField:
        unknown: list[str] = []
        known_fields = _drop_unknown(schema.TypeRef(struct.name, "struct", named=struct.name), obj, "", unknown)
    except _Mismatch:
        _raise_first_mismatch(struct, obj)
    try:
        return convert(known_fields), [f'unknown field "{path}"' for path in unknown]
    except _Mismatch:
        _raise_first_mismatch(struct, known_fields)


def _drop_unknown(ref: schema.TypeRef, value: Any, path: str, unknown: list[str]) -> Any:
    if ref.kind == "struct" and type(value) is dict:
        struct = ref.struct
        assert struct is not None
        result = {}
        for name, item in value.items():
            inner_path = f"{path}.{name}" if path else name
            field = struct.json.get(name)
            if field is None:
                unknown.append(inner_path)
            else:
                result[name] = _drop_unknown(field.type, item, inner_path, unknown)
        return result
    if ref.kind == "list" and type(value) is list and ref.element is not None:
        return [_drop_unknown(ref.element, item, f"{path}[{i}]", unknown) for i, item in enumerate(value)]
    if ref.kind == "map" and type(value) is dict and ref.element is not None:
        return {key: _drop_unknown(ref.element, item, f"{path}.{key}", unknown) for key, item in value.items()}
    return value


def json_kind(value: Any, *, number: bool = False) -> str:
    if type(value) is bool:
        return "bool"
    if type(value) in (int, float):
        return f"number {value}" if number else "number"
    if type(value) is str:
        return "string"
    return "object" if isinstance(value, dict) else "array"


def go_type_name(go_type: str) -> str:
    """Return a type as Go prints it: "[]core/v1.Container" -> "[]v1.Container"."""
    return re.sub(r"[a-z]+/(v\d)", r"\1", go_type.lstrip("*")).replace("[]byte", "[]uint8")


def _raise_first_mismatch(struct: schema.StructType, obj: Any) -> NoReturn:
    """Raise DecodeError for the first value of the wrong type. Source: sigs.k8s.io/json UnmarshalTypeError."""
    if type(obj) is not dict:
        message = f"json: cannot unmarshal {json_kind(obj)} into Go value of type {struct.go_package}.{struct.go_name}"
        raise DecodeError(message)
    root = schema.TypeRef(struct.name, "struct", named=struct.name)
    _check_self_decoding(root, obj)
    _find_mismatch(root, obj, [], struct)
    raise AssertionError("the fast walk found a mismatch that the slow one does not see")


@cache
def _embedded_structs(struct: schema.StructType, name: str) -> tuple[str, ...]:
    """Return the embedded structs that contain a field, which Go includes in the error's path."""
    for field in struct.fields:
        inner = field.type.struct if field.inline else None
        if inner is not None and name in inner.json:
            return (
                (field.go_name, *_embedded_structs(inner, name)) if field.embedded else _embedded_structs(inner, name)
            )
    return ()


_SELF_DECODING_KINDS = ("quantity", "intOrString", "time", "microTime", "duration")


def _members(ref: schema.TypeRef, value: Any) -> Iterator[tuple[str, schema.TypeRef, Any]]:
    """Yield name ("" for an item), type and value of the known fields of a struct, or the items of a list or map."""
    if ref.kind == "struct" and type(value) is dict and ref.struct is not None:
        fields = ref.struct.json
        yield from ((name, fields[name].type, item) for name, item in value.items() if name in fields)
    elif ref.kind in ("list", "map") and type(value) in (list, dict) and ref.element is not None:
        for item in value.values() if type(value) is dict else value:
            yield "", ref.element, item


def _check_self_decoding(ref: schema.TypeRef, value: Any) -> None:
    """Raise DecodeError for the first invalid value of a self-decoding type: Go reports it before any mismatch."""
    if ref.kind in _SELF_DECODING_KINDS and value is not None:
        with suppress(_Mismatch):
            _SCALARS[ref.kind](value)
    for _, member, item in _members(ref, value):
        _check_self_decoding(member, item)


_CONTAINERS = {"struct": dict, "list": list, "map": dict}


def _find_mismatch(ref: schema.TypeRef, value: Any, path: list[str], owner: schema.StructType) -> None:
    if value is None:
        return
    try:
        if ref.kind not in _CONTAINERS:
            _SCALARS[ref.kind](value)
        elif type(value) is not _CONTAINERS[ref.kind]:
            raise _Mismatch
    except _Mismatch:
        _raise_mismatch(ref, value, path, owner)
    for name, member, item in _members(ref, value):
        struct = ref.struct if name else None
        inner_path = path if struct is None else [*path, *_embedded_structs(struct, name), name]
        _find_mismatch(member, item, inner_path, struct or owner)


def _raise_mismatch(ref: schema.TypeRef, value: Any, path: list[str], owner: schema.StructType) -> NoReturn:
    kind = json_kind(value, number=ref.kind in ("int32", "int64") and type(value) in (int, float))
    if ref.kind in ("time", "microTime", "duration"):
        raise DecodeError(f"json: cannot unmarshal {json_kind(value)} into Go value of type string")
    go_type = ref.go_type if ref.kind in ("struct", "list", "map") else ref.named or ref.go_type
    if ref.kind == "intOrString":
        go_type = "int32"
    where = f"Go struct field {owner.go_name}.{'.'.join(path)}"
    raise DecodeError(f"json: cannot unmarshal {kind} into {where} of type {go_type_name(go_type)}")


def normalize(resource: Resource[Any], obj: JSON) -> JSON:
    """Return a valid object in decoded form, without unknown fields."""
    return resource.rules.normalize_applied(obj) if isinstance(resource, CustomResource) else decode(resource, obj)[0]
