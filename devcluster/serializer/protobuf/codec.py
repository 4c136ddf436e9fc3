"""Objects in Kubernetes' protobuf form, to and from plain JSON: single ones, lists, the frames of a watch.

A body is the four bytes "k8s\\0" and a runtime.Unknown: kind and apiVersion, then the object's own message. Numbers and
types of fields come from kube.schema. What kind of wire value a field has follows from its Go type: the struct tags
sometimes say otherwise, and the code generator ignores that too. What is written is byte by byte what Go writes: fields
by number, and those that are no pointers even if they are empty. A watch is a sequence of frames, each the length in
four bytes and a WatchEvent without the envelope, in which the object is a whole body.

Imported when the first client asks for it. Sources: apimachinery runtime/serializer/protobuf, util/framer;
go-to-protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import msgspec

from kubeloop.devcluster.serializer.controller_revision_data import SentData
from kubeloop.devcluster.serializer.protobuf.values import MAGIC, SCALARS, Codec, members, text
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

_REMEMBERED_SIZES = 4096
_encode = msgspec.json.Encoder().encode


class _Sizes(dict[int, bytes]):
    """Numbers as varints; small ones are remembered."""

    def __missing__(self, number: int) -> bytes:
        written = write_varint(number)
        if number < _REMEMBERED_SIZES:
            self[number] = written
        return written


_SIZES = _Sizes()


# --- types ------------------------------------------------------------------------------------------------------------


def _read_raw(data: bytes) -> Any:
    """A RawExtension: JSON, or an object in protobuf."""
    raw = members(data, {1: BYTES}).get(1, b"")
    return decode(raw) if raw.startswith(MAGIC) else SCALARS["any"].read(data)


def _write_raw(value: Any) -> bytes:
    return SCALARS["any"].write(msgspec.Raw(value.text) if isinstance(value, SentData) else value)


_RAW = Codec(BYTES, _read_raw, _write_raw, b"")
_SCHEMA = "apiextensions/v1.JSONSchemaProps"


def _schema_choice(name: str) -> Codec:
    """A schema or something else; the latter is named by the end of the type's name."""

    def read(data: bytes) -> Any:
        message = _message(_SCHEMA)
        others: list[Any] = []
        allows = False
        for number, wire, value in wire_values(data):
            if wire == VARINT:
                allows = bool(value)
            elif number == schema_number:
                return message.read(value)
            elif wire == BYTES:
                others.append(text(value) if of_texts else message.read(value))
        return allows if of_bool else others

    def write(value: Any) -> bytes:
        message = _message(_SCHEMA)
        if isinstance(value, dict):
            allowed = field(1, VARINT, 1) if of_bool else b""
            return allowed + field(schema_number, BYTES, message.write(value))
        if of_bool:
            return field(1, VARINT, int(value))
        return b"".join(field(2, BYTES, each.encode() if of_texts else message.write(each)) for each in value)

    of_bool, of_texts = name.endswith("OrBool"), name.endswith("OrStringArray")
    schema_number = 2 if of_bool else 1
    return Codec(BYTES, read, write, field(1, VARINT, 0) if of_bool else b"")


@cache
def _codec(go_type: str) -> Codec | None:
    """None for types that have no protobuf form."""
    ref = schema.type_ref(go_type)
    if ref.kind == "struct":
        message = _message(ref.named)
        return Codec(BYTES, message.read, message.write, b"")
    if ref.kind == "list" and ref.element is not None and (element := _codec(ref.element.go_type)) is not None:
        # A list of texts with a name of its own (authorization ExtraValue) is a message with the list in it.
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
        return _schema_choice(ref.named)
    return SCALARS.get(ref.kind)


# --- fields -----------------------------------------------------------------------------------------------------------


_ZERO_LEFT_OUT = ("string", "bool", "int32", "int64")
"""Go's encoder writes empty structs, which intOrString and its like are, even if they may be left out."""


