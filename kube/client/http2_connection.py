"""HTTP/2 connection (RFC 9113): an asyncio Protocol for any number of concurrent exchanges, one stream each.

Limited to what a client of an API server needs: no server push, no priorities, no compression of request headers. The
settings sent forbid the server a dynamic table, so each header block (RFC 7541) can be decoded on its own; of most
responses only the status is. The requests of one turn of the event loop are sent together, which saves most of the TLS
records and system calls that a connection per request needs.

Imports hpack (when headers are read), `exchange`, `transport` and `shared_buffer`.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import cast

from kubeloop.kube.client.exchange import BODILESS, Exchange, LazyHeaders
from kubeloop.kube.client.transport import TransportError, join_headers
from kubeloop.kube.shared_buffer import SharedBufferProtocol

# Frame types, flags, settings and error codes.
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PUSH_PROMISE, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = (
    0, 1, 3, 4, 5, 6, 7, 8, 9,
)  # fmt: skip
_END_STREAM = _ACK = 0x1
_END_HEADERS, _PADDED, _PRIORITY = 0x4, 0x8, 0x20
_HEADER_TABLE_SIZE, _ENABLE_PUSH, _MAX_CONCURRENT_STREAMS, _INITIAL_WINDOW_SIZE, _MAX_FRAME_SIZE = 1, 2, 3, 4, 5
_REFUSED_STREAM, _CANCEL = 7, 8

_FRAME_HEAD = struct.Struct(">HBBBL")  # length (high and low bits), type, flags, stream
_SETTING = struct.Struct(">HL")
_UINT32 = struct.Struct(">L")
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_BYTES = 16_384  # of a frame's content that we accept: the default
_DEFAULT_WINDOW_BYTES = 65_535
_MAX_INT31 = 2**31 - 1
# Bytes of a response that may arrive before its reader takes them. The connection itself has no limit in practice.
_STREAM_WINDOW_BYTES = 8 << 20
_WINDOW_UPDATE_BYTES = 2 << 20  # received or read since the last update
_DEFAULT_STREAMS = 100  # assumed until the server's settings arrive, as in Go's client

_STATUS_OF_INDEX = {0x88: 200, 0x89: 204, 0x8A: 206, 0x8B: 304, 0x8C: 400, 0x8D: 404, 0x8E: 500}
_METHOD_OF_INDEX = {"GET": b"\x82", "POST": b"\x83"}
_LENGTH_BYTES = [bytes([length]) for length in range(127)]


class ProtocolError(Exception):
    """The server violates the protocol."""


def _frame(type_: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    size = len(content)
    return _FRAME_HEAD.pack(size >> 8, size & 0xFF, type_, flags, stream) + content


class Http2Exchange(Exchange):
    """One exchange: a stream of the connection."""

    def __init__(self, connection: Http2Connection, number: int, *, streaming: bool) -> None:
        super().__init__(connection.loop)
        self.connection = connection
        self.number = number
        self.used = connection.used
        self._began_at = connection.loop.time()
        self.unsent = b""  # rest of the request's body, which waits for the server's window
        self.send_window = 0
        self._streaming = streaming
        self._block = b""  # header block of the response
        self._to_acknowledge = 0  # bytes received, or taken by the reader, since the last update of the window

    def time_out(self) -> None:
        """Fail the exchange, and all of the connection if nothing has arrived on it meanwhile."""
        super().time_out()
        if self.connection.received_at <= self._began_at:
            self.connection.abort()

    def abort(self) -> None:
        self.connection.cancel(self)

    def received_head(self, block: bytes) -> None:
        self.receiving = True
        if self._head_done:
            return  # trailers
        status = status_of(block)
        if status < 200:  # 100 Continue, 103 Early Hints: the final response follows
            return
        self._status, self._block = status, block
        self._head_done = True
        if self._streaming:
            self._wake()

    def received_data(self, data: bytes) -> int:
        """Add data of the body. Returns the bytes by which the server's window can be extended now."""
        if not self._head_done:
            raise ProtocolError("data before headers")
        self._chunks.append(data)
        if self._streaming:
            self._wake()
            return 0
        return self._acknowledge(len(data))

    def received_end(self) -> None:
        if not self._head_done:
            raise ProtocolError("response without headers")
        self._done = True
        self._wake()

    def failed(self, error: TransportError) -> None:
        self._fail(error)

    def _acknowledge(self, size: int) -> int:
        self._to_acknowledge += size
        if self._to_acknowledge < _WINDOW_UPDATE_BYTES:
            return 0
        acknowledged, self._to_acknowledge = self._to_acknowledge, 0
        return acknowledged

    def _response_headers(self) -> Mapping[str, str]:
        return LazyHeaders(partial(_decoded_headers, self._block))

    def _consumed(self, size: int) -> None:
        acknowledged = self._acknowledge(size)
        if acknowledged and not self._done:
            self.connection.extend_window(self.number, acknowledged)


