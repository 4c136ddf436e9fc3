"""The subresource proxy: HTTP requests to pods, Services and nodes, passed to the configured targets of port-forward.

Source: apimachinery pkg/util/proxy (upgradeaware.go, transport.go), pkg/registry/core/{pod,service,node} of v1.36.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote, urlencode

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import ApiRequest, Response
from kubeloop.devcluster.handlers.containers.port_forward import forward_target
from kubeloop.devcluster.kubelet.containers.container_answers import PortForwardAnswer
from kubeloop.devcluster.outgoing.http_exchange import OF_CONNECTION, HttpExchange, request_message, wants_upgrade

_NOT_SENT = OF_CONNECTION | {"authorization", "expect", "host"}


class ProxyTarget(NamedTuple):
    """Target of a request. host: for its header. tls: connect with TLS, without verifying the certificate."""

    answer: PortForwardAnswer
    host: str
    tls: bool = False


async def proxy(request: ApiRequest, prefix: str, target: ProxyTarget) -> Response:
    """Send the request to the target and return its response. prefix: of the path, up to and with "/proxy".

    Raises StatusError 503 for a target that does not answer, 500 for one that does not change the protocol.
    """
    path = request.path[len(prefix) :]
    query = f"?{urlencode(request.query, doseq=True)}" if request.query else ""
    if not path and request.method in ("GET", "HEAD"):
        return Response(301, b"", "", [("Location", f"{_escaped(request.path)}/{query}")])
    headers = [
        ("host", target.host),
        ("content-length", str(len(request.body))),
        *((name, value) for name, value in request.headers.items() if name not in _NOT_SENT),
    ]
    if upgrades := wants_upgrade(request):
        headers += [("connection", "Upgrade"), ("upgrade", request.headers.get("upgrade", ""))]
    else:
        headers += [("connection", "close"), ("x-forwarded-uri", _escaped(request.path))]
    async with contextlib.AsyncExitStack() as stack:
        try:
            stream = await stack.enter_async_context(forward_target(target.answer, _context(target)))
            exchange = HttpExchange(*stream)
            message = request_message(request.method, f"{_escaped(path or '/')}{query}", headers, request.body)
            status = await exchange.send(message)
        except (OSError, EOFError, ValueError) as error:
            if upgrades:
                raise errors.internal(f"error dialing backend: {error}") from None
            raise errors.StatusError(503, "ServiceUnavailable", f"error trying to reach service: {error}") from None
        if upgrades and status == HTTPStatus.SWITCHING_PROTOCOLS:
            return exchange.upgrade(stack.pop_all())
        if upgrades and status < HTTPStatus.BAD_REQUEST:
            raise errors.internal(f"invalid upgrade response: status code {status}")
        if status < HTTPStatus.OK:
            raise errors.StatusError(503, "ServiceUnavailable", f"the target has sent the status {status}")
        return Response(
            status,
            b"" if request.method == "HEAD" else _body(exchange, stack.pop_all()),
            exchange.header("content-type"),
            [
                (name, f"{_escaped(prefix)}{value}" if name.lower() == "location" and value.startswith("/") else value)
                for name, value in exchange.headers
                if name.lower() not in OF_CONNECTION and name.lower() != "content-type"
            ],
        )
    raise AssertionError  # the context suppresses no exception


async def _body(exchange: HttpExchange, resources: contextlib.AsyncExitStack) -> AsyncIterator[bytes]:
    async with resources:
        async for chunk in exchange.body():
            yield chunk


def _context(target: ProxyTarget) -> ssl.SSLContext | None:
    if not target.tls:
        return None
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _escaped(path: str) -> str:
    return quote(path, safe="/:@")
