"""Transport over our own HTTP/1.1 connections: an asyncio Protocol around httptools' parser.

It does what a Kubernetes client needs and no more: one request at a time per connection (never pipelined), kept-alive
connections in a pool, answers with a length, chunked, or ended by closing, plain or TLS. No redirects, cookies,
compression or proxies; `aiohttp_transport` has proxies. Why it exists: docs/decisions.md, with figures.

As many connections are opened as there are requests under way (the client's lanes limit those).
May import httptools, `endpoint` and `transport`.
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
from kubeloop.kube.client.transport import Response, StreamedResponse, TransportError

_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})
# A server closes a connection that was idle for long, maybe in the very moment of our next request. Requests that must
# not be sent twice only take connections that were in use just now.
_FRESH_SECONDS = 5.0
_IDLE_SECONDS = 60.0
# Buffered bytes of a stream at which reading pauses, and at which it goes on.
_HIGH_WATER_BYTES = 8 << 20
_LOW_WATER_BYTES = 2 << 20


class _Headers(Mapping[str, str]):
    """Headers of an answer, decoded when somebody asks: for most answers nobody does."""

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
    """One connection, and the exchange it is busy with.

    idle --begin--> waiting for the answer's head --> reading its body --> done: idle again, or closed
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, open_: set[_Connection]) -> None:
        """`open_`: all connections of the pool; this one is in it while it is open."""
        self._loop = loop
        self._open = open_
        self._parser = httptools.HttpResponseParser(self)
        self.transport: asyncio.Transport | None = None  # None: not yet, or no more
        self.used = False  # has answered at least once
        self.idle_since = 0.0  # loop time
        self.answering = False  # bytes of the present answer have arrived
        self.deadline = math.inf  # loop time at which the present exchange has taken too long
        self.timed_out = False
        self._method = ""
        self._streaming = False
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._framed = False  # the answer says where it ends
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
        """Send a request. Wait for what comes with answer() or head()."""
        assert self.transport is not None
        assert self._done
        self._method, self._streaming = method, streaming
        self._status, self._headers = 0, []
        self._framed = self._head_done = self._done = self._reusable = self.answering = False
        self._chunks.clear()
        self._buffered = 0
        self.transport.write(request)

    async def answer(self) -> Response:
        """The whole answer."""
        while not self._done:
            await self._wait()
        self.deadline = math.inf
        chunks = self._chunks
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        return Response(self._status, body, _Headers(self._headers))

    async def head(self) -> tuple[int, Mapping[str, str]]:
        """Status and headers of a streamed answer."""
        while not self._head_done:
            await self._wait()
        self.deadline = math.inf
        return self._status, _Headers(self._headers)

    def __aiter__(self) -> _Connection:
        return self

    async def __anext__(self) -> bytes:
        """The next piece of a streamed answer's body."""
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
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    @property
    def reusable(self) -> bool:
        """Whether the next request can take this connection."""
        return self._done and self._reusable and self.transport is not None and not self.transport.is_closing()

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        if self.transport is not None:
            self.transport.abort()

    def time_out(self) -> None:
        """End the exchange: its deadline has passed."""
        self.deadline, self.timed_out = math.inf, True
        self._fail("no answer in time")
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
        if self._done:  # nobody asked: a server that gives up an idle connection may say so
            self._reusable = False
            self.abort()
            return
        self.answering = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the answer is not HTTP: {error}")
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._open.discard(self)
        if self._done:
            return
        if self._head_done and not self._framed and exc is None:
            self._finish(reusable=False)  # its end is that of the connection
        else:
            self._fail("the connection was lost before the whole answer came" + (f": {exc}" if exc else ""))

    # --- httptools -------------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))
        if len(name) in {14, 17} and name.lower() in {b"content-length", b"transfer-encoding"}:
            self._framed = True

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # 100 Continue, 103 Early Hints: the answer proper follows
            self._headers, self._framed = [], False
            return
        self._status = status
        self._head_done = True
        if self._method == "HEAD" or status in {204, 304}:
            self._framed = True
            if self._method == "HEAD":
                self._finish(reusable=False)  # the parser waits for a body that does not come
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
    """Ends exchanges that take too long. One timer for all connections: a timer per request would cost as much as a
    quarter of the request."""

    def __init__(self, connections: set[_Connection]) -> None:
        self._connections = connections
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf  # loop time of the timer; never after the earliest deadline

    def set(self, connection: _Connection, seconds: float) -> None:
        """The exchange that begins now on this connection may take so long."""
        loop = asyncio.get_running_loop()
        connection.deadline = loop.time() + seconds
        if connection.deadline < self._due:
            self._set_timer(loop, connection.deadline)

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
        now = max(loop.time(), self._due)  # a timer may come a tick early
        for connection in [each for each in self._connections if each.deadline <= now]:
            connection.time_out()
        self._set_timer(loop, min((each.deadline for each in self._connections), default=math.inf))


