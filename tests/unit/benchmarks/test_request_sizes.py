"""benchmarks/request_sizes.py: what the proxy counts."""

from __future__ import annotations

import ssl
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import ClientSession, TCPConnector, web
from yarl import URL

from support.comparison.real_apiserver import Authority

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

from request_sizes import Kind, Traffic, counting_proxy, kind_of

LOAD = "/api/v1/namespaces/load"


@pytest.mark.parametrize(
    ("method", "path", "kind", "namespace"),
    [
        ("POST", f"{LOAD}/pods", "create pods", "load"),
        ("POST", f"{LOAD}/pods/web-1/binding", "create pods/binding", "load"),
        ("PATCH", "/apis/apps/v1/namespaces/load/deployments/web/status", "patch deployments/status", "load"),
        ("GET", "/apis/apps/v1/deployments?watch=true&resourceVersion=1", "watch deployments", ""),
        ("GET", "/api/v1/nodes/n", "read nodes", ""),
        ("POST", "/api/v1/namespaces", "create namespaces", ""),
        ("DELETE", "/api/v1/namespaces/load", "delete namespaces", ""),
    ],
)
def test_kind_of_request(method, path, kind, namespace):
    url, headers = URL(path), {"User-Agent": "kubeloop/0.2 (x)"}
    request = SimpleNamespace(method=method, path=url.path, query=url.query, headers=headers)
    assert kind_of(request) == (Kind("kubeloop", *kind.split()), namespace)


@dataclass
class Server:
    """The attributes of a RealApiServer that the proxy reads."""

    url: str
    authority: Authority
    ca: Path


@pytest.fixture
async def server(tmp_path):
    """A server that responds to a watch with two chunks, and to all else with ten bytes."""

    async def respond(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(body=b"0123456789", status=201)
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in (b"first\n", b"second\n"):
            await response.write(chunk)
        return response

    authority = Authority(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*authority.sign("server", user="server", server=True))
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", respond)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    yield Server(f"https://127.0.0.1:{runner.addresses[0][1]}", authority, authority.certificate)
    await runner.cleanup()


async def test_proxy_counts_requests_of_the_namespace_and_all_watches(server):
    tls = ssl.create_default_context(cafile=str(server.ca))
    async with counting_proxy(server) as (counter, url), ClientSession(connector=TCPConnector(ssl=tls)) as session:

        async def send(method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
            async with session.request(method, url + path, data=body, headers={"User-Agent": "c"}) as response:
                return response.status, await response.read()

        assert await send("POST", f"{LOAD}/pods", b"before") == (201, b"0123456789")
        counter.namespace = "load"
        assert await send("POST", f"{LOAD}/pods", b"body") == (201, b"0123456789")
        assert await send("POST", "/api/v1/namespaces/other/pods", b"body") == (201, b"0123456789")
        assert await send("GET", "/api/v1/pods?watch=1") == (200, b"first\nsecond\n")
        assert counter.traffic == {
            Kind("c", "create", "pods"): Traffic(requests=1, sent=4, received=10),
            Kind("c", "watch", "pods"): Traffic(requests=1, sent=0, received=13),
        }
        assert counter.table(pods=2).splitlines()[2:] == [
            "| c | create pods | 0.500 | 2 | 5 |",
            "| c | watch pods |  | 0 | 6 |",
        ]
