"""Kubernetes' protobuf encoding: objects, lists and watch events, to and from JSON values.

A body is the four bytes "k8s\\0" and a runtime.Unknown: kind and apiVersion, then the object's message. Field numbers
and types come from kube.schema. The wire type follows from the Go type: the struct tags sometimes differ, and
Kubernetes' code generator ignores them, too. The output is byte-identical to Go's: fields in the order of their
numbers, and non-pointer fields even if they are empty. A watch is a sequence of frames: a length of four bytes and a
WatchEvent without the envelope, whose object is a whole body.

Imported on first use. Sources: apimachinery runtime/serializer/protobuf, util/framer; go-to-protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import msgspec

from kubeloop.devcluster.serializer.controller_revision_data import SentData
from kubeloop.devcluster.serializer.protobuf.values import MAGIC, SCALARS, ZERO_TIMES, Codec, members, text
from kubeloop.devcluster.serializer.protobuf.wire import (
    BYTES,
    FIXED64,
    VARINT,
    ProtobufError,
    field,
    read_varint,
    skip,
    wire_values,
    write_varint,
)
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.schema import Field, StructType

_Extend = Callable[[tuple[bytes, ...]], None]
_Emit = Callable[[_Extend, Any], None]
_Read = Callable[[JSON, Any], None]

_CACHED_SIZES = 4096
_encode = msgspec.json.Encoder().encode


class _Sizes(dict[int, bytes]):
    """Encodings of numbers as varints; small ones are cached."""

    def __missing__(self, number: int) -> bytes:
        written = write_varint(number)
        if number < _CACHED_SIZES:
            self[number] = written
        return written


_SIZES = _Sizes()


# --- types ------------------------------------------------------------------------------------------------------------


def _read_raw(data: bytes) -> Any:
    """Decode a RawExtension: JSON, or an object in protobuf."""
    raw = members(data, {1: BYTES}).get(1, b"")
    return decode(raw) if raw.startswith(MAGIC) else SCALARS["any"].read(data)


def _write_raw(value: Any) -> bytes:
    return SCALARS["any"].write(msgspec.Raw(value.text) if isinstance(value, SentData) else value)


_RAW = Codec(BYTES, _read_raw, _write_raw, b"")
_SCHEMA = "apiextensions/v1.JSONSchemaProps"


def _schema_or_other(name: str) -> Codec:
    """Return the codec of JSONSchemaPropsOrBool, OrArray or OrStringArray, selected by the end of `name`."""

    def read(data: bytes) -> Any:
        message = _message(_SCHEMA)
        alternatives: list[Any] = []
        allowed = False
        for number, wire, value in wire_values(data):
            if wire == VARINT:
                allowed = bool(value)
            elif number == schema_number:
                return message.read(value)
            elif wire == BYTES:
                alternatives.append(text(value) if of_strings else message.read(value))
        return allowed if of_bool else alternatives

    def write(value: Any) -> bytes:
        message = _message(_SCHEMA)
        if isinstance(value, dict):
            allowed = field(1, VARINT, 1) if of_bool else b""
            return allowed + field(schema_number, BYTES, message.write(value))
        if of_bool:
            return field(1, VARINT, int(value))
        return b"".join(field(2, BYTES, item.encode() if of_strings else message.write(item)) for item in value)

    of_bool, of_strings = name.endswith("OrBool"), name.endswith("OrStringArray")
    schema_number = 2 if of_bool else 1
    return Codec(BYTES, read, write, field(1, VARINT, 0) if of_bool else b"")


@cache
def _codec(go_type: str) -> Codec | None:
    """Return the codec of a Go type, or None if it has no protobuf form."""
    ref = schema.type_ref(go_type)
    if ref.kind == "struct":
        message = _message(ref.named)
        return Codec(BYTES, message.read, message.write, b"")
    if ref.kind == "list" and ref.element is not None and (element := _codec(ref.element.go_type)) is not None:
        # A named list of strings (authorization ExtraValue) is a message that contains the list.
        return Codec(
            BYTES,
            lambda data: [
                element.read(value) for number, wire, value in wire_values(data) if (number, wire) == (1, element.wire)
            ],
            lambda values: b"".join(field(1, element.wire, element.write(value)) for value in values),
            b"",
        )
    if ref.kind == "raw":
        return _RAW
    if ref.named.startswith(f"{_SCHEMA}Or"):
        return _schema_or_other(ref.named)
    return SCALARS.get(ref.kind)


# --- fields -----------------------------------------------------------------------------------------------------------


_ZERO_LEFT_OUT = ("string", "bool", "int32", "int64")
"""Go encodes empty structs, such as intOrString, even with omitempty."""


class _Member:
    """A field of a message. `shape`: "one", "list", "map" or "inline" (its fields belong to the outer object)."""

    __slots__ = ("always", "codec", "drop_zero", "empty_time", "go_name", "name", "number", "shape", "tag", "wire")

    def __init__(self, declared_field: Field, shape: str, codec: Codec) -> None:
        self.name = declared_field.name
        self.go_name = declared_field.go_name
        self.number = declared_field.proto_number
        self.shape = shape
        self.codec = codec
        self.wire = BYTES if shape == "map" else codec.wire
        self.tag = write_varint(self.number << 3 | self.wire)
        one = shape == "one" and not declared_field.type.pointer
        self.drop_zero = one and declared_field.omit_empty and declared_field.type.kind in _ZERO_LEFT_OUT
        self.empty_time = ZERO_TIMES.get(declared_field.type.kind) if declared_field.type.pointer else None
        self.always = (
            one or (shape == "inline" and not declared_field.type.pointer)
        ) and declared_field.type.kind != "bytes"

    # --- writing ------------------------------------------------------------------------------------------------------

    def absent_value(self, struct: str) -> bytes:
        """Return the encoding of the field in a message whose object lacks it."""
        if not self.always:
            return b""
        empty = _message(struct).write({}) if struct else self.codec.empty
        return self.tag + (_SIZES[len(empty)] if self.wire == BYTES else b"") + empty

    def emitter(self) -> _Emit:
        """Return the function that encodes the field's value."""
        if self.shape == "map":
            return self._map_emitter()
        one = self._single_emitter()
        if self.shape != "list":
            return one

        def emit_all(extend: _Extend, values: Any) -> None:
            for value in values:
                one(extend, value)

        return emit_all

    def _single_emitter(self) -> _Emit:
        tag, write, sizes = self.tag, self.codec.write, _SIZES
        if self.wire != BYTES:

            def emit_number(extend: _Extend, value: Any) -> None:
                extend((tag, write(value)))

            return emit_number

        def emit(extend: _Extend, value: Any) -> None:
            data = write(value)
            extend((tag, sizes[len(data)], data))

        return emit

    def _map_emitter(self) -> _Emit:
        tag, codec, sizes = self.tag, self.codec, _SIZES
        second = write_varint(2 << 3 | codec.wire)
        sized = codec.wire == BYTES

        def emit_map(extend: _Extend, value: Any) -> None:
            for key in sorted(value):
                name, item = key.encode(), value[key]
                written = codec.empty if item is None else codec.write(item)
                entry = b"".join(
                    (b"\x0a", sizes[len(name)], name, second, sizes[len(written)] if sized else b"", written)
                )
                extend((tag, sizes[len(entry)], entry))

        return emit_map

    # --- reading ------------------------------------------------------------------------------------------------------

    def reader(self) -> _Read:
        """Return the function that stores a decoded value of the field in an object."""
        name, read, drop_zero, empty_time = self.name, self.codec.read, self.drop_zero, self.empty_time
        if self.shape == "map":
            return self._put_entry
        if self.shape == "inline":
            return lambda result, value: result.update(read(value))
        if self.shape == "list":
            return lambda result, value: result.setdefault(name, []).append(read(value))

        def put(result: JSON, value: Any) -> None:
            decoded = read(value)
            if decoded is not None and not (drop_zero and decoded in ("", 0)):
                result[name] = decoded
            elif empty_time is not None:
                result[name] = empty_time

        return put

    def _put_entry(self, result: JSON, data: bytes) -> None:
        """Store an entry of a map; key and value are omitted if empty."""
        wire = self.codec.wire
        if wire == BYTES and data.startswith(b"\x0a") and (size := data[1]) < 0x80:
            at = size + 4  # start of the value, if its length takes one byte, too
            if len(data) >= at and data[at - 2] == 0x12 and data[at - 1] == len(data) - at:
                result.setdefault(self.name, {})[text(data[2 : at - 2])] = self.codec.read(data[at:])
                return
        entry = members(data, {1: BYTES, 2: wire})
        value = self.codec.read(entry.get(2, 0 if wire == VARINT else b""))
        result.setdefault(self.name, {})[text(entry.get(1, b""))] = value

    def put_packed(self, result: JSON, data: bytes) -> None:
        """Store the numbers of a packed list."""
        at = 0
        while at < len(data):
            value, at = read_varint(data, at)
            result.setdefault(self.name, []).append(self.codec.read(value))


