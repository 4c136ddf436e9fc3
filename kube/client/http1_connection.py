"""HTTP/1.1 connection: an asyncio Protocol around httptools' parser. One exchange at a time, no pipelining.

Imports httptools, `exchange`, `transport` and `shared_buffer`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from functools import partial
from typing import cast

import httptools

from kubeloop.kube.client.exchange import BODILESS, Exchange, LazyHeaders
from kubeloop.kube.client.transport import TransportError, join_headers
from kubeloop.kube.shared_buffer import SharedBufferProtocol

# Buffered bytes of a stream at which reading pauses and resumes.
_HIGH_WATER_BYTES = 8 << 20
_LOW_WATER_BYTES = 2 << 20


class Http1Connection(Exchange, SharedBufferProtocol):
    """One connection, and its current exchange.

    idle --begin--> waiting for the response's head --> reading its body --> done: idle again, or closed
    """

    _parser: httptools.HttpResponseParser  # while connected, because it refers to this object

    def __init__(
        self, loop: asyncio.AbstractEventLoop, headers: list[str], open_: set[Exchange], buffer: memoryview
    ) -> None:
        """`headers`: lines of every request. `open_` contains this connection while it is open."""
        Exchange.__init__(self, loop)
        SharedBufferProtocol.__init__(self, buffer)
        self._common_headers = headers
        self._open = open_
        self.transport: asyncio.Transport | None = None  # None: not yet connected, or closed
        self.idle_since = 0.0  # loop time
        self._done = True
        self._method = ""
        self._headers: list[tuple[bytes, bytes]] = []
        self._has_length = False  # the response's end is known from its headers
        self._reusable = False
        self._buffered = 0
        self._paused = False

    def begin(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, streaming: bool
    ) -> Http1Connection:
        """Send a request. Raises ValueError for a line break in its target or headers."""
        assert self.transport is not None
        assert self._done
        request = self._encoded(method, target, headers, body)
        self._method, self._streaming = method, streaming
        self._status, self._headers = 0, []
        self._has_length = self._head_done = self._done = self._reusable = self.receiving = False
        self._chunks.clear()
        self._buffered = 0
        self.transport.write(request)
        return self

    def _encoded(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
        lines = [f"{method} {target} HTTP/1.1", *self._common_headers]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body or method not in BODILESS:
            lines.append(f"content-length: {len(body)}")
        head = "\r\n".join(lines)
        # Values must not add header lines.
        if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
            raise ValueError(f"line break in {method} {target!r} or its headers")
        return b"%b\r\n\r\n%b" % (head.encode("latin-1", "strict"), body)

    @property
    def reusable(self) -> bool:
        """True if another request can use this connection."""
        return self._done and self._reusable and self.transport is not None and not self.transport.is_closing()

    def abort(self) -> None:
        """Close immediately, also during an exchange."""
        if self.transport is not None:
            self.transport.abort()

    def _response_headers(self) -> Mapping[str, str]:
        return LazyHeaders(partial(_decoded_headers, self._headers))

    def _consumed(self, size: int) -> None:
        self._buffered -= size
        if self._paused and self._buffered < _LOW_WATER_BYTES and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()

    # --- asyncio.BufferedProtocol ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.transport = cast("asyncio.Transport", transport)
        self._open.add(self)

    def data_received(self, data: bytes | memoryview) -> None:
        if self._done:  # data without a request: a server may send a response before it closes an idle connection
            self._reusable = False
            self.abort()
            return
        self.receiving = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(TransportError(f"the response is not HTTP: {error}", request_sent=True))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        del self._parser
        self.deadline = math.inf
        self._open.discard(self)
        if self._done:
            return
        if self._head_done and not self._has_length and exc is None:
            self._finish(reusable=False)  # the response ends with the connection
        else:
            problem = "the connection was lost before the response was complete" + (f": {exc}" if exc else "")
            self._fail(TransportError(problem, request_sent=True))

    # --- httptools -------------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))
        if len(name) in {14, 17} and name.lower() in {b"content-length", b"transfer-encoding"}:
            self._has_length = True

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # 100 Continue, 103 Early Hints: the final response follows
            self._headers, self._has_length = [], False
            return
        self._status = status
        self._head_done = True
        if self._method == "HEAD" or status in {204, 304}:
            self._has_length = True
            if self._method == "HEAD":
                self._finish(reusable=False)  # the parser would wait for a body
                self.abort()
        if self._streaming:
            self._wake()

    def on_body(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        if self._streaming:
            self._buffered += len(chunk)
            if self._buffered > _HIGH_WATER_BYTES and not self._paused and self.transport is not None:
                self._paused = True
                self.transport.pause_reading()
            self._wake()

    def on_message_complete(self) -> None:
        if self._head_done and not self._done:
            self._finish(reusable=self._parser.should_keep_alive())

    def _finish(self, *, reusable: bool) -> None:
        self._done, self._reusable, self.used = True, reusable and not self._paused, True
        self._wake()


def _decoded_headers(raw: list[tuple[bytes, bytes]]) -> dict[str, str]:
    return join_headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in raw)
