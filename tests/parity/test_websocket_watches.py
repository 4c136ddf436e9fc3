"""WebSocket handshakes of watches: the same responses as kube-apiserver. Logs need a kubelet and are not compared."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from support.apiserver.apiserver_process import TOKEN, bare_apiserver_command, running_apiserver
from support.comparison.real_apiserver import ADMIN_TOKEN, needs_binaries, real_apiserver

JSON = dict[str, Any]
Server = tuple[str, str]
"""URL and token."""
WATCH = "/api/v1/namespaces?watch=1&timeoutSeconds=1"
FUTURE = f"{WATCH}&resourceVersion=99999999&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
ORIGIN = "http://localhost"
HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Origin": ORIGIN,
}
COMPARED_HEADERS = (
    "Cache-Control", "Connection", "Sec-WebSocket-Accept", "Sec-WebSocket-Protocol", "Sec-WebSocket-Version",
    "Transfer-Encoding", "Upgrade",
)  # fmt: skip
CHANGES: dict[str, dict[str, str]] = {
    "valid": {},
    "one protocol": {"Sec-WebSocket-Protocol": "x"},
    "two protocols": {"Sec-WebSocket-Protocol": "x, y"},
    "no origin": {"Origin": ""},
    "null origin": {"Origin": "null"},
    "path as origin": {"Origin": "/x"},
    "version 8": {"Sec-WebSocket-Version": "8"},
    "no key": {"Sec-WebSocket-Key": ""},
    "no key, version and origin": {"Sec-WebSocket-Key": "", "Sec-WebSocket-Version": "", "Origin": ""},
    "no version and origin": {"Sec-WebSocket-Version": "", "Origin": ""},
    "connection without upgrade": {"Connection": "close"},
    "several connection options": {"Connection": "keep-alive, Upgrade"},
    "upper case": {"Connection": "UPGRADE", "Upgrade": "WebSocket"},
}


async def response_to(server: Server, changes: dict[str, str]) -> Any:
    """Return status, headers, and the body of an error, of a handshake."""
    url, token = server
    headers = {**HANDSHAKE, **changes, "Authorization": f"Bearer {token}"}
    connector = aiohttp.TCPConnector(ssl=False)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(url + WATCH, headers=headers) as response,
    ):
        compared = {name: response.headers[name] for name in COMPARED_HEADERS if name in response.headers}
        if response.status >= 400:
            compared.pop("Connection", None)  # kube-apiserver closes such a connection without the header
            compared.pop("Cache-Control", None)  # nor does it send any other
            return response.status, compared, await response.text()
        return response.status, compared


async def future_events(server: Server) -> list[JSON]:
    """Return the messages of a watch at a revision that the server does not reach."""
    url, token = server
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
        session.ws_connect(f"{url}{FUTURE}&allowWatchBookmarks=true", origin=ORIGIN, headers=headers) as websocket,
    ):
        return [json.loads(message.data) async for message in websocket]


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Any:
    needs_binaries()
    with real_apiserver(tmp_path_factory.mktemp("real")) as kubernetes:
        yield kubernetes.url, ADMIN_TOKEN


async def test_handshakes_and_errors_match_kube_apiserver(real: Server, tmp_path):
    async with running_apiserver(bare_apiserver_command(tmp_path)) as (_, url):
        for name, changes in CHANGES.items():
            expected = await response_to(real, changes)
            assert (name, await response_to((url, TOKEN), changes)) == (name, expected)
        events = [await future_events(server) for server in (real, (url, TOKEN))]
    for event in (*events[0], *events[1]):
        event["object"].pop("message", None)  # has the current revision
    assert [event["type"] for event in events[0]] == ["ERROR"]
    assert events[1] == events[0]
