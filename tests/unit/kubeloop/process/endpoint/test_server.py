"""The HTTP endpoint of a process, over a socket."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from kubeloop.kube.clock import SystemClock
from kubeloop.kube.user_error import UserError
from kubeloop.process.endpoint.server import EndpointServer, RawResponse
from support.processes.endpoints import serving


@asynccontextmanager
async def client_session(endpoint: EndpointServer, address: str = "127.0.0.1") -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(endpoint, address) as url, aiohttp.ClientSession(url) as session:
        yield session


def new_endpoint() -> EndpointServer:
    return EndpointServer(CollectorRegistry(), clock=SystemClock())


async def request(session: aiohttp.ClientSession, path: str, **options) -> tuple[int, str, bytes]:
    method = options.pop("method", "GET")
    async with session.request(method, path, **options) as response:
        assert response.headers["Cache-Control"] == "no-store"
        return response.status, response.headers["Content-Type"], await response.read()


async def test_health_pages_report_the_checks():
    endpoint = new_endpoint()
    problem = None
    endpoint.add_readiness_check("loop", lambda: None)
    endpoint.add_readiness_check("caches", lambda: problem)
    text = "text/plain; charset=utf-8"
    async with client_session(endpoint) as session:
        assert await request(session, "/readyz") == (200, text, b"ok")
        assert await request(session, "/readyz?verbose") == (
            200,
            text,
            b"[+]loop ok\n[+]caches ok\nreadyz check passed\n",
        )
        problem = "two are empty"
        failed = b"[+]loop ok\n[-]caches failed: two are empty\nreadyz check failed\n"
        assert await request(session, "/readyz") == (500, text, failed)
        assert await request(session, "/livez") == (200, text, b"ok")


async def test_pages_are_added_once_when_the_first_is_requested():
    endpoint = new_endpoint()
    calls = 0

    async def add_pages() -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.01)
        endpoint.add_page("/text", lambda query: "text")

    endpoint.add_pages_when_requested(add_pages)
    async with client_session(endpoint) as session:
        for path in ("/livez", "/readyz", "/metrics"):
            assert (await request(session, path))[0] == 200
        assert calls == 0
        responses = await asyncio.gather(*(request(session, path) for path in ("/text", "/text", "/unknown")))
        assert [status for status, _, _ in responses] == [200, 200, 404]
        assert b"/text" in responses[2][2]
    assert calls == 1


async def test_pages_return_json_text_files_and_lines():
    endpoint = new_endpoint()
    gone = []

    async def lines(query):
        try:
            for number in range(int(query["to"])):
                yield {"number": number}
        finally:
            gone.append(True)

    endpoint.add_page("/json", dict)
    endpoint.add_page("/text", lambda query: "text")
    endpoint.add_page("/file", lambda query: RawResponse(b"a{}", "text/css", {"X-Frame-Options": "DENY"}))
    endpoint.add_page("/lines", lines)
    async with client_session(endpoint) as session:
        status, kind, body = await request(session, "/json?a=1&a=2&b=%20&c")
        assert (status, kind, json.loads(body)) == (200, "application/json", {"a": "1", "b": " ", "c": ""})
        assert await request(session, "/text") == (200, "text/plain; charset=utf-8", b"text")
        assert await request(session, "/file") == (200, "text/css; charset=utf-8", b"a{}")
        assert await request(session, "/file", method="HEAD") == (200, "text/css; charset=utf-8", b"")
        status, kind, body = await request(session, "/lines?to=1000")
        assert (status, kind) == (200, "application/x-ndjson")
        assert [json.loads(line)["number"] for line in body.splitlines()] == list(range(1000))
        assert gone == [True]


async def test_closed_connection_ends_the_line_generator():
    endpoint = new_endpoint()
    gone = asyncio.Event()

    async def lines(query):
        try:
            while True:
                yield "x" * 10_000
        finally:
            gone.set()

    endpoint.add_page("/lines", lines)
    async with client_session(endpoint) as session:
        async with session.get("/lines") as response:
            await response.content.readline()
        await asyncio.wait_for(gone.wait(), 60)


async def test_error_responses_contain_the_reason(caplog):
    endpoint = new_endpoint()

    def missing(query):
        raise UserError("no such pod", hint="look again")

    endpoint.add_page("/missing", missing)
    endpoint.add_page("/named", lambda query: query["pod"])
    endpoint.add_page("/broken", lambda query: 1 // 0)
    async with client_session(endpoint) as session:
        assert json.loads((await request(session, "/missing"))[2]) == {"error": "no such pod", "hint": "look again"}
        assert (await request(session, "/named"))[::2] == (404, b'{"error":"pod"}')
        status, _, body = await request(session, "/elsewhere")
        assert (status, body.splitlines()[-1]) == (404, b"/named")
        async with session.post("/named") as response:
            assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
        assert (await request(session, "/broken"))[0] == 500
        assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example"])
async def test_loopback_pages_reject_foreign_host_headers(host):
    endpoint = new_endpoint()
    endpoint.add_page("/json", lambda query: {})
    async with client_session(endpoint) as session:
        assert (await request(session, "/json", headers={"Host": host}))[0] == 403
        assert (await request(session, "/json", headers={"Host": "localhost:1"}))[0] == 200
        assert (await request(session, "/healthz", headers={"Host": host}))[0] == 200  # health probes are exempt


async def test_endpoint_beyond_loopback_is_reported(caplog):
    endpoint = new_endpoint()
    endpoint.add_page("/json", lambda query: {})
    async with client_session(endpoint) as session:
        assert (await request(session, "/json"))[0] == 200
    assert "not on loopback" not in caplog.text
    async with serving(new_endpoint(), "0.0.0.0"):
        assert "every client that reaches it can read" in caplog.text


@pytest.mark.parametrize(
    ("client", "host", "problem"),
    [
        pytest.param("127.0.0.1", "localhost", "", id="kubectl port-forward"),
        pytest.param("127.0.0.1", "evil.example", "localhost or an IP address", id="DNS rebinding"),
        pytest.param("127.0.0.6", "localhost", "over loopback only", id="proxy of a service mesh"),
    ],
)
async def test_page_for_loopback_is_refused_to_other_machines(client, host, problem):
    endpoint = new_endpoint()
    endpoint.add_page("/logs", lambda query: "log", only_on_loopback=True)
    async with (
        serving(endpoint, "0.0.0.0") as url,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=(client, 0))) as session,
        session.get(f"http://127.0.0.1:{url.rpartition(':')[2]}/logs", headers={"Host": host}) as response,
    ):
        assert response.status == (403 if problem else 200)
        assert (problem or "log") in await response.text()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
async def test_endpoint_is_read_only(method):
    calls = []
    endpoint = new_endpoint()
    endpoint.add_page("/json", calls.append)
    async with client_session(endpoint) as session:
        assert (await request(session, "/json", method=method))[0] == 405
    assert not calls


async def test_responses_allow_no_other_origin():
    endpoint = new_endpoint()
    endpoint.add_page("/json", lambda query: {})
    async with client_session(endpoint) as session:
        for path in ("/json", "/metrics", "/healthz", "/nowhere"):
            async with session.get(path, headers={"Origin": "http://evil.example"}) as response:
                assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                assert not [name for name in response.headers if name.lower().startswith("access-control-")]


async def test_ipv6_url_has_brackets():
    if not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    try:
        async with client_session(new_endpoint(), "::1") as session:
            assert (await request(session, "/healthz"))[0] == 200
    except UserError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")


async def test_port_in_use_raises_user_error():
    async with serving(new_endpoint()) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(UserError, match=rf"cannot listen on 127\.0\.0\.1 port {port}"):
            async with serving(new_endpoint(), port=port):
                pass
