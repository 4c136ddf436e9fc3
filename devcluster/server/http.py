"""HTTP/1.1 for the API server and the endpoint of a process: an asyncio Protocol around httptools' parser.

    bytes -> parser -> Request -> RequestHandler.respond -> bytes    within data_received, except watches
                                                         -> a task   that writes chunks as they arrive, or that
                                                                     serves an upgraded connection (WebSocket)

With `events_first`, and while watches are open, the response to a write is sent behind its events: a client that
continues at once, and whose caches are fed by watches, does not overtake them. A connection handles requests in order;
pipelined requests wait, up to a limit. A client cannot make the server buffer more than a request's limits or wait
without end: heads and bodies have maximum sizes and durations, and nothing is written to a client that does not read.
Input that is not HTTP gets a plain 400 and the connection is closed, as by kube-apiserver. docs/decisions.md has the
reason for not using a library.
"""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import sys
import weakref
import zlib
from collections import deque
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from types import TracebackType
from typing import Any, Protocol, cast

import httptools

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import ApiRequest, PendingResponse, Response, json_response
from kubeloop.devcluster.server.faults import AnswerLost
from kubeloop.kube.allocator import return_freed_memory
from kubeloop.kube.clock import Clock
from kubeloop.kube.shared_buffer import SharedBufferProtocol, new_buffer
from kubeloop.kube.values.integers import parse_integer

log = logging.getLogger(__name__)

_MAX_BODY_BYTES = 3 << 20  # kube-apiserver's limit of a request
_MAX_HEAD_BYTES = 1 << 20  # net/http's
_MAX_WAITING = 16  # pipelined requests; reading pauses at this number
_HEAD_SECONDS = 32.0  # from the first byte of a head to its last; kube-apiserver's ReadHeaderTimeout
_BODY_SECONDS = 60.0
_IDLE_SECONDS = 180.0
_STALLED_SECONDS = 60.0  # a client may read nothing for this long
_LINGER_SECONDS = 2.0  # a refused client may send for this long, so that it reads the response
_SWEEP_SECONDS = 1.0
_TRIM_CONNECTIONS = 500  # closed ones after which their memory is returned to the system
_SHUTDOWN_SECONDS = 0.5  # for watches to end at shutdown
_MAX_UNREAD_BYTES = 1 << 20  # of an upgraded connection; reading pauses at this number
_READS = ("GET", "HEAD")
_GZIP = 31  # window bits of zlib for the largest window with a header of gzip
_GZIP_FROM_BYTES = 128 * 1024  # source: apiserver endpoints/handlers/responsewriters

_REASONS = {status.value: status.phrase for status in HTTPStatus}
_STATUS_LINES = {code: b"HTTP/1.1 %d %s\r\n" % (code, phrase.encode()) for code, phrase in _REASONS.items()}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class RequestHandler(Protocol):
    """Handles requests, for example `ApiServer`."""

    @property
    def clock(self) -> Clock: ...

    def respond(self, request: ApiRequest) -> Response | PendingResponse:
        """Return the response, or a function that completes it if the request has to wait.

        The function raises AnswerLost to cut the connection.
        """
        ...


