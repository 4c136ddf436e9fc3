"""REST verbs of one store, without an API server around them."""

from __future__ import annotations

import ipaddress
import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.admission.chain import AdmissionChain
from kubeloop.devcluster.admission.policies.policy_plugin import PolicyPlugin
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import Response
from kubeloop.devcluster.api.request_info import route
from kubeloop.devcluster.api.slow_work import start
from kubeloop.devcluster.apiextensions.definitions import Definitions
from kubeloop.devcluster.authentication.authenticator import Authenticator
from kubeloop.devcluster.authentication.service_account_token_key import TokenKey
from kubeloop.devcluster.handlers.containers.streams import ContainerStreams
from kubeloop.devcluster.handlers.create_update import ObjectWriter
from kubeloop.devcluster.handlers.pod_subresources import PodSubresources
from kubeloop.devcluster.handlers.rest import Rest
from kubeloop.devcluster.handlers.watch import WatchSettings
from kubeloop.devcluster.kubelet.container_answers import ContainerAnswers
from kubeloop.devcluster.registry.cluster_ip_allocation import ServiceAllocator
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.devcluster.storage.watch import WatchStream
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES
from kubeloop.kube.objects.resources import NAMESPACES
from support.request_contexts import request_context
from support.set_clock import SetClock

JSON = dict[str, Any]
MAPS = "/api/v1/namespaces/default/configmaps"


class Api:
    """The verbs of a store with namespace `default`."""

    def __init__(self) -> None:
        clock, rng, keys = SetClock(datetime(2026, 1, 1, tzinfo=UTC)), random.Random(1), TokenKey()
        store = ObjectStore(seconds=lambda: 0.0)
        store.create(NAMESPACES, {"metadata": {"name": "default", "uid": "u"}, "status": {"phase": "Active"}})
        policies = PolicyPlugin(store, Definitions(store, clock, lambda served: None))
        addresses = ServiceAllocator(store, clock, rng, ipaddress.IPv4Network("10.96.0.0/16"))
        gates = DEFAULT_FEATURE_GATES
        streams = ContainerStreams(store, ContainerAnswers(), gates)
        self.rest = Rest(
            store,
            clock=clock,
            policies=policies,
            authentication=Authenticator(store, clock, None, keys),
            writer=ObjectWriter(store, policies, addresses, gates, AdmissionChain(store)),
            pods=PodSubresources(store, clock=clock, policies=policies, streams=streams, gates=gates),
            watch_settings=WatchSettings(),
        )

    def respond(self, method: str, target: str, body: JSON | None = None, accept: str = "") -> Response:
        response = self.rest.handle(request_context(method, target, body, accept=accept))
        finished = response if isinstance(response, Response) else start(response)
        assert isinstance(finished, Response)
        return finished

    def request(self, method: str, target: str, body: JSON | None = None, accept: str = "") -> tuple[int, JSON]:
        """Return the status and the decoded content of a response."""
        response = self.respond(method, target, body, accept)
        assert isinstance(response.body, bytes)
        return response.status, json.loads(response.body)

    def create(self, name: str) -> JSON:
        return self.request("POST", MAPS, {"metadata": {"name": name}})[1]

    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.request("GET", MAPS)[1]["items"]]

    def watch(self, target: str) -> WatchStream:
        response = self.respond("GET", target)
        assert isinstance(response.body, WatchStream)
        return response.body


@pytest.fixture
async def api() -> Api:
    return Api()


async def test_created_object_is_returned_by_get_and_list(api: Api):
    status, created = api.request("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    assert status == 201
    assert api.request("GET", f"{MAPS}/a") == (200, created)
    assert api.names() == ["a"]


async def test_update_increases_the_resource_version(api: Api):
    created = api.create("a")
    status, updated = api.request("PUT", f"{MAPS}/a", {**created, "data": {"k": "v"}})
    assert (status, updated["data"]) == (200, {"k": "v"})
    assert int(updated["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])


async def test_delete_removes_one_object_or_the_collection(api: Api):
    for name in ("a", "b", "c"):
        api.create(name)
    assert api.request("DELETE", f"{MAPS}/a")[1]["status"] == "Success"
    assert api.names() == ["b", "c"]
    assert api.request("DELETE", MAPS)[0] == 200
    assert api.names() == []


@pytest.mark.parametrize(
    ("target", "code", "reason"),
    [
        pytest.param(f"{MAPS}/missing", 404, "NotFound", id="missing object"),
        pytest.param(f"{MAPS}/a?resourceVersion=1000", 504, "Timeout", id="future revision"),
        pytest.param(f"{MAPS}/a?export=true", 400, "BadRequest", id="removed parameter"),
        pytest.param(
            "/api/v1/componentstatuses?watch=true", 405, "MethodNotAllowed", id="watch of an unwatchable kind"
        ),
    ],
)
async def test_invalid_read_is_rejected(api: Api, target: str, code: int, reason: str):
    api.create("a")
    with pytest.raises(StatusError) as raised:
        api.respond("GET", target)
    assert (raised.value.code, raised.value.reason) == (code, reason)


async def test_patch_merges_fields(api: Api):
    api.create("a")
    api.request("PATCH", f"{MAPS}/a", {"data": {"k": "1"}})
    assert api.request("PATCH", f"{MAPS}/a", {"data": {"l": "2"}})[1]["data"] == {"k": "1", "l": "2"}


async def test_dry_run_create_stores_nothing(api: Api):
    assert api.request("POST", f"{MAPS}?dryRun=All", {"metadata": {"name": "a"}})[0] == 201
    assert api.names() == []


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        pytest.param("", "ConfigMapList", id="objects"),
        pytest.param(";as=Table;g=meta.k8s.io;v=v1", "Table", id="table"),
        pytest.param(";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "PartialObjectMetadataList", id="metadata"),
    ],
)
async def test_list_has_the_accepted_form(api: Api, form: str, kind: str):
    api.create("a")
    assert api.request("GET", MAPS, accept=f"application/json{form}")[1]["kind"] == kind


async def test_computed_objects_are_listed_and_read(api: Api):
    name = api.request("GET", "/api/v1/componentstatuses")[1]["items"][0]["metadata"]["name"]
    assert api.request("GET", f"/api/v1/componentstatuses/{name}")[1]["metadata"]["name"] == name
    with pytest.raises(StatusError, match='componentstatus "none" not found'):
        api.respond("GET", "/api/v1/componentstatuses/none")


async def test_watch_from_a_future_revision_returns_an_error_event(api: Api):
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=9999999"
    status, event = api.request("GET", f"{MAPS}?{query}")
    assert (status, event["type"], event["object"]["code"]) == (200, "ERROR", 504)


async def test_cut_watches_ends_every_open_watch(api: Api):
    streams = [api.watch(f"{MAPS}?watch=true"), api.watch("/api/v1/namespaces?watch=true")]
    assert [info.served.resource.plural for info in api.rest.watched()] == ["configmaps", "namespaces"]
    api.rest.cut_watches()
    for stream in streams:
        async for _ in stream:
            pass
        await stream.aclose()
    assert api.rest.watched() == []


async def test_end_watches_leaves_those_of_other_resources_open(api: Api):
    ended, other = api.watch(f"{MAPS}?watch=true"), api.watch("/api/v1/namespaces?watch=true")
    maps = route(MAPS)
    assert maps is not None
    api.rest.end_watches(maps.served)
    async for _ in ended:
        pass
    await ended.aclose()
    assert [info.served.resource.plural for info in api.rest.watched()] == ["namespaces"]
    await other.aclose()