def _member(declared_field: Field) -> _Member | None:
    ref = declared_field.type
    shape, element = "one", ref
    if declared_field.inline:
        shape = "inline"
    elif ref.kind == "list" and ref.element is not None and not (ref.named and ref.element.kind == "string"):
        shape, element = "list", ref.element
    elif ref.kind == "map" and ref.element is not None:  # all keys are strings
        shape, element = "map", ref.element
    codec = _codec(element.go_type)
    if codec is None or declared_field.proto_number == 0:
        return None
    return _Member(declared_field, shape, codec)


# --- messages ---------------------------------------------------------------------------------------------------------


class _Message:
    """The message of a Go struct. Its fields are resolved on first use, because types are recursive."""

    __slots__ = ("_by_number", "_readers", "_rows", "_struct")

    def __init__(self, struct: StructType) -> None:
        self._struct = struct
        self._rows: tuple[tuple[str, _Emit, bytes], ...] = ()
        self._readers: dict[int, _Read] = {}
        self._by_number: dict[int, _Member] = {}

    def _prepare(self) -> None:
        declared_fields = sorted(self._struct.fields, key=lambda declared_field: declared_field.proto_number)
        rows = []
        for declared_field in declared_fields:
            if (member := _member(declared_field)) is None:
                continue
            nested = declared_field.type.named if declared_field.type.kind == "struct" else ""
            name = "" if member.shape == "inline" else member.name
            rows.append((name, member.emitter(), member.absent_value(nested)))
            self._by_number[member.number] = member
            self._readers[member.number << 3 | member.wire] = member.reader()
            if member.shape == "list" and member.wire == VARINT:
                self._readers[member.number << 3 | BYTES] = member.put_packed
        self._rows = tuple(rows)

    def write(self, value: JSON) -> bytes:
        """Encode an object; a missing field is encoded like Go's zero value."""
        if not self._rows:
            self._prepare()
        out: list[bytes] = []
        extend, get = out.extend, value.get
        for name, emit, absent_value in self._rows:
            if name:
                member_value = get(name)
                if member_value is not None:
                    emit(extend, member_value)
                elif absent_value:
                    out.append(absent_value)
            else:
                emit(extend, value)
        return b"".join(out)

    def read(self, data: bytes) -> JSON:
        """Decode an object. Raises ProtobufError, or IndexError at an unexpected end."""
        if not self._rows:
            self._prepare()
        result: JSON = {}
        readers = self._readers
        at, end = 0, len(data)
        while at < end:
            tag = data[at]
            at += 1
            if tag >= 0x80:  # most such tags have two bytes; longer ones are read from their start
                tag, at = tag & 0x7F | data[at] << 7, at + 1
                if tag >= 0x4000:
                    tag, at = read_varint(data, at - 2)
            put = readers.get(tag)
            if put is None:
                at = self._skip_field(tag, data, at)
                continue
            wire = tag & 7
            if wire != FIXED64:
                value = data[at]
                at += 1
                if value >= 0x80:
                    value, at = value & 0x7F | data[at] << 7, at + 1
                    if value >= 0x4000:
                        value, at = read_varint(data, at - 2)
                if wire == VARINT:
                    put(result, value)
                    continue
            else:
                value = 8
            stop = at + value
            if stop > end:
                raise ProtobufError("unexpected EOF")
            put(result, data[at:stop])
            at = stop
        return result

    def _skip_field(self, tag: int, data: bytes, at: int) -> int:
        """Return the position after an unknown field, such as one of a newer version."""
        number, wire = tag >> 3, tag & 7
        if (member := self._by_number.get(number)) is not None:
            raise ProtobufError(f"proto: wrong wireType = {wire} for field {member.go_name}")
        return skip(number, wire, data, at)


