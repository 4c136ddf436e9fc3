"""What a new cluster contains: made when somebody asks, kept, and found again by the next start."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import CLUSTER_ROLES
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.server.bootstrap import Identity
from kubeloop.devcluster.storage.data_directory import DataDirectory
from kubeloop.kube.clock import SystemClock
from support.api_requests import InProcessApi

JSON = dict[str, Any]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
SERVICES = "/api/v1/namespaces/default/services"


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi()


@pytest.fixture
async def kept(clock) -> AsyncIterator[InProcessApi]:
    """A server that runs, so that it looks after its objects."""
    api = InProcessApi()
    api.server = ApiServer(clock=clock, rng=random.Random(1), token=None)
    running = asyncio.create_task(api.server.run())
    yield api
    running.cancel()
    await asyncio.wait([running])
    check(api)


def check(api: InProcessApi) -> None:
    for _, table in api.server.store.tables():
        table.check()


def names(api: InProcessApi, path: str) -> set[str]:
    status, answer = api("GET", path)
    assert status == 200, answer
    return {each["metadata"]["name"] for each in answer["items"]}


def definition(plural: str, *versions: str, group: str = "example.com") -> JSON:
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural.capitalize()},
            "versions": [
                {
                    "name": each,
                    "served": True,
                    "storage": number == 0,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
                for number, each in enumerate(versions)
            ],
        },
    }


async def test_how_many_there_are_of_each_kind(api: InProcessApi):
    paths = {
        "/api/v1/namespaces": 4,
        "/apis/scheduling.k8s.io/v1/priorityclasses": 2,
        API_SERVICES: 21,
        f"{FLOW}/flowschemas": 11,
        f"{FLOW}/prioritylevelconfigurations": 8,
        f"{RBAC}/clusterroles": 70,
        f"{RBAC}/clusterrolebindings": 51,
        f"{RBAC}/roles": 7,
        f"{RBAC}/rolebindings": 7,
        "/api/v1/endpoints": 1,
        "/apis/discovery.k8s.io/v1/endpointslices": 1,
        "/apis/networking.k8s.io/v1/servicecidrs": 1,
        ADDRESSES: 1,
        "/apis/coordination.k8s.io/v1/leases": 1,
        "/api/v1/configmaps": 1,
        SERVICES: 1,
    }
    assert {path: len(api("GET", path)[1]["items"]) for path in paths} == paths
    check(api)


async def test_it_is_made_when_somebody_asks_and_looks_as_if_it_had_been_there(api: InProcessApi):
    api.create("/api/v1/namespaces", {"metadata": {"name": "later"}})
    later = int(api("GET", "/api/v1/namespaces/later")[1]["metadata"]["resourceVersion"])
    assert not api.server.store.initial_objects_created(CLUSTER_ROLES)
    answer = api("GET", f"{RBAC}/clusterroles")[1]
    revisions = [int(each["metadata"]["resourceVersion"]) for each in answer["items"]]
    assert len(set(revisions)) == len(revisions)
    assert max(revisions) < later == int(answer["metadata"]["resourceVersion"])


async def test_its_uids_are_the_same_whatever_is_asked_for_first():
    one, other = InProcessApi(), InProcessApi()
    other("POST", "/api/v1/namespaces", {"metadata": {"name": "a"}})
    path = "/api/v1/namespaces/kube-system"
    assert len(one("GET", path)[1]["metadata"]["uid"]) == 36
    assert one("GET", path)[1]["metadata"]["uid"] == other("GET", path)[1]["metadata"]["uid"]


async def test_a_watch_from_the_beginning_shows_it(api: InProcessApi):
    answer = api.respond("GET", f"{RBAC}/roles?watch=1&resourceVersion=1")
    assert not isinstance(answer.body, bytes)
    seen = 0
    async for chunk in answer.body:
        seen += chunk.count(b'"type":"ADDED"')
        if seen == 7:
            break
    await answer.body.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("asks", [True, False], ids=["asked for before", "never asked for"])
async def test_a_second_start_finds_it_and_overwrites_nothing(tmp_path: Path, asks: bool):
    role = f"{RBAC}/clusterroles/view"

    def server(data_directory: DataDirectory) -> InProcessApi:
        api = InProcessApi()
        api.server = ApiServer(clock=SystemClock(), rng=random.Random(), token=None, data_directory=data_directory)
        return api

    def uids(api: InProcessApi) -> dict[str, str]:
        found = api("GET", f"{RBAC}/clusterroles")[1]["items"] + api("GET", SERVICES)[1]["items"]
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}

    data_directory = DataDirectory(tmp_path)
    api = server(data_directory)
    before: dict[str, str] = {}
    if asks:
        before = uids(api)
        assert api("DELETE", f"{RBAC}/clusterroles/edit")[0] == 200
        assert api("PATCH", role, {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json")[0] == 200
    revision = api.server.store.revision
    data_directory.close()
    data_directory = DataDirectory(tmp_path)
    api = server(data_directory)
    assert api.server.store.revision >= revision
    after = uids(api)
    assert len(after) == 71
    assert {name: uid for name, uid in before.items() if after[name] != uid}.keys() == ({"edit"} if asks else set())
    assert api("GET", role)[1]["metadata"]["labels"].get("a") == ("b" if asks else None)
    check(api)
    data_directory.close()


async def test_the_service_has_the_endpoints_that_the_server_tells():
    identity = Identity("machine", "192.0.2.7", 7443)
    api = InProcessApi()
    api.server = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None, identity=identity)
    service = api("GET", f"{SERVICES}/kubernetes")[1]
    assert service["spec"]["ports"][0]["targetPort"] == 7443
    subsets = api("GET", "/api/v1/namespaces/default/endpoints/kubernetes")[1]["subsets"]
    assert subsets == [
        {"addresses": [{"ip": "192.0.2.7"}], "ports": [{"name": "https", "port": 7443, "protocol": "TCP"}]}
    ]
    lease = api("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases")[1]["items"][0]
    assert lease["metadata"]["labels"]["kubernetes.io/hostname"] == "machine"
    assert lease["spec"]["holderIdentity"].startswith(f"{lease['metadata']['name']}_")


def test_a_server_has_the_name_that_kube_apiserver_has_on_a_machine():
    assert Identity("vm").name == "apiserver-wlv32tlttr4jl3gtroqexyxapa"


# --- kept -------------------------------------------------------------------------------------------------------------


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    "path",
    [
        f"{SERVICES}/kubernetes",
        "/api/v1/namespaces/default/endpoints/kubernetes",
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes",
        "/apis/networking.k8s.io/v1/servicecidrs/kubernetes",
        f"{ADDRESSES}/10.0.0.1",
        f"{FLOW}/flowschemas/probes",
        f"{FLOW}/prioritylevelconfigurations/system",
    ],
)
async def test_what_is_deleted_comes_back(kept: InProcessApi, path: str):
    uid = kept("GET", path)[1]["metadata"]["uid"]
    assert kept("DELETE", path)[0] == 200
    assert kept("GET", path)[0] == 404
    await asyncio.sleep(11)
    assert kept("GET", path)[1]["metadata"]["uid"] != uid


@pytest.mark.virtual_time
async def test_what_nobody_asks_for_is_not_made_to_be_kept(kept: InProcessApi):
    before = kept.server.store.revision
    await asyncio.sleep(100)
    assert kept.server.store.revision == before


@pytest.mark.virtual_time
async def test_the_lease_of_a_server_is_renewed_once_somebody_looks(kept: InProcessApi):
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    before = kept("GET", path)[1]["items"][0]
    await asyncio.sleep(11)
    after = kept("GET", path)[1]["items"][0]
    assert after["spec"]["renewTime"] > before["spec"]["renewTime"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert len(after["metadata"]["managedFields"]) == 1


@pytest.mark.virtual_time
async def test_endpoints_and_flow_control_are_put_right(kept: InProcessApi):
    endpoints = "/api/v1/namespaces/default/endpoints/kubernetes"
    schema, own = f"{FLOW}/flowschemas/probes", f"{FLOW}/flowschemas/service-accounts"
    before = [kept("GET", path)[1] for path in (endpoints, schema)]
    merge = "application/merge-patch+json"
    kept("PATCH", endpoints, {"subsets": None}, merge)
    kept("PATCH", schema, {"spec": {"matchingPrecedence": 77}}, merge)
    kept("PATCH", own, {"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}}}, merge)
    kept("PATCH", own, {"spec": {"matchingPrecedence": 77}}, merge)
    await asyncio.sleep(11)
    assert kept("GET", endpoints)[1]["subsets"] == before[0]["subsets"]
    after = kept("GET", schema)[1]
    assert (after["spec"], after["metadata"]["generation"]) == (before[1]["spec"], 3)
    assert kept("GET", own)[1]["spec"]["matchingPrecedence"] == 77


# --- follows ----------------------------------------------------------------------------------------------------------


async def test_custom_resources_have_local_api_services_while_they_are_served(api: InProcessApi):
    api.create(DEFINITIONS, definition("widgets", "v1", "v1beta1"))
    api.create(DEFINITIONS, definition("gadgets", "v1"))
    own = {"v1.example.com", "v1beta1.example.com"}
    assert names(api, API_SERVICES) >= own
    made = api("GET", f"{API_SERVICES}/v1.example.com")[1]
    assert made["spec"] == {
        "group": "example.com",
        "version": "v1",
        "groupPriorityMinimum": 1000,
        "versionPriority": 100,
    }
    assert made["metadata"]["labels"] == {"kube-aggregator.kubernetes.io/automanaged": "true"}
    assert (made["status"]["conditions"][0]["type"], made["status"]["conditions"][0]["reason"]) == (
        "Available",
        "Local",
    )
    api("DELETE", f"{API_SERVICES}/v1.example.com")
    assert api("GET", f"{API_SERVICES}/v1.example.com")[1]["metadata"]["uid"] != made["metadata"]["uid"]
    change = {"spec": {"versionPriority": 7}}
    api("PATCH", f"{API_SERVICES}/v1.example.com", change, "application/merge-patch+json")
    assert api("GET", f"{API_SERVICES}/v1.example.com")[1]["spec"] == made["spec"]
    api("DELETE", f"{DEFINITIONS}/widgets.example.com")
    assert names(api, API_SERVICES) & own == {"v1.example.com"}
    api("DELETE", f"{DEFINITIONS}/gadgets.example.com")
    assert not names(api, API_SERVICES) & own


async def test_a_built_in_api_service_that_is_deleted_stays_away_until_the_next_start(api: InProcessApi):
    assert api("DELETE", f"{API_SERVICES}/v1.apps")[0] == 200
    api.create(DEFINITIONS, definition("widgets", "v1"))
    assert "v1.apps" not in names(api, API_SERVICES)


async def test_an_api_service_of_somebody_else_is_left_alone(api: InProcessApi):
    spec = {"group": "example.com", "version": "v1", "groupPriorityMinimum": 5, "versionPriority": 5}
    api.create(API_SERVICES, {"metadata": {"name": "v1.example.com"}, "spec": spec})
    api.create(DEFINITIONS, definition("widgets", "v1"))
    assert api("GET", f"{API_SERVICES}/v1.example.com")[1]["spec"] == spec
    api("DELETE", f"{DEFINITIONS}/widgets.example.com")
    assert "v1.example.com" in names(api, API_SERVICES)


@pytest.mark.virtual_time
async def test_a_flow_schema_is_told_whether_its_priority_level_is_there(kept: InProcessApi):
    spec = {"priorityLevelConfiguration": {"name": "mine"}, "matchingPrecedence": 500}
    kept.create(f"{FLOW}/flowschemas", {"metadata": {"name": "a"}, "spec": spec})

    async def dangling() -> tuple[str, str]:
        await asyncio.sleep(1)
        obj = kept("GET", f"{FLOW}/flowschemas/a")[1]
        condition = obj["status"]["conditions"][0]
        managers = [each["manager"] for each in obj["metadata"]["managedFields"]]
        assert managers.count("api-priority-and-fairness-config-consumer-v1") == 1
        return condition["status"], condition["message"].split('"mine" ')[1]

    assert await dangling() == ("True", "but there is no such object")
    level = {
        "metadata": {"name": "mine"},
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}},
    }
    kept.create(f"{FLOW}/prioritylevelconfigurations", level)
    assert await dangling() == ("False", "and it exists")
    kept("DELETE", f"{FLOW}/prioritylevelconfigurations/mine")
    assert await dangling() == ("True", "but there is no such object")


# --- addresses --------------------------------------------------------------------------------------------------------


def service(name: str, **spec: Any) -> JSON:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


async def test_the_address_of_a_service_is_an_object_as_long_as_it_has_it(api: InProcessApi):
    api.create(SERVICES, service("a", clusterIP="10.0.0.9"))
    api.create(SERVICES, service("headless", clusterIP="None"))
    assert names(api, ADDRESSES) == {"10.0.0.1", "10.0.0.9"}
    address = api("GET", f"{ADDRESSES}/10.0.0.9")[1]
    assert address["spec"] == {"parentRef": {"resource": "services", "namespace": "default", "name": "a"}}
    merge = "application/merge-patch+json"
    api("PATCH", f"{SERVICES}/a", {"spec": {"type": "ExternalName", "externalName": "x.y", "clusterIP": None}}, merge)
    assert names(api, ADDRESSES) == {"10.0.0.1"}
    api.create(SERVICES, service("b"))
    assert len(names(api, ADDRESSES)) == 2
    api("DELETE", f"{SERVICES}/b")
    assert names(api, ADDRESSES) == {"10.0.0.1"}


async def test_a_service_gets_no_address_that_somebody_else_has_an_object_for(api: InProcessApi):
    reference = {"resource": "things", "group": "example.com", "name": "x"}
    labels = {"ipaddress.kubernetes.io/ip-family": "IPv4"}
    api.create(ADDRESSES, {"metadata": {"name": "10.0.0.9", "labels": labels}, "spec": {"parentRef": reference}})
    status, answer = api("POST", SERVICES, service("a", clusterIP="10.0.0.9"))
    assert status == 422
    assert answer["message"].endswith("failed to allocate IP 10.0.0.9: provided IP is already allocated")


async def test_a_range_that_is_declared_ready_gives_addresses(api: InProcessApi):
    cidrs = "/apis/networking.k8s.io/v1/servicecidrs"
    api.create(cidrs, {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.9.0.0/24"]}})
    claimed = service("a", clusterIP="10.9.0.9")
    assert api("POST", SERVICES, claimed)[0] == 422
    ready = {
        "type": "Ready",
        "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": "",
        "message": "",
    }
    status = {"status": {"conditions": [ready]}}
    assert api("PATCH", f"{cidrs}/more/status", status, "application/merge-patch+json")[0] == 200
    api.create(SERVICES, claimed)
    assert "10.9.0.9" in names(api, ADDRESSES)


@pytest.mark.virtual_time
async def test_addresses_that_no_service_has_are_cleaned_up_after_a_minute(kept: InProcessApi):
    reference = {"resource": "services", "namespace": "default", "name": "nobody"}
    labels = {
        "ipaddress.kubernetes.io/ip-family": "IPv4",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }
    kept.create(ADDRESSES, {"metadata": {"name": "10.0.0.9", "labels": labels}, "spec": {"parentRef": reference}})
    await asyncio.sleep(30)
    assert names(kept, ADDRESSES) == {"10.0.0.1", "10.0.0.9"}
    await asyncio.sleep(60)
    assert names(kept, ADDRESSES) == {"10.0.0.1"}
