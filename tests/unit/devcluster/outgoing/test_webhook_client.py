"""Calls of webhooks: requests, TLS names of Services, errors with Go's texts."""

from __future__ import annotations

import asyncio
import socket
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from kubeloop.devcluster.outgoing.service_addresses import ServiceAddresses, parse_addresses
from kubeloop.devcluster.outgoing.webhook_client import CallFailed, WebhookClient
from kubeloop.devcluster.outgoing.webhook_credentials import WebhookCredentials
from kubeloop.devcluster.storage.store import ObjectStore
from support.apiserver.certificates import Issued, issue

JSON = dict[str, Any]
CA = issue("ca", authority=True)
SERVER = issue("server", CA, hosts=("web.a.svc", "127.0.0.1"))
OTHER_NAME = issue("server", CA, hosts=("other.a.svc", "127.0.0.1"))
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """A webhook server. handle: its next responses."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes]] = []
        self.connections: set[Any] = set()
        self.handle: Handler = self.ok
        self.port = 0

    async def ok(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(text="{}")

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(request, web.BaseRequest)
        self.requests.append((request.path_qs, request.headers["host"], await request.read()))
        self.connections.add(request.transport)
        return await self.handle(request)  # type: ignore[arg-type]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with _running(SERVER) as server:
        yield server


class _running:  # noqa: N801 # a context manager
    def __init__(self, certificate: Issued | None) -> None:
        self._certificate = certificate

    async def __aenter__(self) -> Server:
        server = Server()
        self._runner = web.ServerRunner(web.Server(server))
        await self._runner.setup()
        tls = None if self._certificate is None else self._certificate.server_context()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        server.port = self._runner.addresses[0][1]
        return server

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


async def _post(config: JSON, *resolve: str, seconds: float = 5.0, times: int = 1) -> bytes:
    client = WebhookClient(ServiceAddresses(ObjectStore(seconds=lambda: 0.0), parse_addresses(resolve)))
    bundle = config.setdefault("caBundle", b64encode(CA.pem.encode()).decode())
    assert isinstance(bundle, str)
    try:
        for _ in range(times):
            body = await client.post(config, b"body", seconds)
        return body
    finally:
        await client.close()


async def _error(config: JSON, *resolve: str, seconds: float = 5.0) -> tuple[str, int]:
    with pytest.raises(CallFailed) as raised:
        await _post(config, *resolve, seconds=seconds)
    return str(raised.value), raised.value.code


async def test_service_is_called_at_its_local_address_with_its_name(server: Server):
    service = {"namespace": "a", "name": "web", "path": "/validate", "port": 8443}
    assert await _post({"service": service}, f"web.a.svc=127.0.0.1:{server.port}") == b"{}"
    assert server.requests == [("/validate?timeout=5s", "web.a.svc:8443", b"body")]


async def test_host_of_a_url_is_resolved(server: Server):
    await _post({"url": "https://web.a.svc/x/"}, f"web.a.svc=127.0.0.1:{server.port}", seconds=0.5)
    await _post({"url": f"https://127.0.0.1:{server.port}"})
    assert [path for path, _, _ in server.requests] == ["/x?timeout=1s", "/?timeout=5s"]


def redirects(*responses: tuple[int, str]) -> Handler:
    """Return a handler that redirects as often as there are responses: status and Location."""
    left = list(responses)

    async def handle(_request: web.Request) -> web.StreamResponse:
        if not left:
            return web.Response(text="{}")
        status, location = left.pop(0)
        return web.Response(status=status, headers={"Location": location} if location else {})

    return handle


@pytest.mark.parametrize(("status", "body"), [(307, b"body"), (308, b"body"), (301, b""), (302, b""), (303, b"")])
async def test_redirects_are_followed(server: Server, status: int, body: bytes):
    server.handle = redirects((status, "/other?a=b"))
    assert await _post({"url": f"https://127.0.0.1:{server.port}/x"}) == b"{}"
    assert [(path, sent) for path, _, sent in server.requests] == [("/x?timeout=5s", b"body"), ("/other?a=b", body)]


async def test_service_that_redirects_elsewhere_is_verified_by_its_own_name(server: Server):
    server.handle = redirects((307, f"https://127.0.0.1:{server.port}/y"))
    service = {"namespace": "a", "name": "web", "path": "/x"}
    await _post({"service": service}, f"web.a.svc=127.0.0.1:{server.port}")
    hosts = [host for _, host, _ in server.requests]
    assert hosts == ["web.a.svc", f"127.0.0.1:{server.port}"]


async def test_redirects_end_after_ten_requests(server: Server):
    server.handle = redirects(*[(307, "/loop")] * 20)
    message, code = await _error({"url": f"https://127.0.0.1:{server.port}/x"})
    assert (message, code) == ('Post "/loop": stopped after 10 redirects', 503)
    assert len(server.requests) == 10


async def test_redirect_without_location_is_an_error_response(server: Server):
    server.handle = redirects((302, ""))
    message, code = await _error({"url": f"https://127.0.0.1:{server.port}/x"})
    assert (code, message.startswith("the server responded with the status code 302")) == (302, True)


async def test_credentials_of_the_host_are_sent(server: Server, tmp_path):
    users = "- {name: '*.a.svc', user: {token: secret}}"
    (tmp_path / "kubeconfig").write_text(f"kind: Config\nusers:\n{users}")
    addresses = ServiceAddresses(
        ObjectStore(seconds=lambda: 0.0),
        parse_addresses([f"{name}.a.svc=127.0.0.1:{server.port}" for name in ("web",)]),
    )
    client = WebhookClient(addresses, {"admit": WebhookCredentials(str(tmp_path / "kubeconfig"))})
    seen: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("authorization", ""))
        return web.Response(text="{}")

    server.handle = handle
    config = {"url": "https://web.a.svc/x", "caBundle": b64encode(CA.pem.encode()).decode()}
    for call_type in ("admit", "validating"):
        await client.post(config, b"body", 5.0, call_type)
    await client.close()
    assert seen == ["Bearer secret", ""]


async def test_connection_is_reused(server: Server):
    await _post({"url": f"https://127.0.0.1:{server.port}/x"}, times=3)
    assert (len(server.requests), len(server.connections)) == (3, 1)


async def test_wrong_name_of_a_service_is_reported():
    async with _running(OTHER_NAME) as server:
        resolve = f"web.a.svc=127.0.0.1:{server.port}"
        error, code = await _error({"service": {"namespace": "a", "name": "web"}}, resolve)
    reason = "tls: failed to verify certificate: x509: certificate is valid for other.a.svc, not web.a.svc"
    assert (error, code) == (f'Post "https://web.a.svc:443/?timeout=5s": {reason}', 503)


async def test_unknown_authority_is_reported(server: Server):
    url = f"https://127.0.0.1:{server.port}/x"
    for bundle in (b64encode(issue("ca", authority=True).pem.encode()).decode(), ""):
        error, _ = await _error({"url": url, "caBundle": bundle})
        prefix = (
            f'Post "{url}?timeout=5s": tls: failed to verify certificate: x509: certificate signed by unknown authority'
        )
        assert error.startswith(prefix)


async def test_unreachable_webhooks_have_the_texts_of_go():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        error = await _error({"url": f"https://localhost:{port}/x"}, f"localhost=127.0.0.1:{port}")
        refused = f"dial tcp 127.0.0.1:{port}: connect: connection refused"
        assert error == (f'Post "https://localhost:{port}/x?timeout=5s": {refused}', 503)
    error, _ = await _error({"url": "https://no-such-host.invalid/x"})
    assert "dial tcp: lookup no-such-host.invalid" in error
    assert "no such host" in error
    error, _ = await _error({"service": {"namespace": "a", "name": "web", "path": "x"}})
    assert error == 'Post "https://web.a.svc:443/x?timeout=5s": service "web" not found'


async def test_plain_http_server_is_reported():
    async with _running(None) as server:
        error, _ = await _error({"url": f"https://127.0.0.1:{server.port}/x"})
    assert error.endswith(": http: server gave HTTP response to HTTPS client")


async def test_late_response_is_a_time_out(server: Server):
    async def late(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(5)
        return web.Response(text="{}")

    server.handle = late
    error, code = await _error({"url": f"https://127.0.0.1:{server.port}/x"}, seconds=0.1)
    assert (error, code) == (f'Post "https://127.0.0.1:{server.port}/x?timeout=1s": context deadline exceeded', 503)


async def test_connection_closed_without_a_response_is_eof(server: Server):
    async def close(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    server.handle = close
    error, _ = await _error({"url": f"https://127.0.0.1:{server.port}/x"})
    assert error.endswith(": EOF")


@pytest.mark.parametrize(
    ("response", "error"),
    [
        ({"status": 404, "text": "404 page not found"}, ("the server could not find the requested resource", 404)),
        ({"status": 500, "text": " no way "},
         ('an error on the server ("no way") has prevented the request from succeeding', 500)),
        ({"status": 502, "body": b"{}", "content_type": "application/json"},
         ('an error on the server ("unknown") has prevented the request from succeeding', 502)),
        ({"status": 403, "text": "not you"}, ("not you", 403)),
        ({"status": 406, "text": ""},
         ("the server was unable to respond with a content type that the client supports", 406)),
        ({"status": 400, "text": "x"}, ("the server rejected our request for an unknown reason", 400)),
        ({"status": 302, "text": "x"},
         ("the server responded with the status code 302 but did not return more information", 302)),
        ({"status": 500, "text": '{"kind":"Status","apiVersion":"v1","status":"Failure","message":"m","code":418}'},
         ("m", 418)),
        ({"status": 200, "body": b"", "content_type": "application/json"},
         ("0-length response with status code: 200 and content type: application/json", 503)),
    ],
)  # fmt: skip
async def test_error_responses_have_the_texts_of_client_go(server: Server, response: JSON, error: tuple[str, int]):
    async def respond(_request: web.Request) -> web.StreamResponse:
        return web.Response(**response)

    server.handle = respond
    assert await _error({"url": f"https://127.0.0.1:{server.port}/x"}) == error
