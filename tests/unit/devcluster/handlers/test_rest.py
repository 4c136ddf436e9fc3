"""Verbs on one store: dispatch, forms of a response, and open watches."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from ipaddress import IPv4Network
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.deferred_work import DeferredWork
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import Request, Response
from kubeloop.devcluster.api.request_info import route
from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.authentication.authenticator import Authenticator
from kubeloop.devcluster.authentication.service_account_token_key import TokenKey
from kubeloop.devcluster.handlers.rest import Rest
from kubeloop.devcluster.registry.cluster_ip_allocation import ServiceAllocator
from kubeloop.devcluster.storage.store import Store
from kubeloop.kube.objects.resources import CONFIG_MAPS, NAMESPACES
from support.set_clock import SetClock

JSON = dict[str, Any]
PATH = "/api/v1/namespaces/ns/configmaps"


class RestRequests:
    """Requests to the verbs of a store that contains the namespace "ns"."""

    def __init__(self) -> None:
        clock, rng, keys = SetClock(datetime(2026, 1, 1, tzinfo=UTC)), random.Random(1), TokenKey()
        self.store = Store(seconds=lambda: 0.0)
        self.rest = Rest(
            self.store,
            clock=clock,
            rng=rng,
            authentication=Authenticator(self.store, clock, None, keys),
            keys=keys,
            bookmark_seconds=60.0,
            watch_buffer=100,
            addresses=ServiceAllocator(self.store, clock, rng, IPv4Network("10.0.0.0/24")),
            deferred_work=DeferredWork(),
        )
        self.store.create(NAMESPACES, {"metadata": {"name": "ns", "uid": "u"}, "status": {"phase": "Active"}})

    def respond(self, method: str, target: str, body: JSON | None = None, accept: str = "") -> Response:
        headers = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
        content = b"" if body is None else msgspec.json.encode(body)
        request = Request.of(method, target, {**headers, "Accept": accept}, content)
        info = route(request.path)
        assert info is not None
        return self.rest.handle(request, info)

    def __call__(self, method: str, target: str, body: JSON | None = None, accept: str = "") -> tuple[int, JSON]:
        response = self.respond(method, target, body, accept)
        assert isinstance(response.body, bytes)
        return response.status, msgspec.json.decode(response.body)


@pytest.fixture
async def requests() -> RestRequests:
    return RestRequests()


async def test_object_is_created_read_updated_patched_and_deleted(requests: RestRequests):
    status, created = requests("POST", PATH, {"metadata": {"name": "a"}, "data": {"k": "1"}})
    assert (status, requests("GET", f"{PATH}/a")) == (201, (200, created))
    assert requests("PUT", f"{PATH}/a", {**created, "data": {"k": "2"}})[1]["data"] == {"k": "2"}
    assert requests("PATCH", f"{PATH}/a", {"data": {"l": "3"}})[1]["data"] == {"k": "2", "l": "3"}
    assert requests("DELETE", f"{PATH}/a")[1]["status"] == "Success"
    with pytest.raises(StatusError) as error:
        requests("GET", f"{PATH}/a")
    assert error.value.code == 404


async def test_deletecollection_only_deletes_selected_objects(requests: RestRequests):
    for name in "ab":
        requests("POST", PATH, {"metadata": {"name": name, "labels": {"name": name}}})
    assert len(requests("DELETE", f"{PATH}?labelSelector=name=a")[1]["items"]) == 1
    assert [item["metadata"]["name"] for item in requests("GET", PATH)[1]["items"]] == ["b"]


async def test_dry_run_create_stores_nothing(requests: RestRequests):
    assert requests("POST", f"{PATH}?dryRun=All", {"metadata": {"name": "a"}})[0] == 201
    assert len(requests.store.table(CONFIG_MAPS)) == 0


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        pytest.param("", "ConfigMapList", id="objects"),
        pytest.param(";as=Table;g=meta.k8s.io;v=v1", "Table", id="table"),
        pytest.param(";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "PartialObjectMetadataList", id="metadata"),
    ],
)
async def test_list_has_the_accepted_form(requests: RestRequests, form: str, kind: str):
    requests("POST", PATH, {"metadata": {"name": "a"}})
    assert requests("GET", PATH, accept=f"application/json{form}")[1]["kind"] == kind


async def test_computed_objects_are_listed_and_read(requests: RestRequests):
    listed = requests("GET", "/api/v1/componentstatuses")[1]["items"]
    name = listed[0]["metadata"]["name"]
    assert requests("GET", f"/api/v1/componentstatuses/{name}")[1]["metadata"]["name"] == name
    with pytest.raises(StatusError, match='componentstatus "none" not found'):
        requests("GET", "/api/v1/componentstatuses/none")


async def test_watch_of_a_resource_without_the_verb_is_not_allowed(requests: RestRequests):
    with pytest.raises(StatusError) as error:
        requests.respond("GET", "/api/v1/componentstatuses?watch=true")
    assert error.value.code == 405


async def test_watch_from_a_future_revision_returns_an_error_event(requests: RestRequests):
    status, event = requests("GET", f"{PATH}?watch=true&resourceVersion=9999999&sendInitialEvents=true"
                                    "&resourceVersionMatch=NotOlderThan")  # fmt: skip
    assert (status, event["type"], event["object"]["code"]) == (200, "ERROR", 504)


async def test_cut_watches_end_and_are_not_listed_any_more(requests: RestRequests):
    response = requests.respond("GET", f"{PATH}?watch=true&resourceVersion=1")
    assert not isinstance(response.body, bytes)
    assert [info.served for info in requests.rest.watched()] == [get_served_resource(CONFIG_MAPS)]
    requests.rest.cut_watches()
    assert [chunk async for chunk in response.body] == []
    assert requests.rest.watched() == []
