"""A transport to the development API server in memory, with latency, delayed watch events and injected faults."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import ApiRequest, Response
from kubeloop.kube.client.transport import HttpRequest, HttpResponse, StreamedResponse, TransportError
from kubeloop.testing.faults.requests import SentRequest, error_response, injected_error, single_chunk
from kubeloop.testing.memory_transport import MemoryTransport


@dataclass(frozen=True)
class WatchFault:
    """Fault of one watch after it has sent `lines` lines.

    kind: "close" (clean end), "reset" (connection reset in the middle of the next line), "silence" (no more data until
    break_watches()), "expired" (ERROR event 410), "error" (ERROR event 500), "throttled" (ERROR event 429), "refuse"
    (the watch is refused with `code`). resource: the plural name of the resource that is watched; "" for any.
    """

    kind: str
    lines: int = 0
    code: int = 500
    resource: str = ""


_ERROR_EVENT_CODES = {"expired": 410, "error": 500, "throttled": 429}


class FaultyTransport:
    """Implements `Transport` with `handle`, which is `ApiServer.handle`. Without settings, it injects nothing.

    All delays are drawn from `rng`, uniformly from 0.

    latency_seconds: maximum delay of a request before the server handles it, and of its response.
    before_request: awaited with each request that is not a watch, before the server handles it; may raise
    TransportError, or StatusError to respond with it instead.
    reject: called with method and path of a request; returns the error to respond with instead of handling it.
    lose_response: called with method and path of a handled request; True if the client gets no response.
    watch_delay_seconds: maximum delay of a watch event. The events of one watch stay in order.
    watch_faults: those of the next watches of a resource, in order.
    compacted_version: watches from an older resourceVersion are refused with 410.
    on_send: called with each request when the client sends it.
    """

    def __init__(self, handle: Callable[[ApiRequest], Awaitable[Response]], *, rng: random.Random) -> None:
        self._inner = MemoryTransport(handle)
        self._rng = rng
        self.latency_seconds = 0.0
        self.before_request: Callable[[SentRequest], Awaitable[object]] | None = None
        self.reject: Callable[[str, str], StatusError | None] = lambda method, path: None
        self.lose_response: Callable[[str, str], bool] = lambda method, path: False
        self.watch_delay_seconds = 0.0
        self.watch_faults: list[WatchFault] = []
        self.compacted_version = 0
        self.on_send: Callable[[SentRequest], None] = lambda request: None
        self.sent: list[SentRequest] = []
        self._down = False
        self._watches: set[_WatchLines] = set()

    @property
    def server(self) -> str:
        return self._inner.server

    @property
    def down(self) -> bool:
        """True while the server is unreachable. Setting it to True also breaks the open watches."""
        return self._down

    @down.setter
    def down(self, down: bool) -> None:
        self._down = down
        if down:
            self.break_watches()

    def break_watches(self, resource: str = "") -> None:
        """Reset the connections of all open watches, or of those of a resource; undelivered events are lost."""
        for watch in self._watches:
            if watch.path.endswith(resource):
                watch.break_connection()

    async def send(self, http_request: HttpRequest) -> HttpResponse:
        request = SentRequest.of(http_request)
        rejection = await self._send(request)
        if rejection is not None:
            return rejection
        if self.before_request is not None:
            try:
                await self.before_request(request)
            except StatusError as error:
                return error_response(error)
        response = await self._inner.send(request)
        await self._wait()
        if self.lose_response(http_request.method, request.path):
            raise TransportError("the response was lost", request_sent=True)
        return response

    @asynccontextmanager
    async def stream(self, http_request: HttpRequest) -> AsyncIterator[StreamedResponse]:
        request = SentRequest.of(http_request)
        error = await self._send(request)
        fault = self._next_fault(request.path)
        if error is None and fault is not None and fault.kind == "refuse":
            error = error_response(injected_error(fault.code))
        if error is None and 0 < _resource_version(http_request.target) < self.compacted_version:
            error = error_response(injected_error(410))
        if error is not None:
            yield StreamedResponse(error.status, error.headers, single_chunk(error.body))
            return
        async with self._inner.stream(request) as response:
            if response.status != 200:
                yield response
                return
            lines = _WatchLines(request.path, self._rng, self.watch_delay_seconds)
            self._watches.add(lines)
            reading = asyncio.create_task(lines.read(response.chunks))
            try:
                yield StreamedResponse(200, response.headers, self._lines(lines, fault))
            finally:
                self._watches.discard(lines)
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def close(self) -> None:
        """No-op: there is no connection."""

    async def _send(self, request: SentRequest) -> HttpResponse | None:
        """Deliver the request to the server. Returns the response if the request is rejected."""
        self.sent.append(request)
        self.on_send(request)
        if self._down:
            raise TransportError("connection refused", request_sent=False)
        await self._wait()
        error = self.reject(request.method, request.path)
        return None if error is None else error_response(error)

    def _next_fault(self, path: str) -> WatchFault | None:
        for fault in self.watch_faults:
            if path.endswith(fault.resource):
                self.watch_faults.remove(fault)
                return fault
        return None

    async def _wait(self) -> None:
        await asyncio.sleep(self._rng.uniform(0, self.latency_seconds) if self.latency_seconds else 0)

    async def _lines(self, lines: _WatchLines, fault: WatchFault | None) -> AsyncIterator[bytes]:
        sent_lines = 0
        async for line in lines:
            if fault is not None and sent_lines >= fault.lines:
                if fault.kind == "reset":
                    yield line[: max(1, len(line) // 2)]
                    raise TransportError("connection reset", request_sent=True)
                if fault.kind == "close":
                    return
                if fault.kind == "silence":
                    async for _ in lines:
                        pass
                    await asyncio.Event().wait()
                error = injected_error(_ERROR_EVENT_CODES[fault.kind])
                yield json.dumps({"type": "ERROR", "object": error.status}).encode() + b"\n"
                return
            sent_lines += 1
            yield line


class _WatchLines:
    """Iterator over the lines of one watch, each at its time."""

    def __init__(self, path: str, rng: random.Random, delay_seconds: float) -> None:
        self.path = path
        self._rng = rng
        self._delay_seconds = delay_seconds
        self._last_at = 0.0
        self._lines: asyncio.Queue[tuple[float, bytes | Exception | None]] = asyncio.Queue()

    def put(self, line: bytes | Exception | None) -> None:
        """Append a line, the error that ends the watch, or None for its clean end."""
        at = asyncio.get_running_loop().time()
        if self._delay_seconds:
            # strictly later than the previous line: the loop does not order timers of the same time
            at = max(self._last_at + 1e-6, at + self._rng.uniform(0, self._delay_seconds))
            self._last_at = at
        self._lines.put_nowait((at, line))

    def break_connection(self) -> None:
        while not self._lines.empty():
            self._lines.get_nowait()
        error = TransportError("connection reset", request_sent=True)
        self._lines.put_nowait((asyncio.get_running_loop().time(), error))

    async def read(self, chunks: AsyncIterator[bytes]) -> None:
        """Append all lines of a response."""
        try:
            async for chunk in chunks:
                for line in chunk.splitlines(keepends=True):
                    self.put(line)
        except Exception as error:
            self.put(error)
        else:
            self.put(None)

    def __aiter__(self) -> _WatchLines:
        return self

    async def __anext__(self) -> bytes:
        at, line = await self._lines.get()
        seconds = at - asyncio.get_running_loop().time()
        if seconds > 0:
            await asyncio.sleep(seconds)
        if isinstance(line, Exception):
            raise line
        if line is None:
            raise StopAsyncIteration
        return line


def _resource_version(target: str) -> int:
    return int(parse_qs(urlsplit(target).query).get("resourceVersion", ["0"])[0])