class Http2Connection(SharedBufferProtocol):
    """One connection, and its exchanges by the number of their stream.

    begin() may be called while `available`. After GOAWAY or retire(), the connection closes with its last exchange.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, authority: str, headers: list[tuple[str, str]], buffer: memoryview
    ) -> None:
        """`headers`: those of every request; names may occur more than once."""
        super().__init__(buffer)
        self.loop = loop
        self.transport: asyncio.Transport | None = None  # None: not yet connected, or closed
        self.used = False  # has received anything
        self.received_at = 0.0  # loop time
        self._exchanges: dict[int, Http2Exchange] = {}
        self.retired = False  # begins no more exchanges
        self._next_number = 1
        self._max_streams = _DEFAULT_STREAMS
        self._max_frame_bytes = _FRAME_BYTES
        self._initial_window = self._send_window = _DEFAULT_WINDOW_BYTES
        self._blocked: deque[Http2Exchange] = deque()  # whose body waits for the server's window, oldest first
        self._to_acknowledge = 0  # bytes received since the last update of the connection's window
        self._unsent: list[bytes] = []
        self._rest = b""  # start of a frame
        self._header_block: tuple[int, int, list[bytes]] | None = None  # stream, flags and parts so far
        self._encoded: dict[str, tuple[str, bytes]] = {}  # by name: the last value, and the encoded header
        common = [_field(1, authority), *(_literal(name.lower(), value) for name, value in headers)]
        self._common_headers = b"".join(common)

    @property
    def available(self) -> bool:
        """True if another exchange can begin now."""
        return (
            len(self._exchanges) < self._max_streams
            and not self.retired
            and self.transport is not None
            and not self.transport.is_closing()
        )

    def begin(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, streaming: bool
    ) -> Http2Exchange:
        """Send a request. Raises ValueError for a line break in its target or headers."""
        block = self._request_block(method, target, headers, body)
        number = self._next_number
        self._next_number += 2
        if self._next_number > _MAX_INT31:
            self.retired = True  # no stream numbers are left
        exchange = self._exchanges[number] = Http2Exchange(self, number, streaming=streaming)
        exchange.send_window = self._initial_window
        size = len(body)
        if len(block) > _FRAME_BYTES:
            self._send_long_block(number, block, end_stream=not body)
        else:
            self._send(_frame(_HEADERS, _END_HEADERS if body else _END_HEADERS | _END_STREAM, number, block))
        if size:
            if not self._blocked and size <= min(self._send_window, self._initial_window, self._max_frame_bytes):
                self._send_window -= size
                self._send(_frame(_DATA, _END_STREAM, number, body))
            else:
                exchange.unsent = body
                self._blocked.append(exchange)
                self._send_blocked()
        return exchange

    def cancel(self, exchange: Http2Exchange) -> None:
        """End an exchange that is not complete."""
        if self._exchanges.pop(exchange.number, None) is None:
            return
        if exchange in self._blocked:
            self._blocked.remove(exchange)
        self._send(_frame(_RST_STREAM, 0, exchange.number, _UINT32.pack(_CANCEL)))
        self._close_if_unused()

    def extend_window(self, number: int, size: int) -> None:
        """Let the server send `size` more bytes on a stream; 0: on the connection."""
        self._send(_frame(_WINDOW_UPDATE, 0, number, _UINT32.pack(size)))

    def retire(self) -> None:
        """Begin no more exchanges; close after the last one."""
        self.retired = True
        self._close_if_unused()

    def abort(self) -> None:
        """Close immediately."""
        if self.transport is not None:
            self.transport.abort()

    # --- asyncio.BufferedProtocol ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        settings = {_HEADER_TABLE_SIZE: 0, _ENABLE_PUSH: 0, _INITIAL_WINDOW_SIZE: _STREAM_WINDOW_BYTES}
        self._send(_PREFACE + _frame(_SETTINGS, 0, 0, b"".join(_SETTING.pack(*item) for item in settings.items())))
        self.extend_window(0, _MAX_INT31 - _DEFAULT_WINDOW_BYTES)

    def data_received(self, data: bytes | memoryview) -> None:
        self.used = True
        self.received_at = self.loop.time()
        data = self._rest + data  # a copy
        position, end = 0, len(data)
        try:
            while end - position >= 9:
                high, low, type_, flags, number = _FRAME_HEAD.unpack_from(data, position)
                size = high << 8 | low
                number &= _MAX_INT31
                if size > _FRAME_BYTES:
                    raise ProtocolError(f"frame of {size} bytes")
                start = position + 9
                if end - start < size:
                    break
                position = start + size
                if type_ == _DATA:
                    self._received_data(number, flags, data[start:position])
                else:
                    self._received_frame(type_, flags, number, data[start:position])
        except (ProtocolError, IndexError, struct.error) as error:
            self._lost(f"the response is not HTTP/2: {error}")
            self.abort()
            return
        self._rest = data[position:] if position < end else b""

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._lost("the connection was lost before the response was complete" + (f": {exc}" if exc else ""))

    # --- received frames -------------------------------------------------------------------------------------------

    def _received_data(self, number: int, flags: int, content: bytes) -> None:
        self._to_acknowledge += len(content)  # with padding
        if self._to_acknowledge >= _WINDOW_UPDATE_BYTES:
            self.extend_window(0, self._to_acknowledge)
            self._to_acknowledge = 0
        exchange = self._exchanges.get(number)
        if exchange is None:
            return  # cancelled
        data = _without_padding(content, flags)
        if data:
            acknowledged = exchange.received_data(data)
            if acknowledged and not flags & _END_STREAM:
                self.extend_window(number, acknowledged)
        if flags & _END_STREAM:
            self._end(exchange)

    def _received_frame(self, type_: int, flags: int, number: int, content: bytes) -> None:
        if (self._header_block is None) == (type_ == _CONTINUATION):
            raise ProtocolError("header block is interrupted")
        if type_ == _HEADERS:
            content = _without_padding(content, flags)
            self._received_block(number, flags, [content[5:] if flags & _PRIORITY else content])
        elif type_ == _CONTINUATION:
            assert self._header_block is not None
            first, first_flags, parts = self._header_block
            if number != first or len(parts) > 64:
                raise ProtocolError("header block is interrupted or endless")
            self._received_block(number, first_flags & _END_STREAM | flags & _END_HEADERS, [*parts, content])
        elif type_ == _RST_STREAM:
            self._reset(number, _UINT32.unpack(content)[0])
        elif type_ == _SETTINGS:
            if not flags & _ACK:
                self._received_settings(content)
        elif type_ == _PING:
            if not flags & _ACK:
                self._send(_frame(_PING, _ACK, 0, content))
        elif type_ == _GOAWAY:
            self._received_goaway(_UINT32.unpack_from(content)[0] & _MAX_INT31)
        elif type_ == _WINDOW_UPDATE:
            self._extended(number, _UINT32.unpack(content)[0] & _MAX_INT31)
        elif type_ == _PUSH_PROMISE:
            raise ProtocolError("server push")

    def _received_block(self, number: int, flags: int, parts: list[bytes]) -> None:
        if not flags & _END_HEADERS:
            self._header_block = number, flags, parts
            return
        self._header_block = None
        exchange = self._exchanges.get(number)
        if exchange is not None:
            exchange.received_head(parts[0] if len(parts) == 1 else b"".join(parts))
            if flags & _END_STREAM:
                self._end(exchange)

    def _end(self, exchange: Http2Exchange) -> None:
        exchange.received_end()
        del self._exchanges[exchange.number]
        if exchange.unsent:  # the server responded before it had the whole request
            self._blocked.remove(exchange)
            self._send(_frame(_RST_STREAM, 0, exchange.number, _UINT32.pack(_CANCEL)))
        self._close_if_unused()

    def _reset(self, number: int, code: int) -> None:
        exchange = self._exchanges.pop(number, None)
        if exchange is None:
            return
        if exchange in self._blocked:
            self._blocked.remove(exchange)
        exchange.failed(TransportError(f"stream error {code}", request_sent=code != _REFUSED_STREAM))
        self._close_if_unused()

    def _received_settings(self, content: bytes) -> None:
        for setting, value in _SETTING.iter_unpack(content):
            if setting == _MAX_CONCURRENT_STREAMS:
                self._max_streams = value
            elif setting == _MAX_FRAME_SIZE:
                self._max_frame_bytes = value
            elif setting == _INITIAL_WINDOW_SIZE:
                for exchange in self._exchanges.values():
                    exchange.send_window += value - self._initial_window
                self._initial_window = value
        self._send(_frame(_SETTINGS, _ACK, 0))
        self._send_blocked()

    def _received_goaway(self, last_number: int) -> None:
        self.retired = True
        for exchange in [exchange for number, exchange in self._exchanges.items() if number > last_number]:
            del self._exchanges[exchange.number]
            if exchange in self._blocked:
                self._blocked.remove(exchange)
            exchange.failed(TransportError("the server closes the connection", request_sent=False))
        self._close_if_unused()

    def _extended(self, number: int, size: int) -> None:
        if number == 0:
            self._send_window += size
        elif number in self._exchanges:
            self._exchanges[number].send_window += size
        self._send_blocked()

    def _lost(self, problem: str) -> None:
        self.retired = True
        self._blocked.clear()
        exchanges = [*self._exchanges.values()]
        self._exchanges.clear()
        for exchange in exchanges:
            exchange.failed(TransportError(problem, request_sent=True))

    def _close_if_unused(self) -> None:
        if self.retired and not self._exchanges:
            self.abort()

    # --- sending ---------------------------------------------------------------------------------------------------

    def _send(self, frame: bytes) -> None:
        """Send a frame with all others of this turn of the event loop."""
        if not self._unsent:
            self.loop.call_soon(self._flush)
        self._unsent.append(frame)

    def _flush(self) -> None:
        frames, self._unsent = self._unsent, []
        if frames and self.transport is not None and not self.transport.is_closing():
            try:
                self.transport.write(b"".join(frames))
            except RuntimeError as error:  # of uvloop: the connection has just been closed
                self._lost(str(error))

    def _send_blocked(self) -> None:
        """Send as much of the waiting bodies as the server's windows allow."""
        still_blocked: deque[Http2Exchange] = deque()
        for exchange in self._blocked:
            while exchange.unsent:
                size = min(len(exchange.unsent), self._send_window, exchange.send_window, self._max_frame_bytes)
                if size <= 0:
                    still_blocked.append(exchange)
                    break
                part, exchange.unsent = exchange.unsent[:size], exchange.unsent[size:]
                self._send_window -= size
                exchange.send_window -= size
                self._send(_frame(_DATA, 0 if exchange.unsent else _END_STREAM, exchange.number, part))
        self._blocked = still_blocked

    def _send_long_block(self, number: int, block: bytes, *, end_stream: bool) -> None:
        type_, flags = _HEADERS, _END_STREAM if end_stream else 0
        while block:
            part, block = block[:_FRAME_BYTES], block[_FRAME_BYTES:]
            self._send(_frame(type_, flags if block else flags | _END_HEADERS, number, part))
            type_, flags = _CONTINUATION, 0

    def _request_block(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
        encoded = self._encoded
        parts = [_METHOD_OF_INDEX.get(method) or _field(2, method), b"\x87", _field(4, target), self._common_headers]
        for name, value in headers.items():
            cached = encoded.get(name)
            if cached is None or cached[0] != value:
                cached = encoded[name] = value, _literal(name.lower(), value)
            parts.append(cached[1])
        if body or method not in BODILESS:
            parts.append(b"\x0f\x0d" + _string(str(len(body))))  # content-length
        return b"".join(parts)


# --- header blocks -----------------------------------------------------------------------------------------------


def _string(text: str) -> bytes:
    """Encode a string. Raises ValueError if it has a line break."""
    if "\n" in text or "\r" in text or "\0" in text:
        raise ValueError(f"line break in {text!r}")
    data = text.encode("latin-1")
    size = len(data)
    if size < 127:
        return _LENGTH_BYTES[size] + data
    size -= 127
    length = bytearray(b"\x7f")
    while size >= 128:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes(length) + data


def _field(name_index: int, value: str) -> bytes:
    """Encode a header whose name is in the first 15 entries of the static table."""
    return bytes([name_index]) + _string(value)


def _literal(name: str, value: str) -> bytes:
    return b"\0" + _string(name) + _string(value)


def status_of(block: bytes) -> int:
    """Return the status of a response's header block. Raises ProtocolError, or IndexError if the block is cut off."""
    position = 0
    while block[position] & 0xE0 == 0x20:  # the dynamic table has size 0
        position += 1
    first = block[position]
    if first & 0x80:
        status = _STATUS_OF_INDEX.get(first)
        if status is None:
            raise ProtocolError("the first header is no status")
        return status
    return _literal_status(block[position : position + 2 + (block[position + 1] & 0x7F)])


@lru_cache(maxsize=64)
def _literal_status(field: bytes) -> int:
    text = _decoded_headers(field).get(":status", "")
    if len(text) != 3 or not text.isdecimal():
        raise ProtocolError("the first header is no status")
    return int(text)


def _decoded_headers(block: bytes) -> dict[str, str]:
    from hpack import Decoder, HPACKError  # few responses need it

    try:
        headers = Decoder().decode(block, raw=True)
    except HPACKError as error:
        raise ProtocolError(str(error)) from error
    return join_headers((bytes(name).decode("latin-1"), bytes(value).decode("latin-1")) for name, value in headers)


def _without_padding(content: bytes, flags: int) -> bytes:
    return content[1 : len(content) - content[0]] if flags & _PADDED else content
