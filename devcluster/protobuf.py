"""Objects in Kubernetes' protobuf form, to and from plain JSON.

A body is the four bytes "k8s\\0" and a runtime.Unknown: kind and apiVersion, then the object's own message. Numbers and
types of fields come from kube.schema. What kind of wire value a field has follows from its Go type: the struct tags
sometimes say otherwise, and the code generator ignores that too. Source: apimachinery runtime/serializer/protobuf.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from kubeloop.devcluster.wire import BYTES, VARINT, ProtobufError, field, read_varint, signed, wire_values
from kubeloop.kube import schema
from kubeloop.kube.schema import Field, StructType, TypeRef

JSON = dict[str, Any]

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"

_JSON_ONLY = "apiextensions.k8s.io"
_ONE_TEXT = {1: BYTES}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# --- single values ----------------------------------------------------------------------------------------------------


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _int32(value: int) -> int:
    value &= 0xFFFF_FFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _members(data: bytes, wires: Mapping[int, int]) -> dict[int, Any]:
    """The last value of each field of a small message whose fields have these wire types; others are passed over."""
    members: dict[int, Any] = {}
    for number, wire, value in wire_values(data):
        expected = wires.get(number)
        if expected is not None:
            if wire != expected:
                raise ProtobufError(f"proto: wrong wireType = {wire} for field {number}")
            members[number] = value
    return members


def _read_quantity(data: bytes) -> str:
    return _text(_members(data, _ONE_TEXT).get(1, b"")) or "0"


def _write_quantity(value: Any) -> bytes:
    return field(1, BYTES, str(value).encode())


def _read_int_or_string(data: bytes) -> int | str:
    members = _members(data, {1: VARINT, 2: VARINT, 3: BYTES})
    return _text(members.get(3, b"")) if members.get(1, 0) == 1 else _int32(members.get(2, 0))


def _write_int_or_string(value: int | str) -> bytes:
    number, text = (0, value) if isinstance(value, str) else (value, "")
    return field(1, VARINT, int(isinstance(value, str))) + field(2, VARINT, number) + field(3, BYTES, text.encode())


def _moment(data: bytes, *, micro: bool) -> datetime:
    members = _members(data, {1: VARINT, 2: VARINT})
    microseconds = _int32(members.get(2, 0)) // 1000 if micro else 0
    try:
        return _EPOCH + timedelta(seconds=signed(members.get(1, 0)), microseconds=microseconds)
    except OverflowError as error:
        raise ProtobufError("timestamp out of range") from error


def _read_time(data: bytes) -> str | None:
    """Whole seconds; None for Go's zero time, which is an empty message."""
    return _moment(data, micro=False).strftime("%Y-%m-%dT%H:%M:%SZ") if data else None


def _read_micro_time(data: bytes) -> str | None:
    return _moment(data, micro=True).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if data else None


def _write_time(value: str) -> bytes:
    since = datetime.fromisoformat(value) - _EPOCH
    seconds = since // timedelta(seconds=1)
    return field(1, VARINT, seconds) + field(2, VARINT, since.microseconds * 1000)


def _read_raw(data: bytes) -> Any:
    """FieldsV1 and RawExtension: JSON in a message, or an object in protobuf in it."""
    raw = _members(data, _ONE_TEXT).get(1, b"")
    if raw.startswith(MAGIC):
        return decode(raw)
    try:
        return msgspec.json.decode(raw) if raw else None
    except msgspec.DecodeError as error:
        raise ProtobufError(str(error)) from error


def _write_raw(value: Any) -> bytes:
    return field(1, BYTES, msgspec.json.encode(value))


@dataclass(frozen=True, slots=True)
class _Codec:
    """How a value of one Go type goes to and from the wire; a read of None leaves the field out."""

    wire: int
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


_SIMPLE = {
    "string": _Codec(BYTES, _text, str.encode),
    "bool": _Codec(VARINT, bool, int),
    "int32": _Codec(VARINT, _int32, int),
    "int64": _Codec(VARINT, signed, int),
    "bytes": _Codec(BYTES, lambda data: b64encode(data).decode(), b64decode),
    "quantity": _Codec(BYTES, _read_quantity, _write_quantity),
    "intOrString": _Codec(BYTES, _read_int_or_string, _write_int_or_string),
    "time": _Codec(BYTES, _read_time, _write_time),
    "microTime": _Codec(BYTES, _read_micro_time, _write_time),
    "fieldsV1": _Codec(BYTES, _read_raw, _write_raw),
    "raw": _Codec(BYTES, _read_raw, _write_raw),
}


@cache
def _codec(go_type: str) -> _Codec | None:
    """None for types that have no protobuf form."""
    ref = schema.type_ref(go_type)
    if ref.kind == "struct":
        name = ref.named
        return _Codec(BYTES, lambda data: _message(name).read(data), lambda value: _message(name).write(value))
    if ref.kind == "list" and ref.element is not None and (element := _codec(ref.element.go_type)) is not None:
        # A list with a name of its own (authorization ExtraValue) is a message with the list in it.
        return _Codec(
            BYTES,
            lambda data: [
                element.read(value) for number, wire, value in wire_values(data) if (number, wire) == (1, element.wire)
            ],
            lambda values: b"".join(field(1, element.wire, element.write(value)) for value in values),
        )
    return _SIMPLE.get(ref.kind)


# --- messages ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Member:
    """One field of a message. `shape` is "one", "list", "map" or "inline" (its fields are the outer object's)."""

    name: str
    go_name: str
    number: int
    shape: str
    codec: _Codec
    drop_zero: bool

    def read_entry(self, data: bytes) -> tuple[str, Any]:
        """Key and value of a map; either may be left out when empty."""
        wire = self.codec.wire
        entry = _members(data, {1: BYTES, 2: wire})
        return _text(entry.get(1, b"")), self.codec.read(entry.get(2, 0 if wire == VARINT else b""))


