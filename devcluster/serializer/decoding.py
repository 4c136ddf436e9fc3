"""From a client's JSON to the form in which the API server keeps and answers it.

kube-apiserver decodes every body into Go structs and encodes those again. That drops unknown fields, nulls and empty
values of `omitempty` fields, writes quantities and times in their canonical form, and adds what Go always writes
(`resources: {}`, `lastProbeTime: null`). `decode` does the same to plain JSON by the type table of kube.schema.

One function per Go struct is built on first use. They carry no paths, because almost all bodies are right; only when
something is wrong, a second and slower walk says where.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, NoReturn

from kubeloop.devcluster.api.served_resources import CustomResource
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.quantities import Quantity, QuantityError, parse_quantity

Convert = Callable[[Any], Any]


class DecodeError(Exception):
    """The JSON does not fit the type. The text is what Go's decoder says, without the server's words around it."""


class _Mismatch(Exception):
    """Somewhere below, a value has the wrong type; the slow walk finds out which."""


class _Unknown(Exception):
    """Somewhere below is a field that the type does not have."""


# --- single values ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def canonical_quantity(value: str | int | float) -> str:
    """A quantity as Kubernetes writes it: "0.5" -> "500m", but "+10" as it came. Raises DecodeError in ParseQuantity's
    words."""
    try:
        return str(parse_quantity(value.strip() if isinstance(value, str) else value))
    except QuantityError as error:
        text = str(error)
        wrong = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        raise DecodeError(text if text.startswith("unable to parse") else wrong) from error


_NANO_PER_MILLI = 1_000_000


@lru_cache(maxsize=4096)
def _whole_milli(value: str) -> str:
    """Resource lists keep thousandths at the finest, rounded up. Source: SetDefaults_ResourceList."""
    quantity = parse_quantity(value)
    nano = quantity.nano()  # exact, where thousandths of exbibytes would exceed an int64
    if nano % _NANO_PER_MILLI == 0:
        return value
    milli = -(-nano // _NANO_PER_MILLI) if nano > 0 else nano // _NANO_PER_MILLI
    return Quantity(milli, -3, quantity.format).canonical()


def _quantity(value: Any) -> str:
    if type(value) is str or (type(value) in (int, float)):
        return canonical_quantity(value)
    raise DecodeError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")


_RFC3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)([.,]\d+)?(Z|[+-]\d\d:\d\d)")
_TIME_LAYOUT = "2006-01-02T15:04:05Z07:00"
_MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"
_LAYOUT_STEPS = (
    ("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"), ("T", "T"), ("15", r"\d\d"),
    (":", ":"), ("04", r"\d\d"), (":", ":"), ("05", r"\d\d"),
)  # fmt: skip


def _time_error(text: str, layout: str) -> NoReturn:
    """Raise what Go's time.Parse says: the element of the layout at which parsing stopped."""
    rest = text
    for element, pattern in _LAYOUT_STEPS:
        match = re.match(pattern, rest)
        if match is None:
            raise DecodeError(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{element}"')
        rest = rest[match.end() :]
    if layout == _MICRO_LAYOUT:
        match = re.match(r"\.\d{6}", rest)
        if match is None:
            raise DecodeError(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as ".000000"')
        rest = rest[match.end() :]
    else:
        rest = re.sub(r"^[.,]\d+", "", rest)
    match = re.match(r"Z|[+-]\d\d:\d\d", rest)
    if match is None:
        raise DecodeError(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "Z07:00"')
    if rest[match.end() :]:
        raise DecodeError(f'parsing time "{text}": extra text: "{rest[match.end() :]}"')
    raise DecodeError(f'parsing time "{text}": day out of range')


@lru_cache(maxsize=4096)
def _parsed_time(text: str, layout: str) -> str:
    match = _RFC3339.fullmatch(text)
    fraction = match[7] if match else None
    if match is None or (layout == _MICRO_LAYOUT and (fraction is None or len(fraction) != 7)):
        _time_error(text, layout)
    try:
        moment = datetime.fromisoformat(f"{text[:19]}{match[8].replace('Z', '+00:00')}").astimezone(UTC)
    except ValueError:
        _time_error(text, layout)
    whole = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole.zfill(19)}{fraction}Z" if layout == _MICRO_LAYOUT else f"{whole.zfill(19)}Z"


def _time(value: Any) -> str:
    if type(value) is not str:
        raise _Mismatch
    return _parsed_time(value, _TIME_LAYOUT)


def _micro_time(value: Any) -> str:
    if type(value) is not str:
        raise _Mismatch
    return _parsed_time(value, _MICRO_LAYOUT)


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
    """Raises DecodeError in encoding/base64's words."""
    try:
        return b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except ValueError as error:  # binascii's own, or of letters that are not ASCII
        good = re.match(r"[A-Za-z0-9+/]*", text)
        raise DecodeError(f"illegal base64 data at input byte {good.end() if good else 0}") from error


def _as_it_is(value: Any) -> Any:
    return value


_SCALARS: dict[str, Convert] = {
    "string": _string,
    "bool": _bool,
    "int32": _int32,
    "int64": _int64,
    "float64": _float,
    "bytes": _bytes,
    "quantity": _quantity,
    "intOrString": _int_or_string,
    "time": _time,
    "microTime": _micro_time,
    "duration": _string,
    "fieldsV1": _as_it_is,
    "raw": _as_it_is,
    "any": _as_it_is,
}
_ZERO: dict[str, Any] = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "float64": 0,
    "bytes": None,
    "quantity": "0",
    "intOrString": 0,
    "time": None,
    "microTime": None,
    "duration": "0s",
    "fieldsV1": None,
    "raw": None,
    "any": None,
    "list": None,
    "map": None,
}
_GO_STRUCT_KINDS = frozenset(
    {"struct", "quantity", "intOrString", "time", "microTime", "duration", "fieldsV1", "raw", "any"}
)


def _zero(ref: schema.TypeRef) -> Any:
    """The Go zero value of a type in JSON."""
    if ref.pointer:
        return None
    if ref.kind == "struct":
        assert ref.struct is not None
        return {field.name: _zero(field.type) for field in _always(ref.struct)}
    return _ZERO[ref.kind]


@cache
def _always(struct: schema.StructType) -> tuple[schema.Field, ...]:
    """The fields Go writes even if nobody set them."""
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
        and (field.type.kind not in _GO_STRUCT_KINDS or (field.omit_zero and field.type.kind == "struct"))
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
            return lambda value: {name: _whole_milli(each) for name, each in convert(value).items()}
        return convert
    if ref.named in _NESTED_SCHEMAS:
        return _nested_schema
    return _SCALARS[ref.kind]


_NESTED_SCHEMAS = ("apiextensions/v1.JSONSchemaPropsOrArray", "apiextensions/v1.JSONSchemaPropsOrBool")


def _nested_schema(value: Any) -> Any:
    """A schema below `items` or `additionalProperties`; what is unknown in it goes without a word, as in Go."""
    if type(value) is list:
        return [_nested_schema(each) for each in value]
    return decode_named("apiextensions/v1.JSONSchemaProps", value)[0] if type(value) is dict else value


def _list_converter(element: schema.TypeRef) -> Convert:
    convert = _converter(element)

    def convert_list(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _Mismatch
        return [convert(each) if each is not None else _zero(element) for each in value]

    return convert_list


def _map_converter(element: schema.TypeRef) -> Convert:
    convert = _converter(element)
    zero = "" if element.kind == "bytes" else _zero(element)  # no bytes come back from the store as some
    if element.kind == "string":

        def convert_strings(value: Any) -> JSON:
            if type(value) is not dict:
                raise _Mismatch
            for each in value.values():
                if type(each) is not str:
                    return convert_map(value)
            return value

    def convert_map(value: Any) -> JSON:
        if type(value) is not dict:
            raise _Mismatch
        return {key: convert(each) if each is not None else zero for key, each in value.items()}

    return convert_strings if element.kind == "string" else convert_map


@cache
def _struct_converter(struct: schema.StructType) -> Convert:
    fields: dict[str, tuple[Convert | None, bool]] = {}
    always: tuple[tuple[str, schema.TypeRef], ...] = ()
    ready = False

    def prepare() -> None:  # on first use, because types refer to themselves (JSONSchemaProps and others)
        nonlocal always, ready
        for name, field in struct.json.items():
            plain, element = field.type.kind == "string", field.type.element
            # the overhead of a RuntimeClass has no defaulting function that would round it
            exact = struct.name == "node/v1.Overhead" and element is not None
            convert = _map_converter(element) if exact and element is not None else _converter(field.type)
            fields[name] = (None if plain else convert, _omitted_when_empty(field))
        always = tuple((field.name, field.type) for field in _always(struct))
        ready = True

    def convert_struct(value: Any) -> JSON:
        if type(value) is not dict:
            raise _Mismatch
        if not ready:
            prepare()
        result: JSON = {}
        for name, each in value.items():
            found = fields.get(name)
            if found is None:
                raise _Unknown
            if each is None:
                continue
            convert, omit = found
            if convert is None:
                if type(each) is not str:
                    raise _Mismatch
            else:
                each = convert(each)  # noqa: PLW2901
            if omit and not each:
                continue
            result[name] = each
        for name, ref in always:
            if name not in result:
                result[name] = _zero(ref)
        return result

    return convert_struct


# --- whole objects ----------------------------------------------------------------------------------------------------


def decode(resource: Resource[Any], obj: JSON) -> tuple[JSON, list[str]]:
    """`obj` in the server's form, and the strict errors: 'unknown field "spec.foo"', outermost first.

    Kinds that the type table does not hold pass as they are. Raises DecodeError.
    """
    struct = schema.type_for(resource.group, resource.version, resource.kind)
    if struct is None:
        return resource.rules.decode(obj) if isinstance(resource, CustomResource) else (obj, [])
    return decode_struct(struct, obj)


def decode_named(name: str, obj: JSON) -> tuple[JSON, list[str]]:
    """As decode(), for a type of the table: decode_named("meta/v1.DeleteOptions", body)."""
    struct = schema.type_named(name)
    assert struct is not None, name
    return decode_struct(struct, obj)


def decode_struct(struct: schema.StructType, obj: JSON) -> tuple[JSON, list[str]]:
    """As decode(), for a struct of the type table."""
    convert = _struct_converter(struct)
    try:
        return convert(obj), []
    except _Unknown:
        unknown: list[str] = []
        known = _without_unknown(schema.TypeRef(struct.name, "struct", named=struct.name), obj, "", unknown)
    except _Mismatch:
        _tell_mismatch(struct, obj)
    try:
        return convert(known), [f'unknown field "{path}"' for path in unknown]
    except _Mismatch:
        _tell_mismatch(struct, known)


def _without_unknown(ref: schema.TypeRef, value: Any, path: str, unknown: list[str]) -> Any:
    if ref.kind == "struct" and type(value) is dict:
        struct = ref.struct
        assert struct is not None
        result = {}
        for name, each in value.items():
            below = f"{path}.{name}" if path else name
            field = struct.json.get(name)
            if field is None:
                unknown.append(below)
            else:
                result[name] = _without_unknown(field.type, each, below, unknown)
        return result
    if ref.kind == "list" and type(value) is list and ref.element is not None:
        return [_without_unknown(ref.element, each, f"{path}[{i}]", unknown) for i, each in enumerate(value)]
    if ref.kind == "map" and type(value) is dict and ref.element is not None:
        return {key: _without_unknown(ref.element, each, f"{path}.{key}", unknown) for key, each in value.items()}
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
    """A type as Go prints it: "[]core/v1.Container" -> "[]v1.Container"."""
    return re.sub(r"[a-z]+/(v\d)", r"\1", go_type.lstrip("*")).replace("[]byte", "[]uint8")


def _tell_mismatch(struct: schema.StructType, obj: Any) -> NoReturn:
    """Raise DecodeError for the first value of the wrong type. Source: sigs.k8s.io/json UnmarshalTypeError."""
    if type(obj) is not dict:
        wrong = f"json: cannot unmarshal {json_kind(obj)} into Go value of type {struct.go_package}.{struct.go_name}"
        raise DecodeError(wrong)
    whole = schema.TypeRef(struct.name, "struct", named=struct.name)
    _find_refused(whole, obj)
    _find_mismatch(whole, obj, [], struct)
    raise AssertionError("the fast walk found a mismatch that the slow one does not see")


@cache
def _embedding(struct: schema.StructType, name: str) -> tuple[str, ...]:
    """Through which embedded structs Go reaches this field of a struct: it names them in the path."""
    for field in struct.fields:
        inner = field.type.struct if field.inline else None
        if inner is not None and name in inner.json:
            return (field.go_name, *_embedding(inner, name)) if field.embedded else _embedding(inner, name)
    return ()


_THAT_READ_THEMSELVES = ("quantity", "intOrString", "time", "microTime", "duration")


def _find_refused(ref: schema.TypeRef, value: Any) -> None:
    """Raise DecodeError for the first value that its own type refuses: Go ends there, mismatches before it or not."""
    if ref.kind == "struct" and type(value) is dict and ref.struct is not None:
        for name, each in value.items():
            if name in ref.struct.json:
                _find_refused(ref.struct.json[name].type, each)
    elif ref.kind in ("list", "map") and type(value) in (list, dict) and ref.element is not None:
        for each in value.values() if type(value) is dict else value:
            _find_refused(ref.element, each)
    elif ref.kind in _THAT_READ_THEMSELVES and value is not None:
        with suppress(_Mismatch):
            _SCALARS[ref.kind](value)


def _find_mismatch(ref: schema.TypeRef, value: Any, path: list[str], owner: schema.StructType) -> None:
    if value is None:
        return
    if ref.kind == "struct" and type(value) is dict:
        struct = ref.struct
        assert struct is not None
        for name, each in value.items():
            if name in struct.json:
                _find_mismatch(struct.json[name].type, each, [*path, *_embedding(struct, name), name], struct)
    elif ref.kind == "list" and type(value) is list:
        assert ref.element is not None
        for each in value:
            _find_mismatch(ref.element, each, path, owner)
    elif ref.kind == "map" and type(value) is dict:
        assert ref.element is not None
        for each in value.values():
            _find_mismatch(ref.element, each, path, owner)
    elif ref.kind in ("struct", "list", "map"):
        _raise_mismatch(ref, value, path, owner)
    else:
        try:
            _SCALARS[ref.kind](value)
        except _Mismatch:
            _raise_mismatch(ref, value, path, owner)


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
    """`obj`, which fits its type, in the server's form, whatever in it is unknown dropped without a word."""
    return resource.rules.normal(obj) if isinstance(resource, CustomResource) else decode(resource, obj)[0]