@cache
def _message(name: str) -> _Message:
    struct = schema.type_named(name)
    if struct is None:
        raise KeyError(name)
    return _Message(struct)


# --- kinds ------------------------------------------------------------------------------------------------------------


@cache
def _message_of(api_version: str, kind: str) -> _Message:
    group, _, version = api_version.rpartition("/")
    struct = schema.type_for(group, version, kind)
    if struct is None:  # Status, DeleteOptions and similar kinds exist in every group
        struct = schema.type_named(f"meta/v1.{kind}")
    if struct is None:
        raise ProtobufError(f'no kind "{kind}" is registered for version "{api_version}"')
    return _message(struct.name)


def has_protobuf_form(api_version: str, kind: str) -> bool:
    """Return True if the kind has a protobuf form; custom resources and Tables have none."""
    try:
        return kind != "Table" and _message_of(api_version, kind) is not None
    except ProtobufError:
        return False


def writer(api_version: str, kind: str) -> Callable[[JSON], bytes]:
    """Return the function that encodes objects of a kind, without envelope. Raises ProtobufError for unknown kinds."""
    return _message_of(api_version, kind).write


# --- whole bodies -----------------------------------------------------------------------------------------------------


def decode(body: bytes, api_version: str = "", kind: str = "") -> JSON:
    """Return the object of a body, with apiVersion and kind, in Kubernetes' JSON form.

    api_version, kind: used if the body has none. Raises ProtobufError, also for unknown kinds.
    """
    if not body:
        raise ProtobufError("empty data")
    if not body.startswith(MAGIC):
        prefix = " ".join(map(str, MAGIC))
        raise ProtobufError(f"provided data does not appear to be a protobuf message, expected prefix [{prefix}]")
    unknown = members(body[len(MAGIC) :], {1: BYTES, 2: BYTES})
    type_meta = members(unknown.get(1, b""), {1: BYTES, 2: BYTES})
    api_version = text(type_meta.get(1, b"")) or api_version
    kind = text(type_meta.get(2, b"")) or kind
    try:
        return {"apiVersion": api_version, "kind": kind, **_message_of(api_version, kind).read(unknown.get(2, b""))}
    except IndexError as error:
        raise ProtobufError("unexpected EOF", (api_version, kind)) from error
    except ProtobufError as error:
        raise ProtobufError(str(error), (api_version, kind)) from error