class HttpServer:
    """Creates the connections' protocols (by a call) and owns them within its context.

    headers: added to every response. gzip_from_bytes: minimum size of compressed responses, if the client accepts gzip;
    compression takes about 10 ms per MiB on the event loop. compress: False to compress no response. events_first: send
    watches the events of a write before the writer gets its response, at the cost of throughput (decision 90).

    Leaving the context lets ended streams be sent for a moment, then closes everything.
    """

    def __init__(
        self,
        api: RequestHandler,
        *,
        headers: bytes = b"Cache-Control: no-cache, private\r\n",
        gzip_from_bytes: float = _GZIP_FROM_BYTES,
        compress: bool = True,
        events_first: bool = False,
    ) -> None:
        self.api = api
        self.headers = headers
        self.gzip_from_bytes = gzip_from_bytes if compress else math.inf
        self.buffer = new_buffer()
        self.connections: set[_Connection] = set()
        self.streams = asyncio.TaskGroup()
        self.events_first = events_first
        self.open_streams = 0  # watches and followed logs; without them, no response waits for events
        self._protocols: weakref.WeakSet[_Connection] = weakref.WeakSet()  # also those in a TLS handshake
        self._most_protocols = 0  # since memory was last returned to the system
        self._sweeping: asyncio.Task[None] | None = None
        self._date = (0, b"")

    def __call__(self) -> asyncio.BufferedProtocol:
        connection = _Connection(self)
        self._protocols.add(connection)
        self._most_protocols = max(self._most_protocols, len(self._protocols))
        return connection

    async def __aenter__(self) -> HttpServer:
        await self.streams.__aenter__()
        self._sweeping = self.streams.create_task(self._sweep(), name="http-deadlines")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._sweeping is not None
        self._sweeping.cancel()
        streaming = [task for task in (connection.task for connection in self.connections) if task is not None]
        if streaming:
            await asyncio.wait(streaming, timeout=_SHUTDOWN_SECONDS)
        for connection in tuple(self.connections):
            connection.end()
        del kind, error, trace  # exceptions of the block pass unchanged, not grouped with errors of these tasks
        await self.streams.__aexit__(None, None, None)

    def date(self) -> bytes:
        """Return the Date header, formatted once per second."""
        now = self.api.clock.now()
        second = int(now.timestamp())
        if second != self._date[0]:
            # in English, as no program here sets a locale; email.utils takes 1.4 ms to import
            self._date = (second, now.strftime("Date: %a, %d %b %Y %H:%M:%S GMT\r\n").encode())
        return self._date[1]

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = loop.time()
            for connection in tuple(self.connections):
                if connection.deadline < now:
                    connection.end()
            if len(self._protocols) <= self._most_protocols - _TRIM_CONNECTIONS:
                return_freed_memory()
                self._most_protocols = len(self._protocols)


