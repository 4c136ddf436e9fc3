"""Conversion webhooks: objects are shown as they convert them, and what goes wrong with them is told."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeloop.devcluster.api.request import Request
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.server.faults import Faults
from kubeloop.kube.clock import SystemClock
from support.conversion_webhook import CRDS, DEFINITION, V1, V2, Webhook, definition, host, serving_webhook

JSON = dict[str, Any]


@pytest.fixture
async def webhook() -> AsyncIterator[Webhook]:
    async with serving_webhook() as made:
        yield made


class Api:
    def __init__(self, faults: Faults | None = None) -> None:
        self.server = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None, faults=faults)

    async def ask(self, method: str, path: str, body: Any = None, type_: str = "application/json") -> JSON:
        content = b"" if body is None else json.dumps(body).encode()
        request = Request.of(method, path, {"content-type": type_}, content)
        response = self.server.at_once(request) or await self.server.handle(request)
        assert isinstance(response.body, bytes)
        return {**json.loads(response.body), "code": response.status}


@pytest.fixture
async def api(webhook: Webhook) -> Api:
    made = Api()
    assert (await made.ask("POST", CRDS, definition(webhook)))["code"] == 201
    return made


async def test_an_object_is_written_in_one_version_and_read_in_another(api: Api, webhook: Webhook):
    created = await api.ask("POST", V2, host("b", "v2"))
    assert (created["code"], created["spec"]) == (201, {"host": "b", "port": 2})
    assert created["apiVersion"] == "example.com/v2"
    stored = await api.ask("GET", f"{V1}/b")
    assert (stored["spec"], stored["metadata"]["labels"]) == ({"address": "b:2"}, {"was": "v2"})
    assert stored["metadata"]["uid"] == created["metadata"]["uid"]
    change = await api.ask("PATCH", f"{V2}/b", {"spec": {"port": 3}}, "application/merge-patch+json")
    assert (change["code"], change["spec"], change["metadata"]["generation"]) == (200, {"host": "b", "port": 3}, 2)
    assert (await api.ask("GET", f"{V1}/b"))["spec"] == {"address": "b:3"}
    gone = await api.ask("DELETE", f"{V2}/b")
    assert (gone["code"], gone["status"]) == (200, "Success")


async def test_what_has_been_converted_is_not_converted_again_and_lists_take_one_call(api: Api, webhook: Webhook):
    for number in range(5):
        await api.ask("POST", V1, host(f"h{number}", address=f"a:{number}"))
    webhook.calls.clear()
    assert [each["spec"]["port"] for each in (await api.ask("GET", V2))["items"]] == [0, 1, 2, 3, 4]
    assert webhook.calls == []  # as who watches v2 has to hear of writes at once
    fresh = await api.ask("PATCH", DEFINITION, {"spec": {"names": {"shortNames": ["ho"]}}},
                          "application/merge-patch+json")  # fmt: skip
    assert fresh["code"] == 200
    assert len((await api.ask("GET", V2))["items"]) == 5
    assert webhook.calls == [5]


@pytest.mark.parametrize("faults", [None, Faults()], ids=["in the process", "with faults"])
async def test_who_cannot_be_answered_at_once_waits_for_the_webhook(webhook: Webhook, faults: Faults | None):
    server = Api(faults).server
    for path, body in ((CRDS, definition(webhook)), (V2, host("b", "v2"))):
        request = Request.of("POST", path, {"content-type": "application/json"}, json.dumps(body).encode())
        response = await server.handle(request)
        assert response.status == 201, response.body


async def test_who_watches_a_version_hears_of_writes_in_another(api: Api):
    await api.ask("POST", V1, host("a"))
    request = Request.of("GET", f"{V2}?watch=1&resourceVersion=0", {})
    response = api.server.at_once(request) or await api.server.handle(request)
    assert not isinstance(response.body, bytes)
    await api.ask("PUT", f"{V1}/a", {**await api.ask("GET", f"{V1}/a"), "spec": {"address": "c:9"}})
    await api.ask("DELETE", f"{V1}/a")
    events: list[JSON] = []
    async with asyncio.timeout(60):
        async for chunk in response.body:
            events += map(json.loads, chunk.splitlines())
            if len(events) >= 3:
                break
    await response.body.aclose()  # type: ignore[attr-defined]
    assert [(each["type"], each["object"]["spec"]) for each in events] == [
        ("ADDED", {"host": "a", "port": 1}),
        ("MODIFIED", {"host": "c", "port": 9}),
        ("DELETED", {"host": "c", "port": 9}),
    ]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"result": {"status": "Failure", "message": "no port"}}, "failed: no port"),
        ({"result": {}}, "failed: response.result.status was '', not 'Success'"),
        ({"convertedObjects": []}, "returned 0 objects, expected 1"),
        ({"convertedObjects": [host("a")]}, "returned invalid object at index 0: invalid groupVersion "
         "(expected example.com/v2, received example.com/v1)"),
        ({"convertedObjects": [host("other", "v2")]}, "returned invalid object: must have the same name: a != other"),
    ],
)  # fmt: skip
async def test_an_answer_that_is_none_is_told(api: Api, webhook: Webhook, change: JSON, told: str):
    webhook.change = lambda review: {**review, "response": {**review["response"], **change}}
    refused = await api.ask("POST", V1, host("a"))
    assert (refused["code"], refused["message"]) == (500, f"conversion webhook for example.com/v1, Kind=Host {told}")
    webhook.change = lambda review: review
    assert (await api.ask("POST", V1, host("a")))["code"] == 201


async def test_a_webhook_that_is_not_there_is_told(api: Api, webhook: Webhook):
    await api.ask("PATCH", DEFINITION, {"spec": {"conversion": {"webhook": {"clientConfig": {
        "url": "https://127.0.0.1:1/convert"}}}}}, "application/merge-patch+json")  # fmt: skip
    refused = await api.ask("POST", V2, host("b", "v2"))
    assert refused["message"] == (
        'conversion webhook for example.com/v2, Kind=Host failed: Post "https://127.0.0.1:1/convert?timeout=30s": '
        "dial tcp 127.0.0.1:1: connect: connection refused"
    )