def encode(obj: JSON) -> bytes:
    """Encode an object with apiVersion and kind as a body. Raises ProtobufError for unknown kinds."""
    api_version, kind = obj.get("apiVersion", ""), obj.get("kind", "")
    return wrap_in_envelope(api_version, kind, _message_of(api_version, kind).write(obj))


def wrap_in_envelope(api_version: str, kind: str, message: bytes) -> bytes:
    """Return an encoded message as a body."""
    return b"".join((_envelope_head(api_version, kind), _SIZES[len(message)], message, _END))


@cache
def _envelope_head(api_version: str, kind: str) -> bytes:
    type_meta = field(1, BYTES, api_version.encode()) + field(2, BYTES, kind.encode())
    return MAGIC + field(1, BYTES, type_meta) + b"\x12"


_END = field(3, BYTES, b"") + field(4, BYTES, b"")
"""Empty content encoding and content type, which Go writes, too."""


def encode_list(api_version: str, list_kind: str, metadata: JSON, messages: Iterable[bytes]) -> bytes:
    """Return the body of a list; lists of all kinds have the metadata in field 1 and the items in field 2."""
    head = field(1, BYTES, _message("meta/v1.ListMeta").write(metadata))
    items = (part for message in messages for part in (b"\x12", _SIZES[len(message)], message))
    return wrap_in_envelope(api_version, list_kind, b"".join((head, *items)))


def encode_watch_event(type_: str, body: bytes) -> bytes:
    """Return one watch event as a frame: the length of a WatchEvent, and the WatchEvent with an object body."""
    extension = b"".join((b"\x0a", _SIZES[len(body)], body))
    event = b"".join((b"\x0a", _SIZES[len(type_)], type_.encode(), b"\x12", _SIZES[len(extension)], extension))
    return len(event).to_bytes(4, "big") + event
