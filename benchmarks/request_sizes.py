"""Requests of each client and their bytes, counted by a proxy in front of a kube-apiserver.

The proxy has the server's certificate authority, so that clients only need another address in their kubeconfig. It
offers HTTP/1.1 only. Bytes are those of bodies, as sent: JSON or protobuf.
"""

from __future__ import annotations

import contextlib
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web
from yarl import URL

_HOP_HEADERS = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_ANY_SIZE = 1 << 30


class Kind(NamedTuple):
    """Kind of a request. resource: with the subresource ("pods/binding"). client: the start of its user agent."""

    client: str
    verb: str
    resource: str


@dataclass
class Traffic:
    """Number of requests, and bytes of their bodies and responses. A watch counts when it is opened."""

    requests: int = 0
    sent: int = 0
    received: int = 0


@dataclass
class RequestCounter:
    """Counts the requests about objects of a namespace, and all watches.

    namespace: "": count nothing.
    """

    namespace: str = ""
    traffic: defaultdict[Kind, Traffic] = field(default_factory=lambda: defaultdict(Traffic))

    def of(self, request: web.Request) -> Traffic:
        """Return where `request` counts; called for each chunk of a watch."""
        kind, namespace = kind_of(request)
        counts = self.namespace and (namespace == self.namespace or kind.verb == "watch")
        return self.traffic[kind] if counts else Traffic()

    def table(self, pods: int) -> str:
        """Return a table of requests and bytes per pod, most bytes first."""
        lines = ["| client | request | requests per pod | bytes sent | received |", "|---|---|---|---|---|"]
        entries = sorted(self.traffic.items(), key=lambda entry: (entry[0].client, -entry[1].sent - entry[1].received))
        for kind, traffic in entries:
            count = f"{traffic.requests / pods:.3f}" if kind.verb != "watch" else ""
            sizes = f"{traffic.sent / pods:,.0f} | {traffic.received / pods:,.0f}"
            if traffic.requests or traffic.received:
                lines.append(f"| {kind.client} | {kind.verb} {kind.resource} | {count} | {sizes} |")
        return "\n".join(lines)


def kind_of(request: web.Request) -> tuple[Kind, str]:
    """Return the kind of a request, and the namespace of its object ("" for none)."""
    parts = request.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = parts[1] if len(parts) > 2 and parts[0] == "namespaces" else ""
    plural, _, subresource = (*(parts[2:] if namespace else parts), "", "", "")[:3]
    verb = _VERBS.get(request.method) or ("watch" if request.query.get("watch") in {"1", "true"} else "read")
    client = request.headers.get("User-Agent", "").partition("/")[0]
    return Kind(client, verb, f"{plural}/{subresource}" if subresource else plural), namespace


@contextlib.asynccontextmanager
async def counting_proxy(server: Any) -> AsyncIterator[tuple[RequestCounter, str]]:
    """Run a proxy to `server`, a RealApiServer. Yields its counter and URL."""
    counter = RequestCounter()
    certificate, key = server.authority.sign("proxy", user="proxy", server=True)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    to_server = TCPConnector(limit=0, ssl=ssl.create_default_context(cafile=str(Path(server.ca))))
    async with ClientSession(connector=to_server, cookie_jar=DummyCookieJar(), auto_decompress=False) as session:

        async def forward(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            async with session.request(
                request.method,
                URL(server.url + request.raw_path, encoded=True),
                data=body or None,
                headers={name: value for name, value in request.headers.items() if name.lower() not in _HOP_HEADERS},
                timeout=ClientTimeout(total=None),
                allow_redirects=False,
            ) as answer:
                traffic = counter.of(request)
                traffic.requests += 1
                traffic.sent += len(body)
                headers = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_HEADERS}
                response = web.StreamResponse(status=answer.status, headers=headers)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    counter.of(request).received += len(chunk)
                    await response.write(chunk)
                await response.write_eof()
                return response

        application = web.Application(client_max_size=_ANY_SIZE)
        application.router.add_route("*", "/{path:.*}", forward)
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
            await site.start()
            port = runner.addresses[0][1]
            yield counter, f"https://127.0.0.1:{port}"
        finally:
            await runner.cleanup()
