"""Protocol buffers wire format: numbered fields that contain numbers or bytes. Independent of messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""


class ProtobufError(ValueError):
    """Not a valid object in protobuf form, with the error of Kubernetes' decoder.

    of: apiVersion and kind, if they could be read.
    """

    def __init__(self, text: str, of: tuple[str, str] = ("", "")) -> None:
        super().__init__(text)
        self.of = of


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned number and the position after it."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > 63:
            raise ProtobufError("proto: integer overflow")
    raise ProtobufError("unexpected EOF")


def wire_values(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield (field number, wire type, value) of a message: ints for varints, bytes for other types."""
    at, end = 0, len(data)
    while at < end:
        tag, at = read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        stop = skip(number, wire, data, at)
        if wire == VARINT:
            yield number, wire, read_varint(data, at)[0]
        else:
            yield number, wire, data[read_varint(data, at)[1] if wire == BYTES else at : stop]
        at = stop


def skip(number: int, wire: int, data: bytes, at: int) -> int:
    """Return the position after the value that starts at `at`. Raises ProtobufError."""
    if number <= 0:
        raise ProtobufError(f"proto: illegal tag {number} (wire type {wire})")
    if wire == VARINT:
        return read_varint(data, at)[1]
    if wire == BYTES:
        size, at = read_varint(data, at)
    elif wire == FIXED64:
        size = 8
    elif wire == FIXED32:
        size = 4
    else:
        raise ProtobufError(f"proto: illegal wireType {wire}")
    if at + size > len(data):
        raise ProtobufError("unexpected EOF")
    return at + size


def signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def write_varint(value: int) -> bytes:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, wire: int, value: Any) -> bytes:
    tag = write_varint(number << 3 | wire)
    return tag + (write_varint(value) if wire == VARINT else write_varint(len(value)) + value)
