"""Conversion webhooks: conversion on writes, reads and watches, and errors of the webhook."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.slow_work import Suspended, start
from kubeloop.devcluster.apiextensions.conversion_webhook import ConversionWebhook
from kubeloop.devcluster.server.faults import Faults
from kubeloop.devcluster.storage.store import ObjectStore
from support.apiserver.api_requests import InProcessApi, pending_of, request, response_of
from support.apiserver.served_definitions import webhook_client
from support.objects.conversion_webhook import CRDS, DEFINITION, V1, V2, Webhook, definition, host, running_webhook

JSON = dict[str, Any]


@pytest.fixture
async def webhook() -> AsyncIterator[Webhook]:
    async with running_webhook() as webhook:
        yield webhook


@pytest.fixture
async def api(webhook: Webhook) -> InProcessApi:
    api = InProcessApi()
    status, content = await api.handle("POST", CRDS, definition(webhook))
    assert status == 201, content
    return api


async def test_object_is_written_in_one_version_and_read_in_another(api: InProcessApi, webhook: Webhook):
    status, created = await api.handle("POST", V2, host("b", "v2"))
    assert (status, created["spec"]) == (201, {"host": "b", "port": 2})
    assert created["apiVersion"] == "example.com/v2"
    _, stored = await api.handle("GET", f"{V1}/b")
    assert (stored["spec"], stored["metadata"]["labels"]) == ({"address": "b:2"}, {"was": "v2"})
    assert stored["metadata"]["uid"] == created["metadata"]["uid"]
    status, change = await api.handle("PATCH", f"{V2}/b", {"spec": {"port": 3}})
    assert (status, change["spec"], change["metadata"]["generation"]) == (200, {"host": "b", "port": 3}, 2)
    assert (await api.handle("GET", f"{V1}/b"))[1]["spec"] == {"address": "b:3"}
    status, deleted = await api.handle("DELETE", f"{V2}/b")
    assert (status, deleted["status"]) == (200, "Success")


async def test_list_converts_uncached_objects_in_one_call(api: InProcessApi, webhook: Webhook):
    for number in range(5):
        await api.handle("POST", V1, host(f"h{number}", address=f"a:{number}"))
    assert [item["spec"]["port"] for item in (await api.handle("GET", V2))[1]["items"]] == [0, 1, 2, 3, 4]
    assert webhook.calls == [5]
    webhook.calls.clear()
    await api.handle("GET", V2)
    assert webhook.calls == []
    status, _ = await api.handle("PATCH", DEFINITION, {"spec": {"names": {"shortNames": ["ho"]}}})
    assert status == 200
    assert len((await api.handle("GET", V2))[1]["items"]) == 5
    assert webhook.calls == [5]


@pytest.mark.parametrize("faults", [None, Faults()], ids=["in process", "with faults"])
async def test_request_waits_for_the_webhook(webhook: Webhook, faults: Faults | None):
    api = InProcessApi(faults=faults)
    for path, body in ((CRDS, definition(webhook)), (V2, host("b", "v2"))):
        status, content = await api.handle("POST", path, body)
        assert status == 201, content


async def test_objects_survive_a_change_of_the_storage_version(api: InProcessApi):
    await api.handle("POST", V1, host("a", address="a:1"))
    _, crd = await api.handle("GET", DEFINITION)
    for version in crd["spec"]["versions"]:
        version["storage"] = version["name"] == "v2"
    assert (await api.handle("PUT", DEFINITION, crd))[0] == 200
    await api.handle("POST", V1, host("b", address="b:2"))
    for _ in range(2):
        addresses = [item["spec"] for item in (await api.handle("GET", V1))[1]["items"]]
        assert addresses == [{"address": "a:1"}, {"address": "b:2"}]
        assert (await api.handle("GET", f"{V2}/a"))[1]["spec"] == {"host": "a", "port": 1}
        ports = [item["spec"]["port"] for item in (await api.handle("GET", V2))[1]["items"]]
        assert ports == [1, 2]
        _, stream = await api.handle("GET", f"{V2}?watch=1&resourceVersion=0&timeoutSeconds=1")
        events = [json.loads(line) async for chunk in stream for line in chunk.splitlines()]
        assert [event["object"]["spec"]["port"] for event in events] == [1, 2]
        assert (await api.handle("PATCH", f"{V2}/a", {"metadata": {"labels": {"x": "y"}}}))[0] == 200


async def test_field_selector_matches_converted_objects(api: InProcessApi):
    _, crd = await api.handle("GET", DEFINITION)
    crd["spec"]["versions"][1]["selectableFields"] = [{"jsonPath": ".spec.host"}]
    status, content = await api.handle("PUT", DEFINITION, crd)
    assert status == 200, content
    for name, address in (("x", "a:1"), ("y", "b:2"), ("z", "a:3")):
        await api.handle("POST", V1, host(name, address=address))
    selected = f"{V2}?fieldSelector=spec.host=a"
    for query in (selected, f"{selected}&limit=2"):
        _, content = await api.handle("GET", query)
        assert [item["metadata"]["name"] for item in content["items"]] == ["x", "z"]
    _, stream = await api.handle("GET", f"{selected}&watch=1&resourceVersion=0")
    await api.handle("PATCH", f"{V1}/y", {"spec": {"address": "a:2"}})
    await api.handle("PATCH", f"{V1}/x", {"spec": {"address": "b:1"}})
    events: list[JSON] = []
    async with asyncio.timeout(60):
        async for chunk in stream:
            events += map(json.loads, chunk.splitlines())
            if len(events) >= 4:
                break
    await stream.aclose()
    found = [(event["type"], event["object"]["metadata"]["name"], event["object"]["spec"]["host"]) for event in events]
    assert found == [("ADDED", "x", "a"), ("ADDED", "z", "a"), ("ADDED", "y", "a"), ("DELETED", "x", "a")]


async def test_watch_shows_writes_in_another_version(api: InProcessApi):
    await api.handle("POST", V1, host("a"))
    _, stream = await api.handle("GET", f"{V2}?watch=1&resourceVersion=0")
    await api.handle("PUT", f"{V1}/a", {**(await api.handle("GET", f"{V1}/a"))[1], "spec": {"address": "c:9"}})
    await api.handle("DELETE", f"{V1}/a")
    events: list[JSON] = []
    async with asyncio.timeout(60):
        async for chunk in stream:
            events += map(json.loads, chunk.splitlines())
            if len(events) >= 3:
                break
    await stream.aclose()
    assert [(event["type"], event["object"]["spec"]) for event in events] == [
        ("ADDED", {"host": "a", "port": 1}),
        ("MODIFIED", {"host": "c", "port": 9}),
        ("DELETED", {"host": "c", "port": 9}),
    ]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        pytest.param(
            {"result": {"status": "Failure", "message": "no port"}}, "failed: no port", id="status is Failure"
        ),
        pytest.param({"result": {}}, "failed: response.result.status was '', not 'Success'", id="no status"),
        pytest.param({"convertedObjects": []}, "returned 0 objects, expected 1", id="no objects"),
        pytest.param(
            {"convertedObjects": [host("a", "v2")]},
            "returned invalid object at index 0: invalid groupVersion "
            "(expected example.com/v1, received example.com/v2)",
            id="not converted",
        ),
        pytest.param(
            {"convertedObjects": [host("other")]},
            "returned invalid object: must have the same name: a != other",
            id="changed name",
        ),
    ],
)
async def test_invalid_response_is_an_error(api: InProcessApi, webhook: Webhook, change: JSON, error: str):
    webhook.change = lambda review: {**review, "response": {**review["response"], **change}}
    status, content = await api.handle("POST", V2, host("a", "v2"))
    assert (status, content["message"]) == (500, f"conversion webhook for example.com/v2, Kind=Host {error}")
    webhook.change = lambda review: review
    assert (await api.handle("POST", V2, host("a", "v2")))[0] == 201


async def test_write_in_the_storage_version_needs_no_webhook(api: InProcessApi, webhook: Webhook):
    webhook.change = lambda review: {}
    assert (await api.handle("POST", V1, host("a")))[0] == 201
    assert (await api.handle("PATCH", f"{V1}/a", {"spec": {"address": "c:9"}}))[0] == 200
    assert (await api.handle("DELETE", f"{V1}/a"))[0] == 200
    assert webhook.calls == []


async def test_watch_of_another_version_fails_if_a_write_cannot_be_converted(api: InProcessApi, webhook: Webhook):
    _, stream = await api.handle("GET", f"{V2}?watch=1&resourceVersion=0")
    webhook.change = lambda review: {}
    assert (await api.handle("POST", V1, host("a")))[0] == 201
    async with asyncio.timeout(60):
        assert json.loads(await anext(stream))["type"] == "ERROR"
    await stream.aclose()


async def test_unreachable_webhook_is_an_error(api: InProcessApi, webhook: Webhook):
    client_config = {"url": "https://127.0.0.1:1/convert"}
    await api.handle("PATCH", DEFINITION, {"spec": {"conversion": {"webhook": {"clientConfig": client_config}}}})
    _, content = await api.handle("POST", V2, host("b", "v2"))
    assert content["message"] == (
        'conversion webhook for example.com/v2, Kind=Host failed: Post "https://127.0.0.1:1/convert?timeout=30s": '
        "dial tcp 127.0.0.1:1: connect: connection refused"
    )


async def test_write_that_waits_for_the_webhook_sees_concurrent_changes(api: InProcessApi):
    await api.handle("POST", V1, host("a"))
    pending = pending_of(api.server.respond(request("PATCH", f"{V2}/a", {"spec": {"port": 9}})))
    status, _ = await api.handle("PATCH", f"{V1}/a", {"metadata": {"labels": {"changed": "yes"}}})
    assert status == 200
    status, content = response_of(await pending())
    assert (status, content["spec"], content["metadata"]["labels"]["changed"]) == (200, {"host": "a", "port": 9}, "yes")
    assert (await api.handle("GET", f"{V1}/a"))[1]["spec"] == {"address": "a:9"}


async def test_request_waits_for_slow_rules_and_the_webhook(webhook: Webhook):
    api, numbers = InProcessApi(), [*range(200)]
    with_rule = definition(webhook)
    fields = with_rule["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    rule = "self.all(x, self.all(y, x != y || x == y)) && self.size() > 1"
    fields["numbers"] = {
        "type": "array",
        "maxItems": 1000,
        "items": {"type": "integer"},
        "x-kubernetes-validations": [{"rule": rule, "message": "one number"}],
    }
    assert (await api.handle("POST", CRDS, with_rule))[0] == 201
    status, content = await api.handle("POST", V2, host("b", "v2", host="b", port=2, numbers=numbers))
    assert (status, content["spec"]) == (201, {"host": "b", "port": 2})  # v1 has no numbers
    assert (await api.handle("GET", f"{V1}/b"))[1]["spec"] == {"address": "b:2"}
    calls = len(webhook.calls)
    status, content = await api.handle("POST", V2, host("c", "v2", host="b", port=2, numbers=[1]))
    assert (status, "one number" in content["message"]) == (422, True)
    assert len(webhook.calls) == calls


async def test_watch_and_delete_wait_for_the_webhook(api: InProcessApi, webhook: Webhook):
    await api.handle("POST", V1, host("a"))
    await api.handle("PATCH", DEFINITION, {"spec": {"names": {"shortNames": ["ho"]}}})  # drops cached conversions
    _, stream = response_of(await pending_of(api.server.respond(request("GET", f"{V2}?watch=1&resourceVersion=0")))())
    event = json.loads(await anext(stream))
    assert event["object"]["spec"] == {"host": "a", "port": 1}
    await stream.aclose()
    await api.handle("PATCH", DEFINITION, {"spec": {"names": {"shortNames": ["h"]}}})
    webhook.change = lambda review: {**review, "response": {**review["response"], "convertedObjects": []}}
    assert (await api.handle("DELETE", f"{V2}/a"))[0] == 500
    webhook.change = lambda review: review
    assert (await api.handle("DELETE", f"{V2}/a"))[0] == 200


async def test_scale_of_a_converted_version(webhook: Webhook):
    api, with_scale = InProcessApi(), definition(webhook)
    paths = {"specReplicasPath": ".spec.port", "statusReplicasPath": ".status.replicas"}
    with_scale["spec"]["versions"][1]["subresources"] = {"scale": paths}
    for path, body in ((CRDS, with_scale), (V1, host("a"))):
        assert (await api.handle("POST", path, body))[0] == 201
    status, scale = await api.handle("GET", f"{V2}/a/scale")
    assert (status, scale["apiVersion"], scale["spec"]) == (200, "autoscaling/v1", {"replicas": 1})
    status, scale = await api.handle("PUT", f"{V2}/a/scale", {**scale, "spec": {"replicas": 7}})
    assert (status, scale["apiVersion"], scale["spec"]) == (200, "autoscaling/v1", {"replicas": 7})
    assert (await api.handle("GET", f"{V1}/a"))[1]["spec"] == {"address": "a:7"}


async def test_converted_object_is_cached_by_content(webhook: Webhook):
    conversion = ConversionWebhook(definition(webhook), webhook_client(ObjectStore(seconds=lambda: 0.0)))
    with pytest.raises(StatusError, match="has not converted the object"):
        conversion.converted(host("a"), "example.com/v2")
    suspended = start(conversion.convert_all([host("a")], "example.com/v2"))
    assert isinstance(suspended, Suspended)
    await suspended()
    assert start(conversion.convert_all([host("a")], "example.com/v2")) is None
    assert conversion.converted(host("a"), "example.com/v2")["spec"] == {"host": "a", "port": 1}
    stored = {**host("a"), "metadata": {"name": "a", "resourceVersion": "5"}}
    assert conversion.converted(stored, "example.com/v2")["metadata"]["resourceVersion"] == "5"
    assert webhook.calls == [1]
