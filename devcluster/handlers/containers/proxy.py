"""The subresource proxy: HTTP requests to pods, Services and nodes, passed to the configured targets of port-forward.

Source: apimachinery pkg/util/proxy (upgradeaware.go, transport.go), pkg/registry/core/{pod,service,node} of v1.36.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote, urlencode

import httptools

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import Request, Response
from kubeloop.devcluster.handlers.containers.port_forward import forward_target
from kubeloop.devcluster.kubelet.containers.container_answers import PortForwardAnswer

_READ_BYTES = 32 << 10
_OF_CONNECTION = frozenset(
    ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "content-length")
)
_STATUSES = frozenset(HTTPStatus)
_NOT_SENT = _OF_CONNECTION | {"authorization", "expect", "host"}


class ProxyTarget(NamedTuple):
    """Target of a request. host: for its header. tls: connect with TLS, without verifying the certificate."""

    answer: PortForwardAnswer
    host: str
    tls: bool = False


async def proxy(request: Request, prefix: str, target: ProxyTarget) -> Response:
    """Send the request to the target and return its response. prefix: of the path, up to and with "/proxy".

    Raises StatusError 400 for a change of the protocol, 503 for a target that does not answer.
    """
    path = request.path[len(prefix) :]
    query = f"?{urlencode(request.query, doseq=True)}" if request.query else ""
    if not path and request.method in ("GET", "HEAD"):
        return Response(301, b"", "", [("Location", f"{_escaped(request.path)}/{query}")])
    if request.headers.get("upgrade"):
        raise errors.bad_request("the proxy of simulated pods serves no upgrade of the protocol: use port-forward")
    head = [
        f"{request.method} {_escaped(path or '/')}{query} HTTP/1.1",
        f"host: {target.host}",
        "connection: close",
        f"content-length: {len(request.body)}",
        f"x-forwarded-uri: {_escaped(request.path)}",
        *(f"{name}: {value}" for name, value in request.headers.items() if name not in _NOT_SENT),
    ]
    message = "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + request.body
    exchange = _exchange(target, message)
    try:
        received = await anext(exchange)
    except (OSError, httptools.HttpParserError, StopAsyncIteration) as error:
        reason = str(error) or "the target sent no response"
        raise errors.StatusError(503, "ServiceUnavailable", f"error trying to reach service: {reason}") from None
    assert isinstance(received, _Head)
    if received.status < 200 or received.status not in _STATUSES:
        await exchange.aclose()
        raise errors.StatusError(503, "ServiceUnavailable", f"the target has sent the status {received.status}")
    if request.method == "HEAD":
        await exchange.aclose()
    return Response(
        received.status,
        b"" if request.method == "HEAD" else _body(exchange),
        received.header("content-type"),
        [
            (name, f"{_escaped(prefix)}{value}" if name.lower() == "location" and value.startswith("/") else value)
            for name, value in received.headers
            if name.lower() not in _OF_CONNECTION and name.lower() != "content-type"
        ],
    )


def _escaped(path: str) -> str:
    return quote(path, safe="/:@")


class _Head(NamedTuple):
    """Status and headers of a response."""

    status: int
    headers: Sequence[tuple[str, str]]

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")


class _ResponseEvents:
    """Receives what the parser has read."""

    def __init__(self) -> None:
        self.headers: list[tuple[str, str]] = []
        self.chunks: list[bytes] = []
        self.has_head = self.is_complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self.has_head = True

    def on_body(self, body: bytes) -> None:
        self.chunks.append(body)

    def on_message_complete(self) -> None:
        self.is_complete = True


async def _exchange(target: ProxyTarget, message: bytes) -> AsyncGenerator[_Head | bytes, None]:
    """Send the request; yield the head of the response, and then its body. Raises OSError, HttpParserError."""
    context = None
    if target.tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    events = _ResponseEvents()
    parser = httptools.HttpResponseParser(events)
    async with forward_target(target.answer, context) as (reader, writer):
        with contextlib.suppress(ConnectionError):  # the target may answer without reading the request
            writer.write(message)
            await writer.drain()
        is_yielded = False
        while not events.is_complete:
            data = await reader.read(_READ_BYTES)
            if not data:
                break
            parser.feed_data(data)
            if events.has_head and not is_yielded:
                is_yielded = True
                yield _Head(parser.get_status_code(), events.headers)
            for chunk in events.chunks:
                yield chunk
            events.chunks.clear()


async def _body(exchange: AsyncGenerator[_Head | bytes, None]) -> AsyncIterator[bytes]:
    """Yield the body; an error of the target ends it."""
    async with contextlib.aclosing(exchange):
        with contextlib.suppress(OSError, httptools.HttpParserError):
            async for chunk in exchange:
                assert isinstance(chunk, bytes)
                yield chunk
