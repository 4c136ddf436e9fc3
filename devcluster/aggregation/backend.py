"""One aggregated API server: requests are passed on with the identity of their user, as a front proxy does.

Source: kube-aggregator pkg/apiserver/handler_proxy.go, client-go transport/round_trippers.go of v1.36.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from kubeloop.devcluster.api.request import Request, Response, text_response
from kubeloop.devcluster.authentication.front_proxy import FrontProxy
from kubeloop.devcluster.outgoing.service_addresses import Address, ServiceAddresses, UnresolvedService
from kubeloop.devcluster.outgoing.webhook_client import go_message
from kubeloop.kube.client.endpoint import Endpoint
from kubeloop.kube.client.tls_verification import client_context
from kubeloop.kube.client.transport import HttpRequest, HttpResponse, TransportError
from kubeloop.kube.json_object import JSON

if TYPE_CHECKING:
    from kubeloop.kube.client.asyncio_transport import AsyncioTransport

_NOT_PASSED_ON = frozenset(
    {
        # of this connection; a compressed response would be compressed again
        "accept-encoding", "connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding",
        "upgrade",
        # credentials of the user
        "authorization",
    }
)  # fmt: skip
_NOT_RETURNED = frozenset(
    {"audit-id", "cache-control", "connection", "content-length", "content-type", "date", "transfer-encoding"}
)
_AGGREGATOR = {"username": "system:kube-aggregator", "groups": ["system:masters"]}
_UNAVAILABLE = "service unavailable\n"
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

    def __init__(self, spec: JSON, addresses: ServiceAddresses, front_proxy: FrontProxy | None) -> None:
        """spec: of the APIService. front_proxy: has the certificate by which the API server knows this one.

        `is_available` is the result of the last check by the Aggregator.
        """
        self.spec = spec
        self._addresses = addresses
        self._front_proxy = front_proxy
        self.is_available = False
        self._transports: dict[Address, AsyncioTransport] = {}

    @property
    def host(self) -> str:
        service = self.spec["service"]
        return f"{service['name']}.{service['namespace']}.svc"

    async def pass_on(self, request: Request) -> Response:
        """Return the response of the API server; 503 if there is none."""
        headers = {
            name: value
            for name, value in request.headers.items()
            if name not in _NOT_PASSED_ON and not name.startswith(("impersonate-", "x-remote-"))
        }
        query = urlencode(sorted(request.query.items()), doseq=True)
        target = quote(request.path, safe="/:@!$&'()*+,;=~") + (f"?{query}" if query else "")
        identified = _Headers({**headers, "x-forwarded-for": "127.0.0.1"}, _identity(request.user))
        try:
            address, transport = self._connect()
        except (UnresolvedService, ValueError):
            return text_response(503, _UNAVAILABLE)
        async with AsyncExitStack() as stack:
            try:
                streamed = await stack.enter_async_context(
                    transport.stream(HttpRequest(request.method, target, identified, request.body))
                )
                received = dict(streamed.headers.items())
                content: bytes | AsyncIterator[bytes] = b""
                if "content-length" in received or request.method == "HEAD" or streamed.status in (204, 304):
                    content = b"".join([chunk async for chunk in streamed.chunks])
                else:
                    content = _stream(streamed.chunks, stack.pop_all())
            except TransportError as error:
                return text_response(503, f"{go_message(error, address)}\n")
            except ValueError:  # a name of the user contains a line break
                return text_response(503, "net/http: invalid header field value\n")
            returned = [(name, value) for name, value in received.items() if name not in _NOT_RETURNED]
            media_type, caching = received.get("content-type", ""), received.get("cache-control", "")
            return Response(streamed.status, content, media_type, returned, caching=caching)
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
            verify = not self.spec.get("insecureSkipTLSVerify")
            ca = b64decode(self.spec.get("caBundle") or "").decode()
            context = client_context(ca or None, verify=verify)
            if self._front_proxy is not None:
                self._front_proxy.load_client_certificate(context)
            endpoint = Endpoint(self.host, self.spec["service"]["port"], context, address=address)
            transport = self._transports[address] = AsyncioTransport(endpoint, http2=False)
        return address, transport

    async def close(self) -> None:
        """Close all connections."""
        for transport in self._transports.values():
            await transport.close()
        self._transports.clear()


async def _stream(chunks: AsyncIterator[bytes], stack: AsyncExitStack) -> AsyncIterator[bytes]:
    """Yield the body of a response, and close it at the end."""
    async with stack:
        async for chunk in chunks:
            yield bytes(chunk)


def _identity(user: JSON) -> list[tuple[str, str]]:
    """Return the headers that name a user to an API server behind a front proxy."""
    headers = [("X-Remote-User", user["username"])]
    if uid := user.get("uid"):
        headers.append(("X-Remote-Uid", uid))
    headers += [("X-Remote-Group", group) for group in user.get("groups") or ()]
    for key, values in sorted((user.get("extra") or {}).items()):
        headers += [(f"X-Remote-Extra-{quote(key, safe=_UNESCAPED)}", value) for value in values]
    return [(name, value.encode().decode("latin-1")) for name, value in headers]  # sent as UTF-8
