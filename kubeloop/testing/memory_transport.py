"""A Transport without sockets: calls the handlers of a development API server in the same process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.request import Response as ServerResponse
from kubeloop.devcluster.server.faults import AnswerLost
from kubeloop.kube.client.transport import HttpRequest, HttpResponse, StreamedResponse, TransportError, join_headers

Handle = Callable[[ApiRequest], Awaitable[ServerResponse]]


class MemoryTransport:
    """`handle` is `ApiServer.handle`. Responses are complete or streamed, as over HTTP."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    @property
    def server(self) -> str:
        return "memory://"

    async def send(self, request: HttpRequest) -> HttpResponse:
        # without time-out: handlers respond at once, or the caller cancels
        response = await self._handle_request(
            ApiRequest.of(request.method, request.target, request.headers, request.body)
        )
        content = (
            response.body if isinstance(response.body, bytes) else b"".join([chunk async for chunk in response.body])
        )
        return HttpResponse(response.status, content, _headers(response))

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[StreamedResponse]:
        response = await self._handle_request(
            ApiRequest.of(request.method, request.target, request.headers, request.body)
        )
        chunks = _single_chunk(response.body) if isinstance(response.body, bytes) else response.body
        try:
            yield StreamedResponse(response.status, _headers(response), chunks)
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()

    async def _handle_request(self, request: ApiRequest) -> ServerResponse:
        try:
            return await self._handle(request)
        except AnswerLost:
            raise TransportError("the server closed the connection without a response", request_sent=True) from None

    async def close(self) -> None:
        """No-op: there is no connection."""


async def _single_chunk(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _headers(response: ServerResponse) -> dict[str, str]:
    return join_headers([("content-type", response.content_type), *response.headers])
