"""SPDY/3.1 frames, as far as the tunnel of kubectl port-forward needs them; no I/O.

A library does not exist on PyPI in a maintained form. There is no flow control: Kubernetes' client does not use it.
Source: the SPDY draft 3.1, sections 2.2, 2.6 and 2.6.10.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _HEADERS = 1, 2, 3, 6, 8
_FIN = 1
_CONTROL = 0x8003  # control bit and version
_MAX_FRAME_BYTES = 4 << 20
_MAX_HEADER_BYTES = 64 << 10
_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow "
    "authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie "
    "keep-alive origin"
)
_DICTIONARY = (
    b"".join(len(word).to_bytes(4, "big") + word.replace("_", " ").encode() for word in _WORDS.split())
    + b"100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authori"
    b"tative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not "
    b"Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug S"
    b"ept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,imag"
    b"e/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,"
    b"sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
"""Initial dictionary of header compression."""


class SpdyError(Exception):
    """The peer has broken the protocol."""


class StreamOpened(NamedTuple):
    stream: int
    headers: dict[str, str]
    is_last: bool


class StreamData(NamedTuple):
    stream: int
    data: bytes
    is_last: bool


class StreamReset(NamedTuple):
    stream: int


class Pinged(NamedTuple):
    frame: bytes


SpdyEvent = StreamOpened | StreamData | StreamReset | Pinged


class SpdyFrames:
    """Both directions of one session, whose streams the peer opens."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=_DICTIONARY)
        self._deflate = zlib.compressobj(zdict=_DICTIONARY)

    def receive(self, data: bytes) -> Iterator[SpdyEvent]:
        """Yield the events of all complete frames. Raises SpdyError."""
        self._buffer += data
        while len(self._buffer) >= 8:
            length = int.from_bytes(self._buffer[5:8], "big")
            if length > _MAX_FRAME_BYTES:
                raise SpdyError(f"a frame of {length} bytes is too large")
            if len(self._buffer) < 8 + length:
                return
            frame = bytes(self._buffer[: 8 + length])
            del self._buffer[: 8 + length]
            event = self._event(frame)
            if event is not None:
                yield event

    def _event(self, frame: bytes) -> SpdyEvent | None:
        is_last, content = bool(frame[4] & _FIN), frame[8:]
        if not frame[0] & 0x80:
            return StreamData(int.from_bytes(frame[:4], "big"), content, is_last)
        if int.from_bytes(frame[:2], "big") != _CONTROL:
            raise SpdyError("another version of SPDY")
        kind = int.from_bytes(frame[2:4], "big")
        if kind in (_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _HEADERS) and len(content) < 4:
            raise SpdyError("a frame is too short")
        stream = int.from_bytes(content[:4], "big") & 0x7FFF_FFFF
        if kind == _SYN_STREAM:
            return StreamOpened(stream, self._read_headers(content[10:]), is_last)
        if kind in (_SYN_REPLY, _HEADERS):  # keeps the state of the compression
            self._read_headers(content[4:])
        elif kind == _RST_STREAM:
            return StreamReset(stream)
        elif kind == _PING:
            return Pinged(frame)
        return None

    def _read_headers(self, block: bytes) -> dict[str, str]:
        try:
            text = self._inflate.decompress(block, _MAX_HEADER_BYTES)
        except zlib.error as error:
            raise SpdyError(f"headers cannot be decompressed: {error}") from error
        if self._inflate.unconsumed_tail:
            raise SpdyError("headers are too large")
        values: list[str] = []
        position = 4
        while position + 4 <= len(text):
            end = position + 4 + int.from_bytes(text[position : position + 4], "big")
            values.append(text[position + 4 : end].decode("latin-1"))
            position = end
        return dict(zip(values[::2], values[1::2], strict=False))

    def reply(self, stream: int) -> bytes:
        """Return the frame that accepts a stream."""
        block = self._deflate.compress(bytes(4)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _control(_SYN_REPLY, stream.to_bytes(4, "big") + block)

    @staticmethod
    def data(stream: int, data: bytes, *, is_last: bool = False) -> bytes:
        return stream.to_bytes(4, "big") + bytes([_FIN if is_last else 0]) + len(data).to_bytes(3, "big") + data


def _control(kind: int, content: bytes) -> bytes:
    return (_CONTROL << 16 | kind).to_bytes(4, "big") + bytes(1) + len(content).to_bytes(3, "big") + content
