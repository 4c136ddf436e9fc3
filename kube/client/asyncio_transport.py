"""Transport over our own connections: HTTP/2 if the server selects it in the TLS handshake (ALPN), else HTTP/1.1.

Limited to what a Kubernetes client needs: no redirects, cookies, compression or proxies; `aiohttp_transport` supports
proxies. docs/decisions.md has the reasons and figures.

All requests share one HTTP/2 connection, and a further one if it has as many streams as the server allows. With
HTTP/1.1, there are at most as many connections as concurrent requests, which the client's lanes limit. Few are opened
at the same time, so that most requests of a burst find one that another request has released. Imports `endpoint`,
`transport`, `exchange`, `shared_buffer`, `tls_verification`, `http1_connection` and `http2_connection`.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

from kubeloop.kube.client.endpoint import Endpoint
from kubeloop.kube.client.exchange import BODILESS, Exchange
from kubeloop.kube.client.http1_connection import Http1Connection
from kubeloop.kube.client.http2_connection import Http2Connection
from kubeloop.kube.client.tls_verification import apply_go_rules
from kubeloop.kube.client.transport import HttpRequest, HttpResponse, StreamedResponse, TransportError
from kubeloop.kube.shared_buffer import new_buffer

AnyConnection = Http1Connection | Http2Connection

# A server may close a connection that has been idle for long just when the next request is sent. Requests that must not
# be sent twice only use connections that were in use recently.
_FRESH_SECONDS = 5.0
_IDLE_SECONDS = 60.0
_CONNECT_SECONDS = 10.0
_CONCURRENT_CONNECTS = 8
_RESPONSE_SECONDS = 30.0  # until the start of a streamed response
_DISABLE_HTTP2 = "DISABLE_HTTP2"  # environment variable, as of client-go


class _Deadlines:
    """Time-outs of exchanges. One timer for all: a timer per request would add a quarter to the cost of a request."""

    def __init__(self, exchanges: set[Exchange]) -> None:
        self._exchanges = exchanges
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf  # loop time of the timer; never after the earliest deadline

    def set(self, exchange: Exchange, seconds: float) -> None:
        """Set the time limit of an exchange that starts now."""
        exchange.deadline = exchange.loop.time() + seconds
        if exchange.deadline < self._due:
            self._set_timer(exchange.loop, exchange.deadline)

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
        for exchange in [exchange for exchange in self._exchanges if exchange.deadline <= now]:
            exchange.time_out()
        self._set_timer(loop, min((exchange.deadline for exchange in self._exchanges), default=math.inf))


class AsyncioTransport:
    """A Transport to one endpoint. Use it inside one loop, and close it."""

    def __init__(self, endpoint: Endpoint, *, http2: bool = True, stream_start_seconds: float | None = None) -> None:
        """http2: False to use HTTP/1.1 only. stream_start_seconds: until a streamed response begins, None for 30.

        Raises ValueError for an endpoint behind a proxy: AiohttpTransport's.
        """
        if endpoint.proxy:
            raise ValueError("AsyncioTransport does not speak to proxies")
        self._endpoint = endpoint
        self._stream_start_seconds = stream_start_seconds
        self._idle: list[Http1Connection] = []  # the most recently used at the end
        self._http2: list[Http2Connection] = []
        self._buffer = new_buffer()
        self._exchanges: set[Exchange] = set()  # open HTTP/1.1 connections, and exchanges of HTTP/2
        self._deadlines = _Deadlines(self._exchanges)
        self._may_use_http2 = http2 and endpoint.tls is not None and not os.environ.get(_DISABLE_HTTP2)
        if self._may_use_http2 and endpoint.tls is not None:
            endpoint.tls.set_alpn_protocols(["h2", "http/1.1"])
        # Until the first handshake, and with HTTP/2, one connection is opened at a time.
        self._connects = asyncio.Semaphore(1 if self._may_use_http2 else _CONCURRENT_CONNECTS)

    @property
    def server(self) -> str:
        return self._endpoint.url

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send one request and read the whole response, whatever its status. Raises TransportError.

        Cancellation: safe; the connection is closed, and the server may have seen the request.
        """
        while True:
            connection = await self._connection(request.method, request.timeout_seconds)
            exchange = self._begin(connection, request.method, request.target, request.headers, request.body, False)
            try:
                if request.timeout_seconds is not None:
                    self._deadlines.set(exchange, request.timeout_seconds)
                response = await exchange.response()
            except TransportError as error:
                if self._was_stale(exchange, request.method):
                    continue
                raise TransportError(f"{self._endpoint.url}: {error}", request_sent=error.request_sent) from error
            finally:
                self._release(exchange)
            return response

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[StreamedResponse]:
        """Send one request and stream its response; leaving the context closes it. Raises TransportError."""
        while True:
            connection = await self._connection(request.method, None)
            exchange = self._begin(connection, request.method, request.target, request.headers, request.body, True)
            try:
                self._deadlines.set(exchange, self._stream_start_seconds or _RESPONSE_SECONDS)
                try:
                    status, response_headers = await exchange.head()
                except TransportError as error:
                    if self._was_stale(exchange, request.method):
                        continue
                    raise TransportError(f"{self._endpoint.url}: {error}", request_sent=error.request_sent) from error
                yield StreamedResponse(status, response_headers, exchange)
                return
            finally:
                self._release(exchange)

    async def close(self) -> None:
        for exchange in list(self._exchanges):
            exchange.abort()
        for connection in self._http2:
            connection.abort()
        self._idle.clear()
        self._http2.clear()
        self._deadlines.cancel()
        await asyncio.sleep(0)  # the loop closes the sockets in its next iteration

    def close_idle_connections(self) -> None:
        """Close idle connections, and the others after their requests, so that the next request opens a new one."""
        for idle in self._idle:
            idle.abort()
        for connection in self._http2:
            connection.retire()
        self._idle.clear()
        self._http2.clear()

    # --- connections -----------------------------------------------------------------------------------------------

    async def _connection(self, method: str, timeout_seconds: float | None) -> AnyConnection:
        """Return a connection, from the pool or new. Raises TransportError (request not sent)."""
        connection = self._pooled_connection(method)
        if connection is not None:
            return connection
        limit_seconds = min(_CONNECT_SECONDS, timeout_seconds or _CONNECT_SECONDS)
        try:
            # A TLS handshake costs as much as several requests: meanwhile, one of these may release its connection.
            async with asyncio.timeout(limit_seconds), self._connects:
                return self._pooled_connection(method) or await self._connect()
        except TimeoutError as error:
            raise TransportError(f"{self._endpoint.url}: connection timed out", request_sent=False) from error
        except (OSError, UnicodeError) as error:  # UnicodeError: the host is not a valid name
            raise TransportError(f"{self._endpoint.url}: {error}", request_sent=False) from error

    def _pooled_connection(self, method: str) -> AnyConnection | None:
        for connection in self._http2:
            if connection.available:
                return connection
        return self._idle_connection(method)

    def _idle_connection(self, method: str) -> Http1Connection | None:
        idle = self._idle
        if not idle:
            return None
        now = idle[-1].loop.time()
        oldest = now - (_IDLE_SECONDS if method in BODILESS else _FRESH_SECONDS)
        while idle and idle[0].idle_since < now - _IDLE_SECONDS:
            idle.pop(0).abort()
        if idle and idle[-1].idle_since >= oldest:
            while idle:
                connection = idle.pop()
                if connection.reusable:
                    return connection
        return None

    async def _connect(self) -> AnyConnection:
        try:
            transport, negotiated = await self._open()
        except ssl.SSLCertVerificationError as error:
            if not apply_go_rules(self._endpoint.tls, error):
                raise
            transport, negotiated = await self._open()
        _detect_dead_peers(transport)
        connection = negotiated.connection
        if isinstance(connection, Http2Connection):
            self._http2 = [*(other for other in self._http2 if not other.retired), connection]
        elif self._may_use_http2:
            self._may_use_http2 = False
            for _ in range(_CONCURRENT_CONNECTS - 1):
                self._connects.release()
        return connection

    async def _open(self) -> tuple[asyncio.Transport, _Negotiation]:
        endpoint, loop = self._endpoint, asyncio.get_running_loop()
        host, port = endpoint.address or (endpoint.host, endpoint.port)
        return await loop.create_connection(
            lambda: _Negotiation(partial(self._new_connection, loop)),
            host,
            port,
            ssl=endpoint.tls,
            server_hostname=(endpoint.tls_name or endpoint.host) if endpoint.tls else None,
        )

    def _new_connection(self, loop: asyncio.AbstractEventLoop, protocol: str) -> AnyConnection:
        endpoint = self._endpoint
        # Header values are UTF-8, which each connection encodes as latin-1.
        headers = [(name, value.encode().decode("latin-1")) for name, value in endpoint.headers]
        if protocol == "h2":
            return Http2Connection(loop, endpoint.authority, headers, self._buffer)
        lines = [f"{name}: {value}" for name, value in (("host", endpoint.authority), *headers)]
        return Http1Connection(loop, lines, self._exchanges, self._buffer)

    def _begin(
        self,
        connection: AnyConnection,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        streaming: bool,
    ) -> Exchange:
        path = self._endpoint.path_prefix + target
        try:
            exchange = connection.begin(method, path, headers, body, streaming=streaming)
        except ValueError:
            if isinstance(connection, Http1Connection):
                connection.abort()
            raise
        self._exchanges.add(exchange)
        return exchange

    def _release(self, exchange: Exchange) -> None:
        """End an exchange: return its HTTP/1.1 connection to the pool, or close it."""
        if not isinstance(exchange, Http1Connection):
            self._exchanges.discard(exchange)
            exchange.abort()
        elif exchange.reusable:
            exchange.idle_since = exchange.loop.time()
            self._idle.append(exchange)
        else:
            exchange.abort()

    @staticmethod
    def _was_stale(exchange: Exchange, method: str) -> bool:
        """Return True if the server closed a keep-alive connection before it saw this request."""
        return method in BODILESS and exchange.used and not exchange.receiving and not exchange.timed_out


class _Negotiation(asyncio.Protocol):
    """Replaces itself by the protocol that the TLS handshake selected."""

    def __init__(self, new_connection: Callable[[str], AnyConnection]) -> None:
        self._new_connection = new_connection
        self.connection: AnyConnection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        tls = transport.get_extra_info("ssl_object")
        self.connection = self._new_connection((tls and tls.selected_alpn_protocol()) or "")
        transport.set_protocol(self.connection)
        self.connection.connection_made(transport)


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
