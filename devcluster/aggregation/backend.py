"""One aggregated API server: requests are passed on with the identity of their user, as a front proxy does.

Source: kube-aggregator pkg/apiserver/handler_proxy.go, client-go transport/round_trippers.go of v1.36.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import msgspec

from kubeloop.devcluster.aggregation.proxy_settings import DEFAULT_SETTINGS, ProxySettings
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import ApiRequest, Response, text_response
from kubeloop.devcluster.authentication.front_proxy import FrontProxy
from kubeloop.devcluster.outgoing.http_exchange import OF_CONNECTION, HttpExchange, request_message, wants_upgrade
from kubeloop.devcluster.outgoing.service_addresses import Address, ServiceAddresses, UnresolvedService
from kubeloop.devcluster.outgoing.webhook_client import go_message
from kubeloop.kube.client.endpoint import Endpoint
from kubeloop.kube.client.tls_verification import client_context
from kubeloop.kube.client.transport import HttpRequest, HttpResponse, TransportError
from kubeloop.kube.json_object import JSON

if TYPE_CHECKING:
    from kubeloop.kube.client.asyncio_transport import AsyncioTransport

_NOT_PASSED_ON = OF_CONNECTION | {
    "accept-encoding",  # a compressed response would be compressed again
    "authorization",
    "host",
}
_NOT_RETURNED = frozenset(
    {"audit-id", "cache-control", "connection", "content-length", "content-type", "date", "transfer-encoding"}
)
_AGGREGATOR = {"username": "system:kube-aggregator", "groups": ["system:masters"]}
_REDIRECTED = b"the backend attempted to redirect this request, which is not permitted"
_REQUEST_SECONDS = 60.0  # until the response begins, unless it is a watch
_UNESCAPED = "!#$&'*+-.^_`|~"  # of the characters of a header's name


class _Headers(dict[str, str]):
    """Headers of which some names occur more than once: those of `repeated`."""

    def __init__(self, headers: Mapping[str, str], repeated: Iterable[tuple[str, str]]) -> None:
        super().__init__(headers)
        self._repeated = tuple(repeated)

    def items(self) -> Any:
        return (*super().items(), *self._repeated)


class Backend:
    """Connections to the API server of one APIService. Used on one event loop."""

    def __init__(
        self,
        spec: JSON,
        addresses: ServiceAddresses,
        front_proxy: FrontProxy | None,
        settings: ProxySettings = DEFAULT_SETTINGS,
    ) -> None:
        """spec: of the APIService. front_proxy: has the certificate by which the API server knows this one.

        `is_available` is the result of the last check by the Aggregator.
        """
        self._settings = settings
        self.spec = spec
        self._addresses = addresses
        self._front_proxy = front_proxy
        self.is_available = False
        self._transports: dict[Address, AsyncioTransport] = {}

    @property
    def host(self) -> str:
        service = self.spec["service"]
        return f"{service['name']}.{service['namespace']}.svc"

    async def pass_on(self, request: ApiRequest) -> Response:
        """Return the response of the API server; 503 if there is none. Raises StatusError 504 if it does not respond.

        A request for another protocol (WebSocket, SPDY) joins the client with the API server.
        """
        query = urlencode(sorted(request.query.items()), doseq=True)
        target = quote(request.path, safe="/:@!$&'()*+,;=~") + (f"?{query}" if query else "")
        try:
            if wants_upgrade(request):
                return await self._upgrade(request, target)
            return await self._stream(request, target)
        except UnresolvedService:
            return text_response(503, "service unavailable\n")
        except ValueError:  # a name of the user contains a line break
            return text_response(503, "net/http: invalid header field value\n")

    async def _stream(self, request: ApiRequest, target: str) -> Response:
        address, transport = self._connect()
        headers = _passed_headers(request) | {
            "x-forwarded-host": self._endpoint.authority,
            "x-forwarded-proto": "https",
            "x-forwarded-uri": target.partition("?")[0],
        }
        sent = HttpRequest(request.method, target, _Headers(headers, _identity(request.user)), request.body)
        is_watch = request.flag("watch") or "/watch/" in request.path
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(None if is_watch else _REQUEST_SECONDS):
                    streamed = await stack.enter_async_context(transport.stream(sent))
                received = dict(streamed.headers.items())
                is_complete = "content-length" in received or request.method == "HEAD" or streamed.status in (204, 304)
                body = b"".join([chunk async for chunk in streamed.chunks]) if is_complete else b""
            except TimeoutError:
                raise errors.timeout("request did not complete within the allotted timeout") from None
            except TransportError as error:
                return text_response(503, f"{go_message(error, address)}\n")
            if 300 <= streamed.status < 400 and "location" in received and self._settings.refuses_redirects:
                return Response(502, _REDIRECTED, "text/plain; charset=utf-8")
            content = body if is_complete else _chunks(streamed.chunks, stack.pop_all())
            returned = [(name, value) for name, value in received.items() if name not in _NOT_RETURNED]
            media_type, caching = received.get("content-type", ""), received.get("cache-control", "")
            return Response(streamed.status, content, media_type, returned, caching=caching)
        raise AssertionError  # the context suppresses no exception

    async def _upgrade(self, request: ApiRequest, target: str) -> Response:
        address = self.address()
        headers = [
            ("host", self._endpoint.authority),
            *_passed_headers(request).items(),
            ("connection", "Upgrade"),
            ("upgrade", request.headers.get("upgrade", "")),
            *_identity(request.user),
        ]
        message = request_message(request.method, target, headers, request.body)
        async with AsyncExitStack() as stack:
            try:
                tls = self._endpoint.tls
                reader, writer = await asyncio.open_connection(*address, ssl=tls, server_hostname=self.host)
                stack.callback(writer.close)
                exchange = HttpExchange(reader, writer)
                status = await exchange.send(message)
            except (OSError, EOFError, ValueError) as error:
                failure = TransportError(str(error), request_sent=True)
                failure.__cause__ = error
                return text_response(503, f"error dialing backend: {go_message(failure, address)}\n")
            if status == 101:
                return exchange.upgrade(stack.pop_all())
            if status < 400:
                return text_response(503, f"invalid upgrade response: status code {status}\n")
            returned = [(name, value) for name, value in exchange.headers if name.lower() not in _NOT_RETURNED]
            content = b"".join([chunk async for chunk in exchange.body()])
            return Response(status, content, exchange.header("content-type"), returned)
        raise AssertionError  # the context suppresses no exception

    async def get(
        self, path: str, headers: Mapping[str, str], seconds: float, user: JSON = _AGGREGATOR
    ) -> HttpResponse:
        """Send a request of this server itself. Raises TimeoutError, TransportError, UnresolvedService, ValueError."""
        _, transport = self._connect()
        async with asyncio.timeout(seconds):
            return await transport.send(HttpRequest("GET", path, _Headers(headers, _identity(user))))

    def address(self) -> Address:
        """Return the present address of the API server. Raises UnresolvedService."""
        service = self.spec["service"]
        return self._addresses.of_service(service["namespace"], service["name"], service["port"])

    def _connect(self) -> tuple[Address, AsyncioTransport]:
        from kubeloop.kube.client.asyncio_transport import AsyncioTransport  # few clusters have aggregated servers

        address = self.address()
        if (transport := self._transports.get(address)) is None:
            endpoint = msgspec.structs.replace(self._endpoint, address=address)
            transport = self._transports[address] = AsyncioTransport(
                endpoint, http2=False, stream_start_seconds=math.inf
            )
        return address, transport

    @cached_property
    def _endpoint(self) -> Endpoint:
        """The API server without its address. Raises ValueError for an invalid certificate authority."""
        verify = not self.spec.get("insecureSkipTLSVerify")
        ca = b64decode(self.spec.get("caBundle") or "").decode()
        try:
            context = client_context(ca or None, verify=verify)
        except ssl.SSLError as error:
            raise ValueError(f"unable to load root certificates: {error}") from None
        if self._settings.client_pem:
            from kubeloop.kube.auth.certificate_authority import load_certificate

            load_certificate(context, self._settings.client_pem)
        elif self._front_proxy is not None:
            self._front_proxy.load_client_certificate(context)
        return Endpoint(self.host, self.spec["service"]["port"], context)

    async def close(self) -> None:
        """Close all connections."""
        for transport in self._transports.values():
            await transport.close()
        self._transports.clear()


async def _chunks(chunks: AsyncIterator[bytes], stack: AsyncExitStack) -> AsyncIterator[bytes]:
    """Yield the body of a response, and close it at the end."""
    async with stack:
        async for chunk in chunks:
            yield bytes(chunk)


def _passed_headers(request: ApiRequest) -> dict[str, str]:
    """Return the headers of a request for another server: without credentials and those of the connection."""
    dropped = {name.strip() for name in request.headers.get("connection", "").lower().split(",")} | _NOT_PASSED_ON
    headers = {
        name: value
        for name, value in request.headers.items()
        if name not in dropped and not name.startswith(("impersonate-", "x-remote-"))
    }
    addresses = [headers.get("x-forwarded-for", ""), request.client_address]
    return headers | {"x-forwarded-for": ", ".join(filter(None, addresses))}


def _identity(user: JSON) -> list[tuple[str, str]]:
    """Return the headers that name a user to an API server behind a front proxy."""
    headers = [("X-Remote-User", user["username"])]
    if uid := user.get("uid"):
        headers.append(("X-Remote-Uid", uid))
    headers += [("X-Remote-Group", group) for group in user.get("groups") or ()]
    for key, values in sorted((user.get("extra") or {}).items()):
        headers += [(f"X-Remote-Extra-{quote(key, safe=_UNESCAPED)}", value) for value in values]
    return [(name, value.encode().decode("latin-1")) for name, value in headers]  # sent as UTF-8
