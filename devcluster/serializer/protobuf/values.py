"""Protobuf encoding of scalar API values: strings, numbers, times, quantities.

Values of several Go types are messages in protobuf and a single value in JSON. Sources: generated.pb.go and the
hand-written Marshal methods in apimachinery (pkg/api/resource, pkg/util/intstr, pkg/apis/meta/v1).
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from struct import pack, unpack
from typing import Any

import msgspec

from kubeloop.devcluster.serializer import decoding
from kubeloop.devcluster.serializer.protobuf.wire import (
    BYTES,
    FIXED64,
    VARINT,
    ProtobufError,
    field,
    signed,
    wire_values,
    write_varint,
)
from kubeloop.kube.values.times import ZERO_TIME_SECONDS, text_seconds, time_text

MAGIC = b"k8s\x00"
_ONE_TEXT = {1: BYTES}
_encode = msgspec.json.Encoder().encode
_cached = lru_cache(maxsize=4096)  # the same times and quantities occur repeatedly


@dataclass(frozen=True, slots=True)
class Codec:
    """Encoding of one Go type.

    wire: wire type. read: converts the wire's number or bytes to JSON; None omits the field. write: converts JSON to
    the bytes after the tag and, for BYTES, the length. empty: encoding of Go's zero value.
    """

    wire: int
    read: Callable[[Any], Any]
    write: Callable[[Any], bytes]
    empty: bytes


def text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def members(data: bytes, wires: Mapping[int, int]) -> dict[int, Any]:
    """Return the last value of each field with one of these wire types in a small message; other fields are skipped."""
    values: dict[int, Any] = {}
    for number, wire, value in wire_values(data):
        expected = wires.get(number)
        if expected is not None:
            if wire != expected:
                raise ProtobufError(f"proto: wrong wireType = {wire} for field {number}")
            values[number] = value
    return values


def _int32(value: int) -> int:
    value &= 0xFFFF_FFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _write_int(value: Any) -> bytes:
    return _SMALL[value] if 0 <= value < len(_SMALL) else write_varint(int(value))


_SMALL = tuple(write_varint(value) for value in range(256))


def _read_float(data: bytes) -> float:
    value: float = unpack("<d", data)[0]
    return value


@_cached
def _read_quantity(data: bytes) -> str:
    return text(members(data, _ONE_TEXT).get(1, b"")) or "0"


@_cached
def _write_quantity(value: Any) -> bytes:
    return field(1, BYTES, str(value).encode())


@_cached
def _read_int_or_string(data: bytes) -> int | str:
    values = members(data, {1: VARINT, 2: VARINT, 3: BYTES})
    return text(values.get(3, b"")) if values.get(1, 0) == 1 else _int32(values.get(2, 0))


@_cached
def _write_int_or_string(value: int | str) -> bytes:
    number, word = (0, value) if isinstance(value, str) else (value, "")
    return field(1, VARINT, int(isinstance(value, str))) + field(2, VARINT, number) + field(3, BYTES, word.encode())


@_cached
def _read_time(data: bytes) -> str | None:
    """Return a time in whole seconds, or None for Go's zero time, which an empty message stands for, too."""
    seconds = signed(members(data, {1: VARINT, 2: VARINT}).get(1, 0)) if data else ZERO_TIME_SECONDS
    return None if seconds == ZERO_TIME_SECONDS else _time_of_any_year(time_text(seconds))


@_cached
def _read_micro_time(data: bytes) -> str | None:
    """Return a time with microseconds, or None for Go's zero time, which an empty message stands for, too."""
    values = members(data, {1: VARINT, 2: VARINT})
    nanoseconds = _int32(values.get(2, 0))
    more_seconds, microseconds = divmod(abs(nanoseconds) // 1000 * (-1 if nanoseconds < 0 else 1), 1_000_000)
    seconds = signed(values.get(1, 0)) + more_seconds if data else ZERO_TIME_SECONDS
    is_zero = (seconds, microseconds) == (ZERO_TIME_SECONDS, 0)
    return None if is_zero else _time_of_any_year(time_text(seconds, microseconds))


ZERO_TIMES = {"time": time_text(ZERO_TIME_SECONDS), "microTime": time_text(ZERO_TIME_SECONDS, 0)}
"""Texts that decode to Go's zero time, by kind."""


def _time_of_any_year(text: str) -> str:
    return text if text[4] == "-" and text[0] != "-" else decoding.TimeOfAnyYear(text)


@_cached
def _write_time(value: str) -> bytes:
    seconds, microseconds = text_seconds(value)
    return field(1, VARINT, seconds) + field(2, VARINT, microseconds * 1000)


def _json(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw) if raw else None
    except msgspec.DecodeError as error:
        raise ProtobufError(str(error)) from error


def _read_json(data: bytes) -> Any:
    return _json(members(data, _ONE_TEXT).get(1, b""))


def _write_json(value: Any) -> bytes:
    return field(1, BYTES, _encode(value))


SCALARS = {
    "string": Codec(BYTES, text, str.encode, b""),
    "bool": Codec(VARINT, bool, lambda value: b"\x01" if value else b"\x00", b"\x00"),
    "int32": Codec(VARINT, _int32, _write_int, b"\x00"),
    "int64": Codec(VARINT, signed, _write_int, b"\x00"),
    "float64": Codec(FIXED64, _read_float, lambda value: pack("<d", value), bytes(8)),
    "bytes": Codec(BYTES, lambda data: b64encode(data).decode(), b64decode, b""),
    "quantity": Codec(BYTES, _read_quantity, _write_quantity, _write_quantity("0")),
    "intOrString": Codec(BYTES, _read_int_or_string, _write_int_or_string, _write_int_or_string(0)),
    "time": Codec(BYTES, _read_time, _write_time, b""),
    "microTime": Codec(BYTES, _read_micro_time, _write_time, b""),
    "fieldsV1": Codec(BYTES, _read_json, _write_json, b""),
    "any": Codec(BYTES, _read_json, _write_json, b""),
}
"""Codecs by kind of schema.TypeRef, except "raw", which may contain an object in protobuf."""