class AsyncioTransport:
    """A Transport to one endpoint. To be used inside one loop, and closed."""

    def __init__(self, endpoint: Endpoint, *, connect_seconds: float = 10.0, answer_seconds: float = 30.0) -> None:
        """`connect_seconds`: time to get a connection. `answer_seconds`: time until a stream's answer begins.

        Raises ValueError for an endpoint behind a proxy: AiohttpTransport's.
        """
        if endpoint.proxy:
            raise ValueError("AsyncioTransport does not speak to proxies")
        self._endpoint = endpoint
        own = (f"{name}: {value}".encode().decode("latin-1") for name, value in endpoint.headers)
        self._own_headers = [f"host: {endpoint.authority}", *own]
        self._connect_seconds = connect_seconds
        self._answer_seconds = answer_seconds
        self._idle: list[_Connection] = []  # the one used last at the end
        self._open: set[_Connection] = set()
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
    ) -> Response:
        """Send one request and read the whole answer, whatever its status. Raises TransportError.

        Cancellation: safe; the connection is closed, and the server may have seen the request.
        """
        data = self._encoded(method, target, headers, body)
        while True:
            connection = await self._connection(method, timeout_seconds)
            try:
                connection.begin(method, data, streaming=False)
                if timeout_seconds is not None:
                    self._deadlines.set(connection, timeout_seconds)
                answer = await connection.answer()
            except TransportError as error:
                if self._was_stale(connection, method):
                    continue
                raise TransportError(f"{self._endpoint.url}: {error}", request_sent=True) from error
            finally:
                self._give_back(connection)
            return answer

    @asynccontextmanager
    async def stream(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[StreamedResponse]:
        """Send one request and read its answer as it comes; leaving the context closes it. Raises TransportError."""
        data = self._encoded(method, target, headers, body)
        while True:
            connection = await self._connection(method, None)
            try:
                connection.begin(method, data, streaming=True)
                self._deadlines.set(connection, self._answer_seconds)
                try:
                    status, answer_headers = await connection.head()
                except TransportError as error:
                    if self._was_stale(connection, method):
                        continue
                    raise TransportError(f"{self._endpoint.url}: {error}", request_sent=True) from error
                yield StreamedResponse(status, answer_headers, connection)
                return
            finally:
                self._give_back(connection)

    async def close(self) -> None:
        for connection in list(self._open):
            connection.abort()
        self._idle.clear()
        self._deadlines.cancel()
        await asyncio.sleep(0)  # the loop closes the sockets in its next round

    def close_idle_connections(self) -> None:
        """Close connections that are not in use, so that the next request makes a new one."""
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    # --- connections -----------------------------------------------------------------------------------------------

    async def _connection(self, method: str, timeout_seconds: float | None) -> _Connection:
        """One that is ready: kept alive, or new. Raises TransportError (not sent)."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        oldest = now - (_IDLE_SECONDS if method in _REPEATABLE else _FRESH_SECONDS)
        idle = self._idle
        while idle and idle[0].idle_since < now - _IDLE_SECONDS:
            idle.pop(0).abort()
        if idle and idle[-1].idle_since >= oldest:
            while idle:
                connection = idle.pop()
                if connection.reusable:
                    return connection
        return await self._connect(loop, timeout_seconds)

    async def _connect(self, loop: asyncio.AbstractEventLoop, timeout_seconds: float | None) -> _Connection:
        endpoint = self._endpoint
        limit_seconds = min(self._connect_seconds, timeout_seconds or self._connect_seconds)
        try:
            async with asyncio.timeout(limit_seconds):
                transport, connection = await loop.create_connection(
                    lambda: _Connection(loop, self._open),
                    endpoint.host,
                    endpoint.port,
                    ssl=endpoint.tls,
                    server_hostname=(endpoint.tls_name or endpoint.host) if endpoint.tls else None,
                )
        except TimeoutError as error:
            raise TransportError(f"{endpoint.url}: no connection in time", request_sent=False) from error
        except (OSError, UnicodeError) as error:  # a UnicodeError is of a host that cannot be a name
            raise TransportError(f"{endpoint.url}: {error}", request_sent=False) from error
        _detect_dead_peers(transport)
        return connection

    def _give_back(self, connection: _Connection) -> None:
        """After an exchange: keep the connection if the next request can use it."""
        if connection.reusable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.abort()

    @staticmethod
    def _was_stale(connection: _Connection, method: str) -> bool:
        """Whether a kept-alive connection was closed on the server's side before it saw this request."""
        return method in _REPEATABLE and connection.used and not connection.answering and not connection.timed_out

    def _encoded(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
        lines = [f"{method} {self._endpoint.path_prefix}{target} HTTP/1.1", *self._own_headers]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body or method not in _REPEATABLE:
            lines.append(f"content-length: {len(body)}")
        head = "\r\n".join(lines)
        # Neither a name nor a header may smuggle in lines of its own.
        if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
            raise ValueError(f"line break in {method} {target!r} or its headers")
        return b"%b\r\n\r\n%b" % (head.encode("latin-1", "strict"), body)


def _detect_dead_peers(transport: asyncio.Transport) -> None:
    """Have the kernel end connections whose peer vanished without a word; a watch would otherwise wait forever."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # Linux
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)  # milliseconds, for what we wrote
