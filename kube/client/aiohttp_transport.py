"""Transport over aiohttp, for proxies, which `asyncio_transport` does not support.

One session; keep-alive connections are reused. There are as many as concurrent requests, which the client's lanes
limit. Imports aiohttp, yarl, `endpoint`, `tls_verification` and `transport`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from kubeloop.kube.client.endpoint import Endpoint
from kubeloop.kube.client.tls_verification import apply_go_rules
from kubeloop.kube.client.transport import HttpRequest, HttpResponse, StreamedResponse, TransportError, join_headers

_OUR_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_CONNECT_SECONDS = 10.0
_RESPONSE_SECONDS = 30.0  # until the start of a streamed response
_READ_BUFFER_BYTES = 1 << 20
_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL, UnicodeError)
_FAILURES = (aiohttp.ClientError, TimeoutError, OSError, UnicodeError)  # UnicodeError: the host is not a valid name


class AiohttpTransport:
    """A Transport to one endpoint. Create it inside a running loop, and close it.

    aiohttp itself retries GET, HEAD, PUT and DELETE if a keep-alive connection turns out to be closed.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._url = endpoint.url
        self._proxy = endpoint.proxy or None
        self._tls_name = endpoint.tls_name or None
        self._stream_timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
        self._tls = endpoint.tls or True
        apply_go_rules(endpoint.tls)  # aiohttp does not connect again when OpenSSL refuses a certificate
        self._own_headers = endpoint.headers
        self._session = self._new_session()
        self._retired: list[aiohttp.ClientSession] = []  # see close_idle_connections

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

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send one request and read the whole response, whatever its status. Raises TransportError."""
        timeout = aiohttp.ClientTimeout(total=request.timeout_seconds, sock_connect=_CONNECT_SECONDS)
        try:
            async with self._session.request(
                request.method,
                URL(self._url + request.target, encoded=True),
                data=request.body or None,
                headers=request.headers,
                timeout=timeout,
                allow_redirects=False,
                proxy=self._proxy,
                server_hostname=self._tls_name,
            ) as response:
                content = await response.read()
                return HttpResponse(response.status, content, join_headers(response.headers.items()))
        except _FAILURES as error:
            raise _transport_error(error, self._url) from error

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[StreamedResponse]:
        """Send one request and stream its response; leaving the context closes it. Raises TransportError."""
        try:
            async with asyncio.timeout(_RESPONSE_SECONDS):
                response = await self._session.request(
                    request.method,
                    URL(self._url + request.target, encoded=True),
                    data=request.body or None,
                    headers=request.headers,
                    timeout=self._stream_timeout,
                    allow_redirects=False,
                    proxy=self._proxy,
                    server_hostname=self._tls_name,
                )
        except _FAILURES as error:
            raise _transport_error(error, self._url) from error
        try:
            yield StreamedResponse(response.status, join_headers(response.headers.items()), _Body(response, self._url))
        finally:
            response.close()

    def close_idle_connections(self) -> None:
        """Use new connections from now on. Idle ones time out, those in use end with their requests."""
        self._retired.append(self._session)
        self._session = self._new_session()

    async def close(self) -> None:
        for session in (self._session, *self._retired):
            await session.close()


class _Body:
    """Chunks of a streamed response."""

    def __init__(self, response: aiohttp.ClientResponse, url: str) -> None:
        self._content = response.content
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


def _transport_error(error: Exception, url: str) -> TransportError:
    unsent = isinstance(error, _UNSENT)
    problem = str(error) or type(error).__name__
    if isinstance(error, TimeoutError):
        problem = "connection timed out" if unsent else "timed out waiting for the response"
    return TransportError(f"{url}: {problem}", request_sent=not unsent)