class _Member:
    """One field of a message. `shape` is "one", "list", "map" or "inline" (its fields are the outer object's)."""

    __slots__ = ("always", "codec", "drop_zero", "go_name", "name", "number", "shape", "tag", "wire")

    def __init__(self, declared: Field, shape: str, codec: Codec) -> None:
        self.name = declared.name
        self.go_name = declared.go_name
        self.number = declared.proto_number
        self.shape = shape
        self.codec = codec
        self.wire = BYTES if shape == "map" else codec.wire
        self.tag = write_varint(self.number << 3 | self.wire)
        one = shape == "one" and not declared.type.pointer
        self.drop_zero = one and declared.omit_empty and declared.type.kind in _ZERO_LEFT_OUT
        self.always = (one or (shape == "inline" and not declared.type.pointer)) and declared.type.kind != "bytes"

    # --- writing ------------------------------------------------------------------------------------------------------

    def absent(self, struct: str) -> bytes:
        """What stands for the field in a message whose object does not have it."""
        if not self.always:
            return b""
        empty = _message(struct).write({}) if struct else self.codec.empty
        return self.tag + (_SIZES[len(empty)] if self.wire == BYTES else b"") + empty

    def emitting(self) -> _Emit:
        """What writes the field's value."""
        if self.shape == "map":
            return self._emitting_map()
        one = self._emitting_one()
        if self.shape != "list":
            return one

        def emit_all(extend: _Extend, values: Any) -> None:
            for value in values:
                one(extend, value)

        return emit_all

    def _emitting_one(self) -> _Emit:
        tag, write, sizes = self.tag, self.codec.write, _SIZES
        if self.wire != BYTES:

            def emit_number(extend: _Extend, value: Any) -> None:
                extend((tag, write(value)))

            return emit_number

        def emit(extend: _Extend, value: Any) -> None:
            data = write(value)
            extend((tag, sizes[len(data)], data))

        return emit

    def _emitting_map(self) -> _Emit:
        tag, codec, sizes = self.tag, self.codec, _SIZES
        second = write_varint(2 << 3 | codec.wire)
        sized = codec.wire == BYTES

        def emit_map(extend: _Extend, value: Any) -> None:
            for key in sorted(value):
                name, each = key.encode(), value[key]
                written = codec.empty if each is None else codec.write(each)
                entry = b"".join(
                    (b"\x0a", sizes[len(name)], name, second, sizes[len(written)] if sized else b"", written)
                )
                extend((tag, sizes[len(entry)], entry))

        return emit_map

    # --- reading ------------------------------------------------------------------------------------------------------

    def reading(self) -> _Read:
        """What puts a value of the field into an object."""
        name, read, drop_zero = self.name, self.codec.read, self.drop_zero
        if self.shape == "map":
            return self._put_entry
        if self.shape == "inline":
            return lambda result, value: result.update(read(value))
        if self.shape == "list":
            return lambda result, value: result.setdefault(name, []).append(read(value))

        def put(result: JSON, value: Any) -> None:
            found = read(value)
            if found is not None and not (drop_zero and found in ("", 0)):
                result[name] = found

        return put

    def _put_entry(self, result: JSON, data: bytes) -> None:
        """Key and value of a map; either may be left out when empty."""
        wire = self.codec.wire
        if wire == BYTES and data.startswith(b"\x0a") and (size := data[1]) < 0x80:
            at = size + 4  # of the value, if its length is one byte as well
            if len(data) >= at and data[at - 2] == 0x12 and data[at - 1] == len(data) - at:
                result.setdefault(self.name, {})[text(data[2 : at - 2])] = self.codec.read(data[at:])
                return
        entry = members(data, {1: BYTES, 2: wire})
        value = self.codec.read(entry.get(2, 0 if wire == VARINT else b""))
        result.setdefault(self.name, {})[text(entry.get(1, b""))] = value

    def put_packed(self, result: JSON, data: bytes) -> None:
        """Numbers of a list that stand together."""
        at = 0
        while at < len(data):
            value, at = read_varint(data, at)
            result.setdefault(self.name, []).append(self.codec.read(value))


def _member(declared: Field) -> _Member | None:
    ref = declared.type
    shape, element = "one", ref
    if declared.inline:
        shape = "inline"
    elif ref.kind == "list" and ref.element is not None and not (ref.named and ref.element.kind == "string"):
        shape, element = "list", ref.element
    elif ref.kind == "map" and ref.element is not None:  # all keys are strings
        shape, element = "map", ref.element
    codec = _codec(element.go_type)
    if codec is None or declared.proto_number == 0:
        return None
    return _Member(declared, shape, codec)


# --- messages ---------------------------------------------------------------------------------------------------------


