"""REST verbs of one store, without an API server around them."""

from __future__ import annotations

import ipaddress
import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.admission.chain import AdmissionChain
from kubeloop.devcluster.admission.dynamic_admission import DynamicAdmission
from kubeloop.devcluster.api.request import Response
from kubeloop.devcluster.api.slow_work import start
from kubeloop.devcluster.apiextensions.definitions import Definitions
from kubeloop.devcluster.authentication.authenticator import Authenticator
from kubeloop.devcluster.authentication.service_account_token_key import TokenKey
from kubeloop.devcluster.authorization.modes import AuthorizationChain
from kubeloop.devcluster.handlers.containers.streams import ContainerStreams
from kubeloop.devcluster.handlers.pod_subresources import PodSubresources
from kubeloop.devcluster.handlers.reading.watch import WatchSettings
from kubeloop.devcluster.handlers.rest import Rest
from kubeloop.devcluster.handlers.writing.create_update import ObjectWriter
from kubeloop.devcluster.kinds.core.cluster_ip_allocation import ServiceAllocator
from kubeloop.devcluster.kubelet.containers.container_answers import ContainerAnswers
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES
from kubeloop.kube.objects.resources import NAMESPACES, SERVICES
from support.apiserver.request_contexts import request_context
from support.apiserver.served_definitions import webhook_client
from support.simulation.set_clock import SetClock

JSON = dict[str, Any]
MAPS = "/api/v1/namespaces/default/configmaps"


class Api:
    """The verbs of a store with namespace `default`."""

    def __init__(self) -> None:
        clock, rng, keys = SetClock(datetime(2026, 1, 1, tzinfo=UTC)), random.Random(1), TokenKey()
        store = ObjectStore(seconds=lambda: 0.0)
        store.create(NAMESPACES, {"metadata": {"name": "default", "uid": "u"}, "status": {"phase": "Active"}})
        client = webhook_client(store)
        dynamic_admission = DynamicAdmission(store, Definitions(store, clock, lambda served: None, client), client)
        addresses = ServiceAllocator(store, clock, rng, ipaddress.IPv4Network("10.96.0.0/16"))
        gates = DEFAULT_FEATURE_GATES
        streams = ContainerStreams(store, ContainerAnswers(), gates)
        admission = AdmissionChain(store)
        self.rest = Rest(
            store,
            clock=clock,
            dynamic_admission=dynamic_admission,
            authentication=Authenticator(store, clock, None, keys),
            authorization=AuthorizationChain(store, ["AlwaysAllow"], list),
            writer=ObjectWriter(store, dynamic_admission, {SERVICES: addresses}, gates, admission),
            pods=PodSubresources(
                store,
                clock=clock,
                admission=admission,
                dynamic_admission=dynamic_admission,
                streams=streams,
                gates=gates,
            ),
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


async def test_patch_merges_fields(api: Api):
    api.create("a")
    api.request("PATCH", f"{MAPS}/a", {"data": {"k": "1"}})
    assert api.request("PATCH", f"{MAPS}/a", {"data": {"l": "2"}})[1]["data"] == {"k": "1", "l": "2"}


async def test_dry_run_create_stores_nothing(api: Api):
    assert api.request("POST", f"{MAPS}?dryRun=All", {"metadata": {"name": "a"}})[0] == 201
    assert api.names() == []
