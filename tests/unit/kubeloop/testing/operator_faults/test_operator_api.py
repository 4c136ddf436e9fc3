"""Requests of an operator's client: recorded writes, and the fault at one of them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.request import ApiRequest, Response
from kubeloop.devcluster.server.faults import AnswerLost
from kubeloop.kube.objects.resources import CONFIG_MAPS, LEASES, SECRETS
from kubeloop.testing.faults.state import Variations
from kubeloop.testing.operator_faults.operator_api import OperatorApi, WriteId
from support.apiserver.api_requests import InProcessApi

CREATE_A = WriteId("create", "configmaps", "default", "a", 1)
NO_VARIATIONS = Variations()
UPDATE_A = WriteId("update", "configmaps", "default", "a", 1)


class FakeInstance:
    def __init__(self) -> None:
        self.is_dead = False
        self.is_paused = False
        self.watched: set[str] = set()
        self.has_requested = False

    def kill(self) -> None:
        self.is_dead = True

    def pause(self) -> None:
        self.is_paused = True


class OperatorClient:
    """A client of one instance."""

    def __init__(self, fault: str = "", trigger: WriteId | None = None, variations: Variations = NO_VARIATIONS) -> None:
        self.server = InProcessApi()
        self.api = OperatorApi(self.server.server, variations, fault, trigger)
        self.instance = FakeInstance()

    async def send(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Response:
        request = ApiRequest.of(method, path, {"content-type": content}, msgspec.json.encode(body) if body else b"")
        response = self.api.respond(self.instance, request)
        return response if isinstance(response, Response) else await response()

    async def create(self, name: str = "a", **metadata: Any) -> Response:
        body = {"metadata": {"name": name, **metadata} if name else metadata}
        return await self.send("POST", CONFIG_MAPS.path("default"), body)

    def exists(self, name: str = "a") -> bool:
        return self.server.server.store.get(CONFIG_MAPS, "default", name) is not None

    async def watch(self, query: str = "") -> asyncio.Queue[str]:
        """Open a watch; the queue receives its event types, and "end"."""
        response = await self.send("GET", f"{CONFIG_MAPS.path('default')}?watch=1{query}")
        events: asyncio.Queue[str] = asyncio.Queue()
        if isinstance(response.body, bytes):
            events.put_nowait(str(msgspec.json.decode(response.body)["code"]))
            return events
        chunks = response.body

        async def read() -> None:
            async for chunk in chunks:
                for line in chunk.splitlines():
                    events.put_nowait(msgspec.json.decode(line)["type"])
            events.put_nowait("end")

        self.reading = asyncio.ensure_future(read())
        await asyncio.sleep(0)
        return events


def titles(client: OperatorClient) -> list[str]:
    return [str(write) for write in client.api.writes]


async def test_writes_are_recorded_with_stable_names():
    client = OperatorClient()
    await client.create()
    await client.create("", generateName="b-")
    await client.create("c-x2x7b")
    await client.create()
    await client.send("PATCH", CONFIG_MAPS.path("default", "a"), {"data": {"x": "1"}}, "application/merge-patch+json")
    await client.send("DELETE", CONFIG_MAPS.path("default", "a"))
    await client.send("DELETE", CONFIG_MAPS.path("default", "a"))
    await client.send("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": {}})
    await client.send("POST", "/api/v1/namespaces/default/configmaps?dryRun=All", {"metadata": {"name": "d"}})
    await client.send("POST", "/api/v1/namespaces/default/events", {"metadata": {"name": "d"}})
    assert titles(client) == [
        "create of ConfigMap a",
        "create of ConfigMap b-*",
        "create of ConfigMap c-*",
        "create of ConfigMap a: 409",
        "patch of ConfigMap a",
        "delete of ConfigMap a",
        "delete of ConfigMap a: 404",
    ]
    assert [write.id.occurrence for write in client.api.writes] == [1, 1, 1, 2, 1, 1, 2]
    assert [write.deleted for write in client.api.writes] == [False, False, False, False, False, True, False]
    assert client.instance.has_requested


async def test_names_that_vary_between_runs_are_replaced():
    client = OperatorClient(variations=Variations(names=frozenset({("ConfigMap", "default", "job-")})))
    await client.create("job-20260101")
    assert titles(client) == ["create of ConfigMap job-*"]


async def test_names_in_protobuf_are_recorded():
    from kubeloop.devcluster.serializer.protobuf import codec

    client = OperatorClient()
    body = codec.encode({"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "tls-"}})
    headers = {"content-type": "application/vnd.kubernetes.protobuf"}
    response = client.api.respond(client.instance, ApiRequest.of("POST", SECRETS.path("default"), headers, body))
    assert not isinstance(response, Response)
    assert (await response()).status == 201
    assert titles(client) == ["create of Secret tls-*"]


@pytest.mark.parametrize(
    ("fault", "exists", "is_dead"),
    [("crash-before", False, True), ("crash-after", True, True), ("lost-answer", True, False)],
)
async def test_write_without_response(fault: str, exists: bool, is_dead: bool):
    client = OperatorClient(fault, CREATE_A)
    with pytest.raises(AnswerLost):
        await client.create()
    assert (client.exists(), client.instance.is_dead) == (exists, is_dead)
    if is_dead:
        with pytest.raises(AnswerLost):
            await client.create("b")
        assert not client.exists("b")
    client.instance.is_dead = False
    assert (await client.create()).status == (409 if exists else 201)


@pytest.mark.parametrize(("fault", "status"), [("throttle", 429), ("error", 500)])
async def test_write_is_refused_once(fault: str, status: int):
    client = OperatorClient(fault, CREATE_A)
    refused = await client.create()
    assert (refused.status, client.exists()) == (status, False)
    assert (("Retry-After", "1") in refused.headers) == (status == 429)
    assert (await client.create()).status == 201
    assert client.api.fired_at is client.api.writes[0]


async def test_conflict_needs_a_resource_version():
    client = OperatorClient("conflict", UPDATE_A)
    await client.create()
    current = client.server.server.store.get(CONFIG_MAPS, "default", "a")
    assert (await client.send("PUT", CONFIG_MAPS.path("default", "a"), current)).status == 409
    assert [write.names_version for write in client.api.writes] == [False, True]


async def test_late_events_arrive_when_the_fault_ends():
    client = OperatorClient("late-events", CREATE_A)
    events = await client.watch()
    await client.create("b")
    assert await events.get() == "ADDED"
    await client.create()
    await asyncio.sleep(0.05)
    assert events.empty()
    assert client.api.is_disturbing
    client.api.heal()
    assert await events.get() == "ADDED"
    assert not client.api.is_disturbing
    client.reading.cancel()


async def test_blind_watch_misses_events_and_cannot_resume():
    client = OperatorClient("blind", CREATE_A)
    events = await client.watch()
    await client.create()
    version = client.server.server.store.revision
    await client.create("b")
    await asyncio.sleep(0.05)
    client.api.heal()
    assert await events.get() == "end"
    assert await (await client.watch(f"&resourceVersion={version - 1}")).get() == "410"
    current = await client.watch(f"&resourceVersion={client.server.server.store.revision}")
    await client.create("c")
    assert await current.get() == "ADDED"
    client.reading.cancel()


async def test_old_list_answers_requests_for_any_version_only():
    client = OperatorClient("old-lists", CREATE_A)

    async def names(query: str) -> list[str]:
        response = await client.send("GET", CONFIG_MAPS.path("default") + query)
        assert isinstance(response.body, bytes)
        return [item["metadata"]["name"] for item in msgspec.json.decode(response.body)["items"]]

    await client.create()
    await client.create("b")
    client.api.list_old()
    assert await names("?resourceVersion=0") == ["a"]
    assert await names("") == ["a", "b"]
    assert await (await client.watch("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")).get() == "400"
    client.api.heal()
    assert await names("?resourceVersion=0") == ["a", "b"]


async def test_write_of_a_paused_leader_arrives_later():
    client = OperatorClient("freeze-leader", CREATE_A)
    task = asyncio.ensure_future(client.create())
    await asyncio.sleep(0.05)
    assert (client.instance.is_paused, client.exists(), client.api.is_disturbing) == (True, False, True)
    client.api.heal()
    with pytest.raises(AnswerLost):
        await task
    assert (client.exists(), client.instance.is_dead) == (True, True)


async def test_holders_of_leases_are_known_and_their_writes_do_not_count():
    client = OperatorClient()
    body = {"metadata": {"name": "lock"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}}
    assert (await client.send("POST", LEASES.path("default"), body)).status == 201
    assert client.api.holders == {("default", "lock"): (client.instance, "me")}
    lock = {"control-plane.alpha.kubernetes.io/leader": "{}"}
    await client.create("old-lock", annotations=lock)
    assert client.api.writes == []


async def test_interval_of_polling_is_measured():
    client = OperatorClient()
    client.api.last_change_seconds = 1e-9
    for _ in range(3):
        await client.send("GET", CONFIG_MAPS.path("default"))
        await asyncio.sleep(0.05)
    assert client.api.longest_poll_seconds >= 0.05