class _Message:
    """One Go struct on the wire. What it is made of is looked up on first use, because types refer to themselves."""

    __slots__ = ("_by_number", "_readers", "_rows", "_struct")

    def __init__(self, struct: StructType) -> None:
        self._struct = struct
        self._rows: tuple[tuple[str, _Emit, bytes], ...] = ()
        self._readers: dict[int, _Read] = {}
        self._by_number: dict[int, _Member] = {}

    def _prepare(self) -> None:
        declared = sorted(self._struct.fields, key=lambda each: each.proto_number)
        rows = []
        for each in declared:
            if (member := _member(each)) is None:
                continue
            nested = each.type.named if each.type.kind == "struct" else ""
            name = "" if member.shape == "inline" else member.name
            rows.append((name, member.emitting(), member.absent(nested)))
            self._by_number[member.number] = member
            self._readers[member.number << 3 | member.wire] = member.reading()
            if member.shape == "list" and member.wire == VARINT:
                self._readers[member.number << 3 | BYTES] = member.put_packed
        self._rows = tuple(rows)

    def write(self, value: JSON) -> bytes:
        """The message of an object; what is missing in it is what Go has in its place."""
        if not self._rows:
            self._prepare()
        out: list[bytes] = []
        extend, get = out.extend, value.get
        for name, emit, absent in self._rows:
            if name:
                given = get(name)
                if given is not None:
                    emit(extend, given)
                elif absent:
                    out.append(absent)
            else:
                emit(extend, value)
        return b"".join(out)

    def read(self, data: bytes) -> JSON:
        """The object of a message. Raises ProtobufError, IndexError at an unexpected end."""
        if not self._rows:
            self._prepare()
        result: JSON = {}
        readers = self._readers
        at, end = 0, len(data)
        while at < end:
            tag = data[at]
            at += 1
            if tag >= 0x80:  # two bytes are the rule then; more are read from the start
                tag, at = tag & 0x7F | data[at] << 7, at + 1
                if tag >= 0x4000:
                    tag, at = read_varint(data, at - 2)
            put = readers.get(tag)
            if put is None:
                at = self._pass_over(tag, data, at)
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

    def _pass_over(self, tag: int, data: bytes, at: int) -> int:
        """The position after a field of a newer version."""
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
    if struct is None:  # Status, DeleteOptions and their like belong to every group
        struct = schema.type_named(f"meta/v1.{kind}")
    if struct is None:
        raise ProtobufError(f'no kind "{kind}" is registered for version "{api_version}"')
    return _message(struct.name)


def has_protobuf_form(api_version: str, kind: str) -> bool:
    """Is there a protobuf form of this kind? Custom resources have none, and tables do not."""
    try:
        return kind != "Table" and _message_of(api_version, kind) is not None
    except ProtobufError:
        return False


def writer(api_version: str, kind: str) -> Callable[[JSON], bytes]:
    """What writes objects of a kind as messages, without the envelope. Raises ProtobufError for unknown kinds."""
    return _message_of(api_version, kind).write


# --- whole bodies -----------------------------------------------------------------------------------------------------


def decode(body: bytes, api_version: str = "", kind: str = "") -> JSON:
    """The object of a body, with apiVersion and kind, in the JSON form of Kubernetes.

    api_version, kind: of a body that does not say. Raises ProtobufError, also for kinds that the schema does not hold.
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
    """An object that carries apiVersion and kind as a body. Raises ProtobufError for kinds the schema does not hold."""
    api_version, kind = obj.get("apiVersion", ""), obj.get("kind", "")
    return wrap_in_envelope(api_version, kind, _message_of(api_version, kind).write(obj))


def wrap_in_envelope(api_version: str, kind: str, message: bytes) -> bytes:
    """A message as a body."""
    return b"".join((_head(api_version, kind), _SIZES[len(message)], message, _END))


@cache
def _head(api_version: str, kind: str) -> bytes:
    type_meta = field(1, BYTES, api_version.encode()) + field(2, BYTES, kind.encode())
    return MAGIC + field(1, BYTES, type_meta) + b"\x12"


_END = field(3, BYTES, b"") + field(4, BYTES, b"")
"""Content encoding and type follow empty, as Go writes them."""


def encode_list(api_version: str, list_kind: str, metadata: JSON, messages: Iterable[bytes]) -> bytes:
    """A body of many messages of one kind. Lists of all kinds have their metadata in field 1 and their items in 2."""
    head = field(1, BYTES, _message("meta/v1.ListMeta").write(metadata))
    items = (each for message in messages for each in (b"\x12", _SIZES[len(message)], message))
    return wrap_in_envelope(api_version, list_kind, b"".join((head, *items)))


def encode_watch_event(type_: str, body: bytes) -> bytes:
    """One event of a watch: the length of a WatchEvent, and the WatchEvent with a body in it."""
    extension = b"".join((b"\x0a", _SIZES[len(body)], body))
    event = b"".join((b"\x0a", _SIZES[len(type_)], type_.encode(), b"\x12", _SIZES[len(extension)], extension))
    return len(event).to_bytes(4, "big") + event