class _Connection(SharedBufferProtocol):
    """One client.

        idle --first byte--> head --> body --> waiting for its response --> idle
                                 \\-----------> refused: further input is discarded, then closed

    `deadline`: loop time by which the present state must end; infinite while a request is handled.
    """

    def __init__(self, server: HttpServer) -> None:
        super().__init__(server.buffer)
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._parser: httptools.HttpRequestParser | None = None  # while connected, because it refers to this object
        self._transport: asyncio.Transport | None = None
        self._certificates: tuple[bytes, ...] = ()  # of the client
        self._client_address = ""
        self.deadline = self._loop.time() + _IDLE_SECONDS
        self.task: asyncio.Task[None] | None = None  # completes a response or writes a stream
        self._unread: deque[bytes] = deque()  # bytes of an upgraded connection
        self._unread_bytes = 0
        self._upgraded = False
        self._readable = asyncio.Event()
        self._waiting: deque[tuple[ApiRequest, bool]] = deque()  # complete requests, and True to keep the connection
        self._postponed: Callable[[], None] | None = None  # sends the response to a write
        self._in_message = False
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._head_bytes = 0  # lower bound since the start of the head
        self._head_done = False
        self._refused = False
        self._ended = False
        self._closing = False  # after the current response
        self._reading = True
        self._writable = asyncio.Event()
        self._writable.set()

    # --- transport callbacks ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not derive from it
        if (connection := transport.get_extra_info("ssl_object")) is not None:
            self._certificates = _client_certificates(connection)
        if peer := transport.get_extra_info("peername"):
            self._client_address = peer[0]
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # the client has disconnected, cleanly or not
        self._server.connections.discard(self)
        self._parser = self._transport = None
        self._waiting.clear()
        self._writable.set()
        self._readable.set()
        if self.task is not None:
            self.task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()
        self.deadline = self._loop.time() + _STALLED_SECONDS
        self._update_reading()

    def resume_writing(self) -> None:
        self._writable.set()
        self.deadline = self._loop.time() + _IDLE_SECONDS if self.task is None else math.inf
        self._update_reading()
        self._answer_waiting()

    def data_received(self, data: bytes | memoryview) -> None:
        if self._refused or self._parser is None:
            return
        if self._upgraded:
            self._unread.append(bytes(data))
            self._unread_bytes += len(data)
            self._readable.set()
            self._update_reading()
            return
        if not self._in_message:
            self._in_message = True
            self._head_bytes, self._head_done = 0, False
            if self.task is None:
                self.deadline = self._loop.time() + _HEAD_SECONDS
        if not self._head_done:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return  # handled as an ordinary request unless the handler upgrades; the connection is closed afterwards
        except httptools.HttpParserError:
            self._refuse(400, b"400 Bad Request")
            return
        if not self._head_done and self._in_message and self._head_bytes > _MAX_HEAD_BYTES:
            self._refuse(431, b"431 Request Header Fields Too Large")

    def end(self) -> None:
        """Close immediately."""
        if self._transport is None:
            return
        if self._ended:
            self.connection_lost(None)
        else:
            self._ended = True
            self._transport.abort()

    def _send(self, data: bytes) -> bool:
        """Write unless the client has disconnected; return False if it has.

        After a reset right behind a request, uvloop (0.23) keeps a closed transport for which it never calls
        `connection_lost`: write() raises, and is_closing() is False.
        """
        if self._transport is None or self._transport.is_closing():
            return False
        try:
            self._transport.write(data)
        except RuntimeError:
            self.connection_lost(None)
            return False
        return True

    # --- parser callbacks ---------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._in_message = True
        self._url, self._headers, self._body, self._body_bytes = b"", {}, [], 0
        self._head_done = False

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        self._head_done = True
        self._head_bytes = 0
        headers = self._headers
        if self.task is None:
            self.deadline = self._loop.time() + _BODY_SECONDS
        length = headers.get("content-length", "0")
        if length.isdecimal() and parse_integer(length) > _MAX_BODY_BYTES:
            self._too_large()
        elif headers.get("expect", "").lower() == "100-continue":
            self._send(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > _MAX_BODY_BYTES:
            self._too_large()
        elif not self._refused:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self._in_message = False
        if self._refused or self._parser is None:
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        request = ApiRequest.of(self._parser.get_method().decode(), self._url.decode("latin-1"), self._headers, body)
        request.certificates = self._certificates
        request.client_address = self._client_address
        # the parser stops behind a request to upgrade the protocol
        keep_alive = self._parser.should_keep_alive() and not self._parser.should_upgrade()
        self._waiting.append((request, keep_alive))
        self._answer_waiting()
        self._update_reading()

    # --- responses ----------------------------------------------------------------------------------------------------

    def _answer_waiting(self) -> None:
        """Handle waiting requests until one has to wait or the client does not read."""
        api = self._server.api
        while self._waiting and not self._is_answering and self._writable.is_set() and not self._closing:
            request, keep_alive = self._waiting.popleft()
            response = api.respond(request)
            if isinstance(response, Response) and isinstance(response.body, bytes) and response.upgrade is None:
                if self._waits_for_events(request):
                    self._postponed = partial(self._write, request, response, response.body, keep_alive)
                    self._loop.call_soon(self._continue_after_events)
                else:
                    self._write(request, response, response.body, keep_alive)
            else:
                self.deadline = math.inf
                self.task = self._server.streams.create_task(self._answer_in_time(request, response, keep_alive))
                return
        if self.task is None and not self._in_message and not self._closing:
            self.deadline = self._loop.time() + _IDLE_SECONDS

    def _waits_for_events(self, request: ApiRequest) -> bool:
        """Return True if the response must be sent behind the events of the request, in the next step of the loop."""
        server = self._server
        return server.events_first and server.open_streams > 0 and request.method not in _READS

    @property
    def _is_answering(self) -> bool:
        return self.task is not None or self._postponed is not None

    def _continue_after_events(self) -> None:
        self._write_postponed()
        self._answer_waiting()
        self._update_reading()

    def _write_postponed(self) -> None:
        write, self._postponed = self._postponed, None
        if write is not None:
            write()

    async def _answer_in_time(
        self, request: ApiRequest, response: Response | PendingResponse, keep_alive: bool
    ) -> None:
        try:
            if not isinstance(response, Response):
                response = await response()
            if response.upgrade is not None:
                await self._upgrade(response)
            elif isinstance(response.body, bytes):
                if self._waits_for_events(request):
                    await asyncio.sleep(0)
                self._write(request, response, response.body, keep_alive)
            else:
                await self._stream(request, response, keep_alive)
        except AnswerLost:
            self.end()
        except Exception:
            log.exception("response failed", extra={"method": request.method, "path": request.path})
            self.end()
        finally:
            self.task = None
        self._answer_waiting()
        self._update_reading()

    def _head(self, response: Response, extra_headers: bytes, keep_alive: bool) -> bytes:
        caching = self._server.headers
        if response.caching:
            caching = b"Cache-Control: %b\r\n" % response.caching.encode()
        elif response.upgrade is not None:
            caching = b""
        lines = [
            _STATUS_LINES[response.status],
            b"Content-Type: %s\r\n" % response.content_type.encode() if response.content_type else b"",
            caching,
            self._server.date(),
            *[f"{name}: {value}\r\n".encode("utf-8", "replace") for name, value in response.headers],
            extra_headers,
        ]
        if not keep_alive:
            lines.append(b"Connection: close\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)

    def _write(self, request: ApiRequest, response: Response, body: bytes, keep_alive: bool) -> None:
        if self._transport is None:
            return
        extra_headers = b""
        if len(body) >= self._server.gzip_from_bytes and "gzip" in request.headers.get("accept-encoding", ""):
            body = zlib.compress(body, level=1, wbits=_GZIP)
            extra_headers = b"Content-Encoding: gzip\r\n"
        if response.status != HTTPStatus.NOT_MODIFIED:  # its length would be that of the omitted body
            extra_headers += b"Content-Length: %d\r\n" % len(body)
        head = self._head(response, extra_headers, keep_alive)
        self._send(head if request.method == "HEAD" else head + body)
        self._finish(keep_alive)

    async def _stream(self, request: ApiRequest, response: Response, keep_alive: bool) -> None:
        assert not isinstance(response.body, bytes)
        chunks = response.body
        chunked = self._parser is not None and self._parser.get_http_version() != "1.0"
        keep_alive = keep_alive and chunked
        self._server.open_streams += 1
        try:
            if not self._send(self._head(response, b"Transfer-Encoding: chunked\r\n" if chunked else b"", keep_alive)):
                return
            async for chunk in chunks:
                await self._writable.wait()
                if chunk and not self._send(b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunked else chunk):
                    return
            if chunked:
                self._send(b"0\r\n\r\n")
        finally:
            self._server.open_streams -= 1
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
        self._finish(keep_alive)

    async def _upgrade(self, response: Response) -> None:
        """Switch protocols, and serve the connection until the handler returns."""
        assert response.upgrade is not None
        self._upgraded = True
        if self._send(self._head(response, b"", keep_alive=True)):
            try:
                await response.upgrade(self)
            except ConnectionError:
                log.debug("the client of an upgraded connection has disconnected")
        self._finish(keep_alive=False)

    async def receive(self) -> bytes:
        """Implement UpgradedConnection."""
        while not self._unread:
            if self._transport is None:
                return b""
            self._readable.clear()
            await self._readable.wait()
        data = self._unread.popleft()
        self._unread_bytes -= len(data)
        self._update_reading()
        return data

    async def send(self, data: bytes) -> None:
        """Implement UpgradedConnection."""
        await self._writable.wait()
        if not self._send(data):
            raise ConnectionResetError("the client has disconnected")

    def _finish(self, keep_alive: bool) -> None:
        if not keep_alive and self._transport is not None:
            self._closing = True
            self._transport.close()

    # --- refusals -----------------------------------------------------------------------------------------------------

    def _too_large(self) -> None:
        if self._refused:
            return
        failure = errors.body_too_large(_MAX_BODY_BYTES)
        response = json_response(failure.code, failure.status)
        assert isinstance(response.body, bytes)
        self._refuse(response.status, response.body, response.content_type)

    def _refuse(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        """Send an error and close after the client had time to read it; pending responses are dropped."""
        self._refused = True
        self._body = []
        self._waiting.clear()
        self._write_postponed()
        if self.task is not None or self._transport is None:
            self.end()
            return
        response = Response(status, body, content_type)
        if not self._send(self._head(response, b"Content-Length: %d\r\n" % len(body), keep_alive=False) + body):
            return
        # closing immediately would reset the connection because of unread input, and lose the response
        self.deadline = self._loop.time() + _LINGER_SECONDS
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _update_reading(self) -> None:
        """Read only from a client that reads responses and has few waiting requests or unread bytes."""
        if self._transport is None:
            return
        should_read = (
            self._writable.is_set() and len(self._waiting) < _MAX_WAITING and self._unread_bytes < _MAX_UNREAD_BYTES
        )
        if should_read != self._reading and not self._transport.is_closing():
            self._reading = should_read
            if should_read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()


def _client_certificates(connection: ssl.SSLObject) -> tuple[bytes, ...]:
    """Return the certificates that the client has sent, in DER, its own first; () if it sent none."""
    if not connection.getpeercert(binary_form=True):
        return ()
    if sys.version_info >= (3, 13):
        return tuple(connection.get_unverified_chain())
    inner: Any = connection._sslobj  # type: ignore[attr-defined]
    return tuple(ssl.PEM_cert_to_DER_cert(entry.public_bytes()) for entry in inner.get_unverified_chain())
