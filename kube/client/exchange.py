"""One HTTP exchange: a request, and its response as it arrives on a connection.

`http1_connection` and `http2_connection` extend it. Imports the standard library and `transport`.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from kubeloop.kube.client.transport import HttpResponse, TransportError

BODILESS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods whose requests have no body, and may be repeated."""


class LazyHeaders(Mapping[str, str]):
    """Headers of a response, decoded on first access: most responses need none of them."""

    __slots__ = ("_decode", "_decoded")

    def __init__(self, decode: Callable[[], dict[str, str]]) -> None:
        """`decode` returns the headers, with names in lower case."""
        self._decode = decode
        self._decoded: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        if self._decoded is None:
            self._decoded = self._decode()
        return self._decoded

    def __getitem__(self, name: str) -> str:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return repr(self._all())


class Exchange(ABC):
    """begin -> waiting for the response's head -> reading its body -> done, or failed

    receiving   bytes of the response have arrived
    deadline    loop time at which the exchange times out
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop  # asyncio.get_running_loop() would make a system call for each request
        self.used = False  # the connection has completed an exchange before
        self.receiving = False
        self.deadline = math.inf
        self.timed_out = False
        self._streaming = False
        self._status = 0
        self._head_done = False
        self._done = False
        self._chunks: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._failure: TransportError | None = None

    async def response(self) -> HttpResponse:
        """Return the whole response. Raises TransportError."""
        while not self._done:
            await self._wait()
        self.deadline = math.inf
        chunks = self._chunks
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        return HttpResponse(self._status, body, self._response_headers())

    async def head(self) -> tuple[int, Mapping[str, str]]:
        """Return status and headers of a streamed response. Raises TransportError."""
        while not self._head_done:
            await self._wait()
        self.deadline = math.inf
        return self._status, self._response_headers()

    def __aiter__(self) -> Exchange:
        return self

    async def __anext__(self) -> bytes:
        """Return the next bytes of a streamed response's body: all that have arrived."""
        chunks = self._chunks
        while not chunks:
            if self._done:
                raise StopAsyncIteration
            await self._wait()
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self._consumed(len(data))
        return data

    def time_out(self) -> None:
        """Fail the exchange: its deadline has passed."""
        self.deadline, self.timed_out = math.inf, True
        self._fail(TransportError("timed out waiting for the response", request_sent=True))
        self.abort()

    @abstractmethod
    def abort(self) -> None:
        """End the exchange, whatever its state."""

    @abstractmethod
    def _response_headers(self) -> Mapping[str, str]: ...

    @abstractmethod
    def _consumed(self, size: int) -> None:
        """The reader of a streamed response took `size` bytes."""

    async def _wait(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = self.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _fail(self, error: TransportError) -> None:
        if self._failure is None:
            self._failure = error
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
