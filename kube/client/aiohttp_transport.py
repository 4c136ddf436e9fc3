"""Transport over aiohttp: for what the plain connections of `asyncio_transport` do not do, such as proxies.

One session; keep-alive connections are reused, as many as there are requests under way (the client's lanes limit
those). May import aiohttp, `endpoint` and `transport`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from kubeloop.kube.client.endpoint import Endpoint
from kubeloop.kube.client.transport import Response, StreamedResponse, TransportError

_OUR_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_READ_BUFFER_BYTES = 1 << 20
_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL, UnicodeError)
_FAILURES = (aiohttp.ClientError, TimeoutError, OSError, UnicodeError)  # a UnicodeError: a host that cannot be a name


class AiohttpTransport:
    """A Transport to one endpoint. To be made inside a running loop, and closed.

    aiohttp itself sends GET, HEAD, PUT and DELETE once more if a kept-alive connection turns out to be closed.
    """

    def __init__(self, endpoint: Endpoint, *, connect_seconds: float = 10.0, answer_seconds: float = 30.0) -> None:
        """`connect_seconds`: time to get a connection. `answer_seconds`: time until a stream's answer begins."""
        self._url = endpoint.url
        self._proxy = endpoint.proxy or None
        self._tls_name = endpoint.tls_name or None
        self._connect_seconds = connect_seconds
        self._stream_timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds)
        self._answer_seconds = answer_seconds
        self._tls = endpoint.tls or True
        self._own_headers = endpoint.headers
        self._session = self._new_session()
        self._retired: list[aiohttp.ClientSession] = []  # see forget_idle

    def _new_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._tls, keepalive_timeout=60.0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._own_headers,
            skip_auto_headers=_OUR_HEADERS,
            read_bufsize=_READ_BUFFER_BYTES,
        )

    @property
    def server(self) -> str:
        return self._url

    async def request(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
        timeout_seconds: float | None = None,
    ) -> Response:
        """Send one request and read the whole answer, whatever its status. Raises TransportError."""
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=self._connect_seconds)
        try:
            async with self._session.request(
                method,
                URL(self._url + target, encoded=True),
                data=body or None,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                proxy=self._proxy,
                server_hostname=self._tls_name,
            ) as answer:
                content = await answer.read()
                return Response(answer.status, content, _lower(answer.headers))
        except _FAILURES as error:
            raise _transport_error(error, self._url) from error

    @asynccontextmanager
    async def stream(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[StreamedResponse]:
        """Send one request and read its answer as it comes; leaving the context closes it. Raises TransportError."""
        try:
            async with asyncio.timeout(self._answer_seconds):
                answer = await self._session.request(
                    method,
                    URL(self._url + target, encoded=True),
                    data=body or None,
                    headers=headers,
                    timeout=self._stream_timeout,
                    allow_redirects=False,
                    proxy=self._proxy,
                    server_hostname=self._tls_name,
                )
        except _FAILURES as error:
            raise _transport_error(error, self._url) from error
        try:
            yield StreamedResponse(answer.status, _lower(answer.headers), _Body(answer, self._url))
        finally:
            answer.close()

    def close_idle_connections(self) -> None:
        """Take new connections from now on. Idle ones close by themselves, those in use end with their requests."""
        self._retired.append(self._session)
        self._session = self._new_session()

    async def close(self) -> None:
        for session in (self._session, *self._retired):
            await session.close()


class _Body:
    """The chunks of a streamed answer."""

    def __init__(self, answer: aiohttp.ClientResponse, url: str) -> None:
        self._content = answer.content
        self._url = url

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._content.readany()
        except _FAILURES as error:
            raise _transport_error(error, self._url) from error
        if not chunk:
            raise StopAsyncIteration
        return chunk


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _transport_error(error: Exception, url: str) -> TransportError:
    unsent = isinstance(error, _UNSENT)
    problem = str(error) or type(error).__name__
    if isinstance(error, TimeoutError):
        problem = "no connection in time" if unsent else "no answer in time"
    return TransportError(f"{url}: {problem}", request_sent=not unsent)