def _member(declared: Field) -> _Member | None:
    ref: TypeRef = declared.type
    shape, element = "one", ref
    if declared.inline:
        shape = "inline"
    elif ref.kind == "list" and not ref.named and ref.element is not None:
        shape, element = "list", ref.element
    elif ref.kind == "map" and ref.element is not None:  # all keys are strings
        shape, element = "map", ref.element
    codec = _codec(element.go_type)
    if codec is None or declared.proto_number == 0:
        return None
    drop_zero = shape == "one" and declared.omit_empty and not ref.pointer
    return _Member(declared.name, declared.go_name, declared.proto_number, shape, codec, drop_zero)


class _Message:
    """One Go struct on the wire."""

    __slots__ = ("_by_number", "_members")

    def __init__(self, struct: StructType) -> None:
        self._members = tuple(member for each in struct.fields if (member := _member(each)) is not None)
        self._by_number = {member.number: member for member in self._members}

    def read(self, data: bytes) -> JSON:
        result: JSON = {}
        for number, wire, raw in wire_values(data):
            member = self._by_number.get(number)
            if member is None:
                continue  # of a newer version
            expected = member.codec.wire if member.shape != "map" else BYTES
            if wire == BYTES and expected == VARINT and member.shape == "list":
                result.setdefault(member.name, []).extend(self._packed(member, raw))
                continue
            if wire != expected:
                raise ProtobufError(f"proto: wrong wireType = {wire} for field {member.go_name}")
            if member.shape == "map":
                key, entry_value = member.read_entry(raw)
                result.setdefault(member.name, {})[key] = entry_value
                continue
            value = member.codec.read(raw)
            if member.shape == "inline":
                result.update(value)
            elif member.shape == "list":
                result.setdefault(member.name, []).append(value)
            elif value is not None and not (member.drop_zero and value in ("", 0)):
                result[member.name] = value
        return result

    @staticmethod
    def _packed(member: _Member, data: bytes) -> Iterator[Any]:
        at = 0
        while at < len(data):
            value, at = read_varint(data, at)
            yield member.codec.read(value)

    def write(self, value: JSON) -> bytes:
        out: list[bytes] = []
        for member in self._members:
            if member.shape == "inline":
                if inner := member.codec.write(value):
                    out.append(field(member.number, BYTES, inner))
                continue
            given = value.get(member.name)
            if given is None:
                continue
            codec = member.codec
            if member.shape == "map":
                for key in sorted(given):
                    written = b"" if given[key] is None else codec.write(given[key])
                    entry = field(1, BYTES, key.encode()) + field(2, codec.wire, written)
                    out.append(field(member.number, BYTES, entry))
            elif member.shape == "list":
                out.extend(field(member.number, codec.wire, codec.write(each)) for each in given)
            else:
                out.append(field(member.number, codec.wire, codec.write(given)))
        return b"".join(out)


@cache
def _message(name: str) -> _Message:
    struct = schema.type_named(name)
    if struct is None:
        raise KeyError(name)
    return _Message(struct)


def has_form(group: str, version: str, kind: str) -> bool:
    """Is there a protobuf form of this kind? Definitions of custom resources hold JSON schemas, which have none."""
    return group != _JSON_ONLY and schema.type_for(group, version, kind) is not None


def _message_of(api_version: str, kind: str) -> _Message:
    group, _, version = api_version.rpartition("/")
    if group == _JSON_ONLY:
        raise ProtobufError(f"{kind} of {api_version} is read and written as JSON or YAML only")
    struct = schema.type_for(group, version, kind)
    if struct is None:  # Status, DeleteOptions and their like belong to every group
        struct = schema.type_named(f"meta/v1.{kind}")
    if struct is None:
        raise ProtobufError(f'no kind "{kind}" is registered for version "{api_version}"')
    return _message(struct.name)


# --- whole bodies -----------------------------------------------------------------------------------------------------


def decode(body: bytes) -> JSON:
    """The object of a body, with apiVersion and kind, in the JSON form of Kubernetes.

    Raises ProtobufError, also for kinds that the schema does not hold.
    """
    if not body:
        raise ProtobufError("empty data")
    if not body.startswith(MAGIC):
        prefix = " ".join(map(str, MAGIC))
        raise ProtobufError(f"provided data does not appear to be a protobuf message, expected prefix [{prefix}]")
    unknown = _members(body[len(MAGIC) :], {1: BYTES, 2: BYTES})
    type_meta = _members(unknown.get(1, b""), {1: BYTES, 2: BYTES})
    api_version, kind, raw = _text(type_meta.get(1, b"")), _text(type_meta.get(2, b"")), unknown.get(2, b"")
    return {"apiVersion": api_version, "kind": kind, **_message_of(api_version, kind).read(raw)}


def encode(obj: JSON) -> bytes:
    """An object that carries apiVersion and kind as a body. Raises ProtobufError for kinds the schema does not hold."""
    api_version, kind = obj.get("apiVersion", ""), obj.get("kind", "")
    message = _message_of(api_version, kind)
    type_meta = field(1, BYTES, api_version.encode()) + field(2, BYTES, kind.encode())
    # Content encoding and type follow empty, as Kubernetes writes them.
    end = field(3, BYTES, b"") + field(4, BYTES, b"")
    return MAGIC + field(1, BYTES, type_meta) + field(2, BYTES, message.write(obj)) + end
