"""The API server's face to HTTP: aiohttp's low-level server around `ApiServer.handle`."""

from __future__ import annotations

import gzip
import logging
from typing import NoReturn

from aiohttp import web

from kubeloop.devcluster.faults import AnswerLost
from kubeloop.devcluster.request import Request, Response
from kubeloop.devcluster.server import ApiServer

log = logging.getLogger(__name__)

_MAX_BODY_BYTES = 3 << 20  # kube-apiserver's limit of a request
_GZIP_FROM_BYTES = 128 * 1024  # source: apiserver endpoints/handlers/responsewriters


def http_server(api: ApiServer) -> web.Server:
    """A factory of connections; `web.ServerRunner` runs it."""

    async def answer(http: web.BaseRequest) -> web.StreamResponse:
        path, _, _ = http.path_qs.partition("?")
        body = b""
        if http.can_read_body:
            if (http.content_length or 0) > _MAX_BODY_BYTES:
                return web.Response(status=413, text="request entity too large")
            body = await http.content.read()  # http.read() would refuse more than 1 MiB
            if len(body) > _MAX_BODY_BYTES:
                return web.Response(status=413, text="request entity too large")
        request = Request.of(http.method, http.raw_path if path else "/", http.headers, body)
        try:
            response = await api.handle(request)
        except AnswerLost:
            if http.transport is not None:
                http.transport.abort()
            return _NoAnswer()
        headers = {"Content-Type": response.content_type, "Cache-Control": "no-cache, private"}
        head = web.StreamResponse(status=response.status, headers=headers)
        for name, value in response.headers:
            head.headers.add(name, value)
        try:
            if isinstance(response.body, bytes):
                return await _whole(http, head, response.body)
            return await _streamed(http, head, response)
        except (ConnectionError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not _is_closed(http, error):
                raise
            log.debug("a client has gone before its answer")
            return _NoAnswer()

    return web.Server(answer, access_log=None)


class _NoAnswer(web.StreamResponse):
    """Tells aiohttp that the client has gone, so that it writes nothing more and logs nothing."""

    async def prepare(self, request: web.BaseRequest) -> NoReturn:
        raise ConnectionResetError("the client has gone")


def _is_closed(http: web.BaseRequest, error: RuntimeError) -> bool:
    """uvloop raises RuntimeError when one writes to a connection that the client has closed; over TLS the transport
    that aiohttp sees does not know yet, and only the text tells."""
    return http.transport is None or http.transport.is_closing() or "handler is closed" in str(error)


async def _whole(http: web.BaseRequest, head: web.StreamResponse, body: bytes) -> web.StreamResponse:
    if len(body) >= _GZIP_FROM_BYTES and "gzip" in http.headers.get("Accept-Encoding", ""):
        body = gzip.compress(body, compresslevel=1)
        head.headers["Content-Encoding"] = "gzip"
    if http.method == "HEAD":
        head.content_length = len(body)
        await head.prepare(http)
        return head
    answer = web.Response(status=head.status, headers=head.headers, body=body)
    await answer.prepare(http)
    await answer.write_eof()
    return answer


async def _streamed(http: web.BaseRequest, head: web.StreamResponse, response: Response) -> web.StreamResponse:
    assert not isinstance(response.body, bytes)
    chunks = response.body
    head.enable_chunked_encoding()
    try:
        await head.prepare(http)
        async for chunk in chunks:
            await head.write(chunk)
        await head.write_eof()
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()
    return head
