"""HTTP endpoint of one process: /healthz, /livez, /readyz, /metrics, /configz, and pages that parts of the process add.

Read-only, on loopback by default. Responses are computed on the event loop that they report on: an endpoint that
responds is itself a sign of health. Over loopback, pages reject requests whose Host header is neither localhost nor an
address: a web site whose name resolves to 127.0.0.1 (DNS rebinding) cannot read them.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import ipaddress
import logging
import math
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from kubeloop.devcluster.api.request import JSON_TYPE, ApiRequest, PendingResponse, Response
from kubeloop.devcluster.server.http import HttpServer
from kubeloop.kube.clock import Clock
from kubeloop.kube.user_error import UserError
from kubeloop.process.endpoint.endpoint_listener import listener_url
from kubeloop.process.metrics.metrics_registry import Collector

log = logging.getLogger(__name__)

Check = Callable[[], str | None]
"""Returns None if healthy, else the reason."""

Page = Callable[[Mapping[str, str]], Awaitable[Any] | Any]
"""Query parameters -> a JSON value, str for text, a RawResponse, or a generator of the lines of a long response.

KeyError and UserError become 404; a UserError also carries a hint.
"""

_HEADERS = b"".join(
    b"%s\r\n" % line
    for line in (
        b"Cache-Control: no-store",
        b"Cross-Origin-Resource-Policy: same-origin",
        b"Referrer-Policy: no-referrer",
        b"X-Content-Type-Options: nosniff",
    )
)
_TEXT_TYPE = "text/plain; charset=utf-8"
# Clients of this machine, and those of kubectl port-forward. Not all of 127.0.0.0/8: Istio's proxy forwards requests of
# other machines from 127.0.0.6.
_LOOPBACK_CLIENTS = ("127.0.0.1", "::1", "::ffff:127.0.0.1")


class RawResponse(msgspec.Struct, frozen=True):
    """A response other than JSON: bytes of a media type ("text/css"; text is UTF-8), with additional headers."""

    body: bytes
    content_type: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    status: int = 200


class EndpointServer:
    """The pages of one process. Checks and pages are added before `serving_on()`."""

    def __init__(self, registry: Collector, *, clock: Clock) -> None:
        self.clock = clock  # for the Date header
        self._registry = registry
        self._ready: dict[str, Check] = {}
        self._pages: dict[str, Page] = {}
        self._add_pages: Callable[[], Awaitable[None]] | None = None
        self._adding_pages = asyncio.Lock()
        self._loopback_pages: set[str] = set()
        self._on_loopback = False

    def add_readiness_check(self, name: str, check: Check) -> None:
        """Add a check to /readyz. /livez and /healthz have none: a response is itself a sign of life."""
        self._ready[name] = check

    def add_page(self, path: str, page: Page, *, only_on_loopback: bool = False) -> None:
        """Add a page. only_on_loopback: refused to other machines, whose users need no permission of the cluster."""
        self._pages[path] = page
        if only_on_loopback:
            self._loopback_pages.add(path)

    def add_pages_when_requested(self, add_pages: Callable[[], Awaitable[None]]) -> None:
        """Call `add_pages` before the response to the first request of a page other than health checks and metrics."""
        self._add_pages = add_pages

    @contextlib.asynccontextmanager
    async def serving_on(self, listener: socket.socket) -> AsyncIterator[str]:
        """Serve on an open listener, which the caller closes, for the length of the context, and yield the URL."""
        self._on_loopback = ipaddress.ip_address(listener.getsockname()[0]).is_loopback
        if not self._on_loopback:
            log.warning(
                "the endpoint is not on loopback: every client that reaches it can read metrics and traces",
                extra={"url": listener_url(listener)},
            )
        # a compressed response would not be sent in slices, and most clients are on this machine
        async with HttpServer(self, headers=_HEADERS, gzip_from_bytes=math.inf) as http:
            server = await asyncio.get_running_loop().create_server(http, sock=listener.dup())
            try:
                yield listener_url(listener)
            finally:
                server.close()

    def respond(self, request: ApiRequest) -> Response | PendingResponse:
        """Return the response of a health page; other pages may await."""
        if request.method not in ("GET", "HEAD"):
            return Response(405, b"only GET\n", _TEXT_TYPE, [("Allow", "GET, HEAD")])
        match request.path:
            case "/healthz" | "/livez":
                return _report(request, {})
            case "/readyz":
                return _report(request, self._ready)
        return partial(self._page_response, request)

    async def _page_response(self, request: ApiRequest) -> Response:
        if request.path == "/metrics":
            exposition = await asyncio.to_thread(importlib.import_module, "kubeloop.process.metrics.exposition")
            body, content_type = await exposition.metrics_page(self._registry, request.headers.get("accept", ""))
            return Response(200, body, content_type)
        async with self._adding_pages:
            if self._add_pages is not None:
                await self._add_pages()
                self._add_pages = None
        page = self._pages.get(request.path)
        if page is None:
            paths = "\n".join(["/healthz", "/livez", "/readyz", "/metrics", *sorted(self._pages)])
            return Response(404, f"no such page; there are\n{paths}\n".encode(), _TEXT_TYPE)
        over_loopback = self._on_loopback or request.client_address in _LOOPBACK_CLIENTS
        if over_loopback and not _is_local_host(request.headers.get("host", "")):
            return Response(
                403, b"this endpoint serves this machine only; use localhost or an IP address\n", _TEXT_TYPE
            )
        if not over_loopback and request.path in self._loopback_pages:
            problem = "this page is served over loopback only"
            return Response(403, msgspec.json.encode({"error": problem, "hint": "use kubectl port-forward"}))
        try:
            result = page({name: values[0] for name, values in request.query.items()})
            if isinstance(result, Awaitable):
                result = await result
        except KeyError as error:
            return Response(404, msgspec.json.encode({"error": str(error.args[0])}))
        except UserError as error:
            return Response(404, msgspec.json.encode({"error": str(error), "hint": error.hint}))
        except Exception:
            log.exception("page failed", extra={"path": request.path})
            return Response(500, b"the page failed; see the log of the process\n", _TEXT_TYPE)
        if isinstance(result, AsyncGenerator):
            return Response(200, _lines(result), "application/x-ndjson")
        if isinstance(result, RawResponse):
            charset = "; charset=utf-8" if result.content_type.startswith("text/") else ""
            return Response(result.status, result.body, f"{result.content_type}{charset}", list(result.headers.items()))
        if isinstance(result, str):
            return Response(200, result.encode(), _TEXT_TYPE)
        return Response(200, msgspec.json.encode(result), JSON_TYPE)


async def _lines(values: AsyncGenerator[Any, None]) -> AsyncGenerator[bytes, None]:
    """Yield each value as a line of JSON as soon as it exists: one value is in memory, and a slow client delays only
    it."""
    async with contextlib.aclosing(values) as stream:
        async for value in stream:
            yield msgspec.json.encode(value) + b"\n"


def _is_local_host(host: str) -> bool:
    """Return True if a Host header (with or without port) is "localhost" or an address."""
    name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
    if name.lower().rstrip(".") == "localhost" or name.lower().endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _report(request: ApiRequest, checks: Mapping[str, Check]) -> Response:
    """Return the response of a health page, in the format of Kubernetes' components (`?verbose` lists the checks)."""
    results = {name: check() for name, check in checks.items()}
    failed = {name: reason for name, reason in results.items() if reason is not None}
    lines = [f"[-]{name} failed: {results[name]}" if name in failed else f"[+]{name} ok" for name in results]
    if failed:
        text = "\n".join([*lines, f"{request.path[1:]} check failed"]) + "\n"
        return Response(500, text.encode(), _TEXT_TYPE)
    if "verbose" in request.query:
        text = "\n".join([*lines, f"{request.path[1:]} check passed"]) + "\n"
        return Response(200, text.encode(), _TEXT_TYPE)
    return Response(200, b"ok", _TEXT_TYPE)
