"""Transport over our own HTTP/1.1 connections: an asyncio Protocol around httptools' parser.

Limited to what a Kubernetes client needs: one request at a time per connection (no pipelining), a pool of keep-alive
connections, responses with a length, chunked, or ended by closing, plain or TLS. No redirects, cookies, compression or
proxies; `aiohttp_transport` supports proxies. docs/decisions.md has the reasons and figures.

There are at most as many connections as concurrent requests, which the client's lanes limit. Few are opened at the same
time, so that most requests of a burst find one that another request has released. Imports httptools, `endpoint` and
`transport`.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import httptools

from kubeloop.kube.client.endpoint import Endpoint
from kubeloop.kube.client.transport import HttpResponse, StreamedResponse, TransportError

_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})
# A server may close a connection that has been idle for long just when the next request is sent. Requests that must not
# be sent twice only use connections that were in use recently.
_FRESH_SECONDS = 5.0
_IDLE_SECONDS = 60.0
_CONNECT_SECONDS = 10.0
_CONCURRENT_CONNECTS = 8
_RESPONSE_SECONDS = 30.0  # until the start of a streamed response
# Buffered bytes of a stream at which reading pauses and resumes.
_HIGH_WATER_BYTES = 8 << 20
_LOW_WATER_BYTES = 2 << 20


class _Headers(Mapping[str, str]):
    """Headers of a response, decoded on first access: most responses need none of them."""

    __slots__ = ("_decoded", "_raw")

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self._raw = raw
        self._decoded: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        if self._decoded is None:
            self._decoded = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._raw}
        return self._decoded

    def __getitem__(self, name: str) -> str:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return repr(self._all())


class _Connection(asyncio.Protocol):
    """One connection, and its current exchange.

    idle --begin--> waiting for the response's head --> reading its body --> done: idle again, or closed
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, open_: set[_Connection]) -> None:
        """`open_`: all connections of the pool; contains this one while it is open."""
        self.loop = loop  # asyncio.get_running_loop() would make a system call for each request
        self._open = open_
        self._parser = httptools.HttpResponseParser(self)
        self.transport: asyncio.Transport | None = None  # None: not yet connected, or closed
        self.used = False  # has completed an exchange
        self.idle_since = 0.0  # loop time
        self.receiving = False  # bytes of the current response have arrived
        self.deadline = math.inf  # loop time at which the current exchange times out
        self.timed_out = False
        self._method = ""
        self._streaming = False
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._has_length = False  # the response's end is known from its headers
        self._head_done = False
        self._done = True
        self._reusable = False
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._failure: TransportError | None = None

    # --- the exchange ----------------------------------------------------------------------------------------------

    def begin(self, method: str, request: bytes, *, streaming: bool) -> None:
        """Send a request. Wait for its response with response() or head()."""
        assert self.transport is not None
        assert self._done
        self._method, self._streaming = method, streaming
        self._status, self._headers = 0, []
        self._has_length = self._head_done = self._done = self._reusable = self.receiving = False
        self._chunks.clear()
        self._buffered = 0
        self.transport.write(request)

    async def response(self) -> HttpResponse:
        """Return the whole response."""
        while not self._done:
            await self._wait()
        self.deadline = math.inf
        chunks = self._chunks
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        return HttpResponse(self._status, body, _Headers(self._headers))

    async def head(self) -> tuple[int, Mapping[str, str]]:
        """Return status and headers of a streamed response."""
        while not self._head_done:
            await self._wait()
        self.deadline = math.inf
        return self._status, _Headers(self._headers)

    def __aiter__(self) -> _Connection:
        return self

    async def __anext__(self) -> bytes:
        """Return the next chunk of a streamed response's body."""
        while not self._chunks:
            if self._done:
                raise StopAsyncIteration
            await self._wait()
        chunk = self._chunks.popleft()
        self._buffered -= len(chunk)
        if self._paused and self._buffered < _LOW_WATER_BYTES and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()
        return chunk

    async def _wait(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = self.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    @property
    def reusable(self) -> bool:
        """True if another request can use this connection."""
        return self._done and self._reusable and self.transport is not None and not self.transport.is_closing()

    def abort(self) -> None:
        """Close immediately, also during an exchange."""
        if self.transport is not None:
            self.transport.abort()

    def time_out(self) -> None:
        """Fail the exchange: its deadline has passed."""
        self.deadline, self.timed_out = math.inf, True
        self._fail("timed out waiting for the response")
        self.abort()

    def _fail(self, problem: str) -> None:
        if self._failure is None:
            self._failure = TransportError(problem, request_sent=True)
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # --- asyncio.Protocol ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._open.add(self)

    def data_received(self, data: bytes) -> None:
        if self._done:  # data without a request: a server may send a response before it closes an idle connection
            self._reusable = False
            self.abort()
            return
        self.receiving = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the response is not HTTP: {error}")
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._open.discard(self)
        if self._done:
            return
        if self._head_done and not self._has_length and exc is None:
            self._finish(reusable=False)  # the response ends with the connection
        else:
            self._fail("the connection was lost before the response was complete" + (f": {exc}" if exc else ""))

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


class _Deadlines:
    """Time-outs of exchanges. One timer for all connections: a timer per request would add a quarter to the cost of a
    request."""

    def __init__(self, connections: set[_Connection]) -> None:
        self._connections = connections
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf  # loop time of the timer; never after the earliest deadline

    def set(self, connection: _Connection, seconds: float) -> None:
        """Set the time limit of the exchange that starts now on this connection."""
        connection.deadline = connection.loop.time() + seconds
        if connection.deadline < self._due:
            self._set_timer(connection.loop, connection.deadline)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._due = None, math.inf

    def _set_timer(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self.cancel()
        if due < math.inf:
            self._timer, self._due = loop.call_at(due, self._expire), due

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        now = max(loop.time(), self._due)  # a timer may fire slightly early
        for connection in [connection for connection in self._connections if connection.deadline <= now]:
            connection.time_out()
        self._set_timer(loop, min((connection.deadline for connection in self._connections), default=math.inf))


class AsyncioTransport:
    """A Transport to one endpoint. Use it inside one loop, and close it."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Raises ValueError for an endpoint behind a proxy: AiohttpTransport's."""
        if endpoint.proxy:
            raise ValueError("AsyncioTransport does not speak to proxies")
        self._endpoint = endpoint
        own = (f"{name}: {value}".encode().decode("latin-1") for name, value in endpoint.headers)
        self._own_headers = [f"host: {endpoint.authority}", *own]
        self._idle: list[_Connection] = []  # the most recently used at the end
        self._open: set[_Connection] = set()
        self._connects = asyncio.Semaphore(_CONCURRENT_CONNECTS)
        self._deadlines = _Deadlines(self._open)

    @property
    def server(self) -> str:
        return self._endpoint.url

    async def request(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
        timeout_seconds: float | None = None,
    ) -> HttpResponse:
        """Send one request and read the whole response, whatever its status. Raises TransportError.

        Cancellation: safe; the connection is closed, and the server may have seen the request.
        """
        data = self._encoded(method, target, headers, body)
        while True:
            connection = await self._connection(method, timeout_seconds)
            try:
                connection.begin(method, data, streaming=False)
                if timeout_seconds is not None:
                    self._deadlines.set(connection, timeout_seconds)
                response = await connection.response()
            except TransportError as error:
                if self._was_stale(connection, method):
                    continue
                raise TransportError(f"{self._endpoint.url}: {error}", request_sent=True) from error
            finally:
                self._release(connection)
            return response

    @asynccontextmanager
    async def stream(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[StreamedResponse]:
        """Send one request and stream its response; leaving the context closes it. Raises TransportError."""
        data = self._encoded(method, target, headers, body)
        while True:
            connection = await self._connection(method, None)
            try:
                connection.begin(method, data, streaming=True)
                self._deadlines.set(connection, _RESPONSE_SECONDS)
                try:
                    status, response_headers = await connection.head()
                except TransportError as error:
                    if self._was_stale(connection, method):
                        continue
                    raise TransportError(f"{self._endpoint.url}: {error}", request_sent=True) from error
                yield StreamedResponse(status, response_headers, connection)
                return
            finally:
                self._release(connection)

    async def close(self) -> None:
        for connection in list(self._open):
            connection.abort()
        self._idle.clear()
        self._deadlines.cancel()
        await asyncio.sleep(0)  # the loop closes the sockets in its next iteration

    def close_idle_connections(self) -> None:
        """Close idle connections, so that the next request opens a new one."""
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    # --- connections -----------------------------------------------------------------------------------------------

    async def _connection(self, method: str, timeout_seconds: float | None) -> _Connection:
        """Return a connection, from the pool or new. Raises TransportError (request not sent)."""
        connection = self._idle_connection(method)
        if connection is not None:
            return connection
        limit_seconds = min(_CONNECT_SECONDS, timeout_seconds or _CONNECT_SECONDS)
        try:
            # A TLS handshake costs as much as several requests: meanwhile, one of these may release its connection.
            async with asyncio.timeout(limit_seconds), self._connects:
                return self._idle_connection(method) or await self._connect()
        except TimeoutError as error:
            raise TransportError(f"{self._endpoint.url}: connection timed out", request_sent=False) from error
        except (OSError, UnicodeError) as error:  # UnicodeError: the host is not a valid name
            raise TransportError(f"{self._endpoint.url}: {error}", request_sent=False) from error

    def _idle_connection(self, method: str) -> _Connection | None:
        idle = self._idle
        if not idle:
            return None
        now = idle[-1].loop.time()
        oldest = now - (_IDLE_SECONDS if method in _REPEATABLE else _FRESH_SECONDS)
        while idle and idle[0].idle_since < now - _IDLE_SECONDS:
            idle.pop(0).abort()
        if idle and idle[-1].idle_since >= oldest:
            while idle:
                connection = idle.pop()
                if connection.reusable:
                    return connection
        return None

    async def _connect(self) -> _Connection:
        endpoint, loop = self._endpoint, asyncio.get_running_loop()
        transport, connection = await loop.create_connection(
            lambda: _Connection(loop, self._open),
            endpoint.host,
            endpoint.port,
            ssl=endpoint.tls,
            server_hostname=(endpoint.tls_name or endpoint.host) if endpoint.tls else None,
        )
        _detect_dead_peers(transport)
        return connection

    def _release(self, connection: _Connection) -> None:
        """Return a connection to the pool after an exchange, or close it."""
        if connection.reusable:
            connection.idle_since = connection.loop.time()
            self._idle.append(connection)
        else:
            connection.abort()

    @staticmethod
    def _was_stale(connection: _Connection, method: str) -> bool:
        """Return True if the server closed a keep-alive connection before it saw this request."""
        return method in _REPEATABLE and connection.used and not connection.receiving and not connection.timed_out

    def _encoded(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
        lines = [f"{method} {self._endpoint.path_prefix}{target} HTTP/1.1", *self._own_headers]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body or method not in _REPEATABLE:
            lines.append(f"content-length: {len(body)}")
        head = "\r\n".join(lines)
        # Values must not add header lines.
        if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
            raise ValueError(f"line break in {method} {target!r} or its headers")
        return b"%b\r\n\r\n%b" % (head.encode("latin-1", "strict"), body)


def _detect_dead_peers(transport: asyncio.Transport) -> None:
    """Let the kernel close connections whose peer vanished; otherwise a watch would wait forever."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # Linux
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)  # milliseconds, for unacknowledged data
