"""Conversion webhooks: the same objects in every version and the same error messages as kube-apiserver."""

from __future__ import annotations

import asyncio
from typing import Any

from support.apiserver.api_response import ApiResponse
from support.apiserver.http_api import HttpApi, ServerPair, server_pair
from support.objects.conversion_webhook import CRDS, DEFINITION, V1, V2, Webhook, definition, host, running_webhook

JSON = dict[str, Any]
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
_GENERATED_FIELDS = ("uid", "creationTimestamp", "resourceVersion", "managedFields")
_RELOAD_SECONDS = 2.0  # within which kube-apiserver reloads a definition
CLIENTS: list[JSON] = [
    *({"url": url} for url in ("http://a/b", "https://", "https://a/b?c=d", "https://u:p@a", "https://a/b#c", "")),
    *({"service": {"namespace": "a", "name": "b", **more}} for more in (
        {"namespace": ""}, {"name": ""}, {"port": 0}, {"path": "x"}, {"path": "/x//Y"}, {"path": "//"})),
    {"url": "https://a", "service": {"namespace": "a", "name": "b"}},
    {"url": "https://a", "caBundle": "eA=="},
]  # fmt: skip
INVALID_RESPONSES: list[JSON] = [
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
        return {name: _comparable(inner) for name, inner in content.items() if name not in _GENERATED_FIELDS}
    return [_comparable(item) for item in content] if isinstance(content, list) else content


class _Comparison:
    """Sends requests to both servers and collects their differences."""

    def __init__(self, servers: ServerPair) -> None:
        self._servers = servers
        self.differences: list[str] = []

    async def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> None:
        real, ours = [
            await self._response(server, method, path, body, content_type)
            for server in (self._servers.real, self._servers.ours)
        ]
        if real != ours:
            self.differences.append(f"{method} {path} {body}: real {real}, ours {ours}")

    async def _response(self, server: HttpApi, method: str, path: str, body: Any, content_type: str) -> Any:
        for _ in range(100):  # a server serves a definition some time after it has accepted it
            # in a thread, because the webhook runs on this event loop
            response: ApiResponse = await asyncio.to_thread(server.request, method, path, body, content_type)
            if response.status != 429 and b"page not found" not in response.body:
                break
            await asyncio.sleep(0.2)
        return response.status, _comparable(response.content)


async def _compare_definitions(comparison: _Comparison, webhook: Webhook) -> None:
    for client in CLIENTS:
        invalid = definition(webhook)
        invalid["spec"]["conversion"]["webhook"]["clientConfig"] = client
        await comparison.request("POST", f"{CRDS}?dryRun=All", invalid)
    for versions in ([], ["v3"], ["v1", "v1"], ["v1", "x y"]):
        invalid = definition(webhook)
        invalid["spec"]["conversion"]["webhook"]["conversionReviewVersions"] = versions
        await comparison.request("POST", f"{CRDS}?dryRun=All", invalid)


async def _compare_objects(comparison: _Comparison) -> None:
    await comparison.request("POST", V2, host("b", "v2"))
    await comparison.request("POST", f"{V2}?dryRun=All", host("d", "v2"))
    await comparison.request("POST", V2, host("e", "v2", host=3))
    await comparison.request("PATCH", f"{V2}/b", {"spec": {"port": 3}}, MERGE)
    await comparison.request("PATCH", f"{V1}/b", {"spec": {"address": "z:7"}}, MERGE)
    await comparison.request("PATCH", f"{V2}/b", {"spec": {"port": "x"}}, MERGE)
    await comparison.request("PATCH", f"{V2}/c?fieldManager=x", host("c", "v2"), APPLY)
    for path in (f"{V1}/b", f"{V2}/b", V1, V2):
        await comparison.request("GET", path)


async def test_conversion_webhooks_match_kube_apiserver(tmp_path):
    with server_pair(tmp_path) as servers:
        async with running_webhook() as webhook:
            comparison = _Comparison(servers)
            await _compare_definitions(comparison, webhook)
            await comparison.request("POST", CRDS, definition(webhook))
            await asyncio.sleep(2 * _RELOAD_SECONDS)
            await _compare_objects(comparison)
            for change in INVALID_RESPONSES:
                webhook.change = lambda review, change=change: {**review, "response": {**review["response"], **change}}
                await comparison.request("POST", V2, host("f", "v2"))
            webhook.change = lambda review: {name: value for name, value in review.items() if name != "response"}
            await comparison.request("POST", V2, host("f", "v2"))
            webhook.change = lambda review: review
            for client in (
                {"url": "https://127.0.0.1:1/x"},
                {"url": f"{webhook.url}/none"},
                {"url": webhook.url, "caBundle": None},
            ):
                patch = {"spec": {"conversion": {"webhook": {"clientConfig": client}}}}
                await comparison.request("PATCH", DEFINITION, patch, MERGE)
                await asyncio.sleep(_RELOAD_SECONDS)
                await comparison.request("POST", V2, host("f", "v2"))
                await comparison.request("GET", f"{V2}/b")
    assert comparison.differences == []
