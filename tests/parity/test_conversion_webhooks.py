"""Conversion webhooks beside a real kube-apiserver: the same objects in every version, the same words for failures."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any

import aiohttp

from support.apiserver_process import TOKEN, apiserver_command, running_apiserver_sync
from support.conversion_webhook import CRDS, DEFINITION, V1, V2, Webhook, definition, host, serving_webhook
from support.real_apiserver import needs_binaries, real_apiserver

JSON = dict[str, Any]
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
_VARYING = ("uid", "creationTimestamp", "resourceVersion", "managedFields")
_SETTLES_SECONDS = 2.0  # in which kube-apiserver reads a definition again
CLIENTS: list[JSON] = [
    *({"url": url} for url in ("http://a/b", "https://", "https://a/b?c=d", "https://u:p@a", "https://a/b#c", "")),
    *({"service": {"namespace": "a", "name": "b", **more}} for more in (
        {"namespace": ""}, {"name": ""}, {"port": 0}, {"path": "x"}, {"path": "/x//Y"}, {"path": "//"})),
    {"url": "https://a", "service": {"namespace": "a", "name": "b"}},
    {"url": "https://a", "caBundle": "eA=="},
]  # fmt: skip
ANSWERS: list[JSON] = [
    {"result": {"status": "Failure", "message": "no port"}},
    {"result": {}},
    {"convertedObjects": []},
    {"convertedObjects": [host("f", "v2")]},
    {"convertedObjects": [host("other")]},
    {"convertedObjects": [{**host("f"), "kind": "X"}]},
    {"convertedObjects": [{"apiVersion": "example.com/v1", "kind": "Host"}]},
    {"convertedObjects": [{}]},
]


def _comparable(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _comparable(each) for name, each in content.items() if name not in _VARYING}
    return [_comparable(each) for each in content] if isinstance(content, list) else content


class _Both:
    """Asks both servers, and notes how their answers differ."""

    def __init__(self, session: aiohttp.ClientSession, servers: dict[str, str]) -> None:
        self._session = session
        self._servers = servers
        self.wrong: list[str] = []

    async def ask(self, method: str, path: str, body: Any = None, type_: str = "application/json") -> None:
        answers = [await self._ask(url, token, method, path, body, type_) for url, token in self._servers.items()]
        if answers[0] != answers[1]:
            self.wrong.append(f"{method} {path} {body}: {answers[0]} there, {answers[1]} here")

    async def _ask(self, url: str, token: str, method: str, path: str, body: Any, type_: str) -> Any:
        headers = {"authorization": f"Bearer {token}", "content-type": type_}
        data = None if body is None else json.dumps(body)
        for _ in range(100):  # a definition is served some time after it has been accepted
            async with self._session.request(method, url + path, data=data, headers=headers) as answer:
                text = await answer.text()
                if answer.status != 429 and "page not found" not in text:
                    break
            await asyncio.sleep(0.2)
        return answer.status, _comparable(json.loads(text))


async def _definitions(both: _Both, webhook: Webhook) -> None:
    for client in CLIENTS:
        wrong = definition(webhook)
        wrong["spec"]["conversion"]["webhook"]["clientConfig"] = client
        await both.ask("POST", f"{CRDS}?dryRun=All", wrong)
    for versions in ([], ["v3"], ["v1", "v1"], ["v1", "x y"]):
        wrong = definition(webhook)
        wrong["spec"]["conversion"]["webhook"]["conversionReviewVersions"] = versions
        await both.ask("POST", f"{CRDS}?dryRun=All", wrong)


async def _objects(both: _Both) -> None:
    await both.ask("POST", V2, host("b", "v2"))
    await both.ask("POST", f"{V2}?dryRun=All", host("d", "v2"))
    await both.ask("POST", V2, host("e", "v2", host=3))
    await both.ask("PATCH", f"{V2}/b", {"spec": {"port": 3}}, MERGE)
    await both.ask("PATCH", f"{V1}/b", {"spec": {"address": "z:7"}}, MERGE)
    await both.ask("PATCH", f"{V2}/b", {"spec": {"port": "x"}}, MERGE)
    await both.ask("PATCH", f"{V2}/c?fieldManager=x", host("c", "v2"), APPLY)
    for path in (f"{V1}/b", f"{V2}/b", V1, V2):
        await both.ask("GET", path)


async def test_kube_apiserver_converts_alike(tmp_path):
    needs_binaries()
    with real_apiserver(tmp_path / "real") as real, running_apiserver_sync(apiserver_command(tmp_path)) as (url, log):
        trusting = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(real.ca)))
        servers = {f"https://127.0.0.1:{real.port}": real.token, url.rstrip("/"): TOKEN}
        async with serving_webhook() as webhook, aiohttp.ClientSession(connector=trusting) as session:
            both = _Both(session, servers)
            await _definitions(both, webhook)
            await both.ask("POST", CRDS, definition(webhook))
            await asyncio.sleep(2 * _SETTLES_SECONDS)
            await _objects(both)
            for change in ANSWERS:
                webhook.change = lambda review, change=change: {**review, "response": {**review["response"], **change}}
                await both.ask("POST", V2, host("f", "v2"))
            webhook.change = lambda review: {name: each for name, each in review.items() if name != "response"}
            await both.ask("POST", V2, host("f", "v2"))
            webhook.change = lambda review: review
            for client in (
                {"url": "https://127.0.0.1:1/x"},
                {"url": f"{webhook.url}/none"},
                {"url": webhook.url, "caBundle": None},
            ):
                await both.ask(
                    "PATCH", DEFINITION, {"spec": {"conversion": {"webhook": {"clientConfig": client}}}}, MERGE
                )
                await asyncio.sleep(_SETTLES_SECONDS)
                await both.ask("POST", V2, host("f", "v2"))
                await both.ask("GET", f"{V2}/b")
        assert "Traceback" not in log()
    assert both.wrong == []
