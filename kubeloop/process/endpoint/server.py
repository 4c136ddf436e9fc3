"""The process' own HTTP endpoint: /healthz /livez /readyz /metrics /configz, the traces that `kubeloop trace` asks, and
their page for browsers.

Read-only, on loopback unless told otherwise. Answers are computed on the event loop that it reports on: an endpoint
that answers is itself a sign of health. On loopback, pages answer only who calls this machine by a name of its own: a
web page of somebody else, whose name suddenly means 127.0.0.1 (DNS rebinding), does not get to read them.
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
from typing import Any

import msgspec

from kubeloop.devcluster.api.request import JSON_TYPE, Request, Response
from kubeloop.devcluster.server.http import HttpServer
from kubeloop.kube.clock import Clock
from kubeloop.kube.errors import UserError
from kubeloop.process.endpoint.listening_socket import listening_socket, url_of
from kubeloop.process.metrics.registry import Collector

log = logging.getLogger(__name__)

Check = Callable[[], str | None]
"""None if all is well, else what is wrong."""

Page = Callable[[Mapping[str, str]], Awaitable[Any] | Any]
"""Query parameters -> a JSON value, str for text, a File, or a generator of the lines of a long answer.

KeyError means: not found; so does UserError, which also says what to try.
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


class File(msgspec.Struct, frozen=True):
    """An answer that is no JSON: bytes of a media type ("text/css"; text is UTF-8), with headers of its own."""

    body: bytes
    content_type: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


class Endpoint:
    """The pages of one process. Parts add checks and pages before `serving()`."""

    def __init__(self, registry: Collector, *, clock: Clock) -> None:
        self.clock = clock  # for the answers' Date
        self._registry = registry
        self._live: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}
        self._pages: dict[str, Page] = {}
        self._on_loopback = False

    def add_liveness_check(self, name: str, check: Check) -> None:
        """Part of /livez and /healthz."""
        self._live[name] = check

    def add_readiness_check(self, name: str, check: Check) -> None:
        """Part of /readyz, which also has all liveness checks."""
        self._ready[name] = check

    def add_page(self, path: str, page: Page) -> None:
        self._pages[path] = page

    @contextlib.asynccontextmanager
    async def serving(self, address: str, port: int) -> AsyncIterator[str]:
        """Serve for the length of the context; gives the URL. Raises UserError if the port is taken."""
        with listening_socket(address, port) as listening:
            async with self.serving_on(listening) as url:
                yield url

    @contextlib.asynccontextmanager
    async def serving_on(self, listening: socket.socket) -> AsyncIterator[str]:
        """The same with a socket that listens already, and is the caller's to close."""
        self._on_loopback = ipaddress.ip_address(listening.getsockname()[0]).is_loopback
        # what is packed would not be sent in slices, and whoever asks is mostly on this machine
        async with HttpServer(self, headers=_HEADERS, gzip_from_bytes=math.inf) as http:
            accepting = await asyncio.get_running_loop().create_server(http, sock=listening.dup())
            try:
                yield url_of(listening)
            finally:
                accepting.close()

    def at_once(self, request: Request) -> Response | None:
        """Health pages; the others may take time."""
        if request.method not in ("GET", "HEAD"):
            return Response(405, b"only GET\n", _TEXT_TYPE, [("Allow", "GET, HEAD")])
        match request.path:
            case "/healthz" | "/livez":
                return _report(request, self._live)
            case "/readyz":
                return _report(request, self._live | self._ready)
        return None

    async def handle(self, request: Request) -> Response:
        if request.path == "/metrics":
            exposition = await asyncio.to_thread(importlib.import_module, "prometheus_client.exposition")
            # exemplars: OpenMetrics only
            encode, content_type = exposition.choose_encoder(request.headers.get("accept", ""))
            return Response(200, encode(self._registry), content_type)
        page = self._pages.get(request.path)
        if page is None:
            known = "\n".join(["/healthz", "/livez", "/readyz", "/metrics", *sorted(self._pages)])
            return Response(404, f"no such page; there are\n{known}\n".encode(), _TEXT_TYPE)
        if self._on_loopback and not _names_this_machine(request.headers.get("host", "")):
            return Response(403, b"this endpoint is for this machine: call it by its address\n", _TEXT_TYPE)
        try:
            answer = page({name: values[0] for name, values in request.query.items()})
            if isinstance(answer, Awaitable):
                answer = await answer
        except KeyError as error:
            return Response(404, msgspec.json.encode({"error": str(error.args[0])}))
        except UserError as error:
            return Response(404, msgspec.json.encode({"error": str(error), "hint": error.hint}))
        except Exception:
            log.exception("a page failed", extra={"path": request.path})
            return Response(500, b"the page failed; the log says why\n", _TEXT_TYPE)
        if isinstance(answer, AsyncGenerator):
            return Response(200, _lines(answer), "application/x-ndjson")
        if isinstance(answer, File):
            charset = "; charset=utf-8" if answer.content_type.startswith("text/") else ""
            return Response(200, answer.body, f"{answer.content_type}{charset}", list(answer.headers.items()))
        if isinstance(answer, str):
            return Response(200, answer.encode(), _TEXT_TYPE)
        return Response(200, msgspec.json.encode(answer), JSON_TYPE)


async def _lines(values: AsyncGenerator[Any, None]) -> AsyncGenerator[bytes, None]:
    """A JSON value on each line, sent as they come: memory holds one, and a reader who is slow slows only this down."""
    async with contextlib.aclosing(values) as each:
        async for value in each:
            yield msgspec.json.encode(value) + b"\n"


def _names_this_machine(host: str) -> bool:
    """`host`: of the Host header, with or without a port. "localhost", or an address."""
    name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
    if name.lower().rstrip(".") == "localhost" or name.lower().endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _report(request: Request, checks: Mapping[str, Check]) -> Response:
    """The answer of a health page, in the form of Kubernetes' components (`?verbose` lists the checks)."""
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
