"""The process' own HTTP endpoint: /healthz /livez /readyz /metrics /configz, the traces that `kubeloop trace` asks, and
their page for browsers.

Read-only, on loopback unless told otherwise. Answers are computed on the event loop that it reports on: an endpoint
that answers is itself a sign of health. On loopback, pages answer only who calls this machine by a name of its own: a
web page of somebody else, whose name suddenly means 127.0.0.1 (DNS rebinding), does not get to read them.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from kubeloop.kube.errors import UserError

Check = Callable[[], str | None]
"""None if all is well, else what is wrong."""

Page = Callable[[Mapping[str, str]], Awaitable[Any] | Any]
"""Query parameters -> a JSON value, str for text, a File, or a generator of the lines of a long answer.

KeyError means: not found; so does UserError, which also says what to try.
"""

_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class File:
    """An answer that is no JSON: bytes of a media type ("text/css"; text is UTF-8), with headers of its own."""

    body: bytes
    content_type: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Endpoint:
    """The pages of one process. Parts add checks and pages before `serving()`."""

    def __init__(self, registry: CollectorRegistry) -> None:
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
        runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, address, port)
        try:
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise UserError(
                f"cannot listen on {address} port {port}: {error.strerror}",
                hint="choose another port with --endpoint-port, or 0 for a free one",
            ) from None
        try:
            bound_address, bound_port = runner.addresses[0][:2]
            self._on_loopback = ipaddress.ip_address(bound_address).is_loopback
            yield f"http://{bound_address}:{bound_port}"
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, text="only GET\n", headers={"Allow": "GET, HEAD"})
        match request.path:
            case "/healthz" | "/livez":
                return _report(request, self._live)
            case "/readyz":
                return _report(request, self._live | self._ready)
            case "/metrics":
                encode, content_type = choose_encoder(request.headers.get("Accept", ""))  # exemplars: OpenMetrics only
                return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})
        page = self._pages.get(request.path)
        if page is None:
            known = "\n".join(["/healthz", "/livez", "/readyz", "/metrics", *sorted(self._pages)])
            return web.Response(status=404, text=f"no such page; there are\n{known}\n")
        if self._on_loopback and not _names_this_machine(request.host):
            return web.Response(status=403, text="this endpoint is for this machine: call it by its address\n")
        try:
            answer = page(request.query)
            if isinstance(answer, Awaitable):
                answer = await answer
        except KeyError as error:
            return web.json_response({"error": str(error.args[0])}, status=404, headers=_HEADERS)
        except UserError as error:
            return web.json_response({"error": str(error), "hint": error.hint}, status=404, headers=_HEADERS)
        if isinstance(answer, AsyncGenerator):
            return await _stream(request, answer)
        if isinstance(answer, File):
            headers = {**_HEADERS, **answer.headers}
            charset = "utf-8" if answer.content_type.startswith("text/") else None
            return web.Response(body=answer.body, content_type=answer.content_type, charset=charset, headers=headers)
        if isinstance(answer, str):
            return web.Response(text=answer, headers=_HEADERS)
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json", headers=_HEADERS)


async def _stream(request: web.BaseRequest, lines: AsyncGenerator[Any, None]) -> web.StreamResponse:
    """A JSON value on each line, sent as they come: memory holds one, and a reader who is slow slows only this down."""
    response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    async with contextlib.aclosing(lines) as each:
        async for line in each:
            await response.write(msgspec.json.encode(line) + b"\n")
    await response.write_eof()
    return response


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


def _report(request: web.BaseRequest, checks: Mapping[str, Check]) -> web.Response:
    """The answer of a health page, in the form of Kubernetes' components (`?verbose` lists the checks)."""
    results = {name: check() for name, check in checks.items()}
    failed = {name: reason for name, reason in results.items() if reason is not None}
    lines = [f"[-]{name} failed: {results[name]}" if name in failed else f"[+]{name} ok" for name in results]
    if failed:
        return web.Response(status=500, text="\n".join([*lines, f"{request.path[1:]} check failed"]) + "\n")
    if "verbose" in request.query:
        return web.Response(text="\n".join([*lines, f"{request.path[1:]} check passed"]) + "\n")
    return web.Response(text="ok")
