"""Bootstrap objects of a new cluster: created on first access, persistent, and kept in their desired state."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kubeloop.controllers.clusterroleaggregation.aggregated_rules import aggregated_rules
from kubeloop.devcluster.api import served_resources
from kubeloop.devcluster.server.apiserver import ApiServer, ServingSettings
from kubeloop.devcluster.server.bootstrap import Identity, contents
from kubeloop.devcluster.storage.data_directory import DataDirectory
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.feature_gates import FeatureGates
from support.apiserver.api_requests import InProcessApi
from support.simulation.set_clock import SetClock

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
async def running_api(clock) -> AsyncIterator[InProcessApi]:
    """An API server whose controllers run."""
    api = InProcessApi()
    api.server = ApiServer(clock=clock, rng=random.Random(1), token=None)
    task = asyncio.create_task(api.server.run())
    yield api
    task.cancel()
    await asyncio.wait([task])
    check(api)


def check(api: InProcessApi) -> None:
    for _, table in api.server.store.tables():
        table.check()


def names(api: InProcessApi, path: str) -> set[str]:
    status, answer = api("GET", path)
    assert status == 200, answer
    return {item["metadata"]["name"] for item in answer["items"]}


def definition(plural: str, *versions: str, group: str = "example.com") -> JSON:
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural.capitalize()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": index == 0,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
                for index, version in enumerate(versions)
            ],
        },
    }


async def test_number_of_bootstrap_objects_per_kind(api: InProcessApi):
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


@pytest.mark.parametrize("gates", ["", "GenericWorkload=true"])
async def test_aggregated_roles_are_those_that_the_controller_applies(gates: str):
    def cluster(root_ca: str | None) -> InProcessApi:
        settings = ServingSettings(root_ca=root_ca, feature_gates=FeatureGates.parse([gates]))
        return InProcessApi(clock=SetClock(datetime(2026, 1, 1, tzinfo=UTC)), settings=settings)

    aggregated, plain = cluster(""), cluster(None)
    for name in ("view", "edit", "admin"):  # each collects the rules of those before it
        path = f"{RBAC}/clusterroles/{name}"
        assert plain("GET", path)[1]["rules"] is None
        rules = aggregated_rules(plain("GET", path)[1], plain("GET", f"{RBAC}/clusterroles")[1]["items"])
        configuration = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": rules}
        query = "fieldManager=clusterrole-aggregation-controller&force=true"
        assert plain("PATCH", f"{path}?{query}", configuration, "application/apply-patch+yaml")[0] == 200
        assert without_generated(aggregated("GET", path)[1]) == without_generated(plain("GET", path)[1])
    check(aggregated)


def without_generated(obj: JSON) -> JSON:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in ("uid", "resourceVersion")}
    return {**obj, "metadata": metadata}


async def test_objects_are_created_on_first_read_with_early_revisions(api: InProcessApi):
    api.create("/api/v1/namespaces", {"metadata": {"name": "later"}})
    later = int(api("GET", "/api/v1/namespaces/later")[1]["metadata"]["resourceVersion"])
    for resource in (served_resources.CLUSTER_ROLES, served_resources.API_SERVICES, served_resources.ENDPOINT_SLICES):
        assert not api.server.store.initial_objects_created(resource)
    answer = api("GET", f"{RBAC}/clusterroles")[1]
    revisions = [int(role["metadata"]["resourceVersion"]) for role in answer["items"]]
    assert len(set(revisions)) == len(revisions)
    assert max(revisions) < later == int(answer["metadata"]["resourceVersion"])


async def test_uids_do_not_depend_on_order_of_access():
    first, second = InProcessApi(), InProcessApi()
    second("POST", "/api/v1/namespaces", {"metadata": {"name": "a"}})
    path = "/api/v1/namespaces/kube-system"
    assert len(first("GET", path)[1]["metadata"]["uid"]) == 36
    assert first("GET", path)[1]["metadata"]["uid"] == second("GET", path)[1]["metadata"]["uid"]


async def test_watch_from_first_revision_shows_bootstrap_objects(api: InProcessApi):
    answer = api.respond("GET", f"{RBAC}/roles?watch=1&resourceVersion=1")
    assert not isinstance(answer.body, bytes)
    count = 0
    async for chunk in answer.body:
        count += chunk.count(b'"type":"ADDED"')
        if count == 7:
            break
    await answer.body.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("read_before", [True, False], ids=["read before", "not read before"])
async def test_second_start_keeps_stored_objects(tmp_path: Path, read_before: bool):
    role = f"{RBAC}/clusterroles/view"

    def server(data_directory: DataDirectory) -> InProcessApi:
        api = InProcessApi()
        api.server = ApiServer(clock=SystemClock(), rng=random.Random(), token=None, data_directory=data_directory)
        return api

    def uids(api: InProcessApi) -> dict[str, str]:
        objects = api("GET", f"{RBAC}/clusterroles")[1]["items"] + api("GET", SERVICES)[1]["items"]
        return {obj["metadata"]["name"]: obj["metadata"]["uid"] for obj in objects}

    data_directory = DataDirectory(tmp_path)
    api = server(data_directory)
    before: dict[str, str] = {}
    if read_before:
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
    assert {name: uid for name, uid in before.items() if after[name] != uid}.keys() == (
        {"edit"} if read_before else set()
    )
    assert api("GET", role)[1]["metadata"]["labels"].get("a") == ("b" if read_before else None)
    check(api)
    data_directory.close()


async def test_kubernetes_service_has_endpoints_of_server_identity():
    identity = Identity("machine", "192.0.2.7", 7443)
    api = InProcessApi()
    api.server = ApiServer(
        clock=SystemClock(), rng=random.Random(1), token=None, settings=ServingSettings(identity=identity)
    )
    service = api("GET", f"{SERVICES}/kubernetes")[1]
    assert service["spec"]["ports"][0]["targetPort"] == 7443
    subsets = api("GET", "/api/v1/namespaces/default/endpoints/kubernetes")[1]["subsets"]
    assert subsets == [
        {"addresses": [{"ip": "192.0.2.7"}], "ports": [{"name": "https", "port": 7443, "protocol": "TCP"}]}
    ]
    lease = api("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases")[1]["items"][0]
    assert lease["metadata"]["labels"]["kubernetes.io/hostname"] == "machine"
    assert lease["spec"]["holderIdentity"].startswith(f"{lease['metadata']['name']}_")


@pytest.mark.virtual_time
async def test_server_without_identity_has_no_lease(clock):
    gates = FeatureGates({"APIServerIdentity": False})
    api = InProcessApi(clock=clock, settings=ServingSettings(feature_gates=gates))
    task = asyncio.create_task(api.server.run())
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    assert api("GET", leases)[1]["items"] == []
    await asyncio.sleep(30)
    assert api("GET", leases)[1]["items"] == []
    task.cancel()
    await asyncio.wait([task])


def test_identity_name_matches_kube_apiserver():
    assert Identity("vm").name == "apiserver-wlv32tlttr4jl3gtroqexyxapa"


# --- reconciliation ---------------------------------------------------------------------------------------------------


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
async def test_deleted_bootstrap_object_is_created_again(running_api: InProcessApi, path: str):
    uid = running_api("GET", path)[1]["metadata"]["uid"]
    assert running_api("DELETE", path)[0] == 200
    assert running_api("GET", path)[0] == 404
    await asyncio.sleep(11)
    assert running_api("GET", path)[1]["metadata"]["uid"] != uid


@pytest.mark.virtual_time
async def test_reconciliation_does_not_create_unread_objects(running_api: InProcessApi):
    before = running_api.server.store.revision
    await asyncio.sleep(100)
    assert running_api.server.store.revision == before


@pytest.mark.virtual_time
async def test_unchanged_objects_are_compared_once(running_api: InProcessApi, monkeypatch: pytest.MonkeyPatch):
    compared = []
    tracking = contents.token_tracking
    monkeypatch.setattr(contents, "token_tracking", lambda date: compared.append(date) or tracking(date))
    running_api("GET", "/api/v1/namespaces/kube-system/configmaps")
    compared.clear()
    for number in range(5):
        await asyncio.sleep(11)
        running_api("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": f"p{number}"}})
    assert len(compared) == 1


@pytest.mark.virtual_time
async def test_apiserver_lease_is_renewed_after_first_read(running_api: InProcessApi):
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    before = running_api("GET", path)[1]["items"][0]
    await asyncio.sleep(11)
    after = running_api("GET", path)[1]["items"][0]
    assert after["spec"]["renewTime"] > before["spec"]["renewTime"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert len(after["metadata"]["managedFields"]) == 1


@pytest.mark.virtual_time
async def test_changed_endpoints_and_flow_schemas_are_restored(running_api: InProcessApi):
    endpoints = "/api/v1/namespaces/default/endpoints/kubernetes"
    schema, own = f"{FLOW}/flowschemas/probes", f"{FLOW}/flowschemas/service-accounts"
    before = [running_api("GET", path)[1] for path in (endpoints, schema)]
    merge = "application/merge-patch+json"
    running_api("PATCH", endpoints, {"subsets": None}, merge)
    running_api("PATCH", schema, {"spec": {"matchingPrecedence": 77}}, merge)
    running_api("PATCH", own, {"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}}}, merge)
    running_api("PATCH", own, {"spec": {"matchingPrecedence": 77}}, merge)
    await asyncio.sleep(11)
    assert running_api("GET", endpoints)[1]["subsets"] == before[0]["subsets"]
    after = running_api("GET", schema)[1]
    assert (after["spec"], after["metadata"]["generation"]) == (before[1]["spec"], 3)
    assert running_api("GET", own)[1]["spec"]["matchingPrecedence"] == 77


# --- objects that follow others ---------------------------------------------------------------------------------------


async def test_served_custom_resources_have_local_api_services(api: InProcessApi):
    api.create(DEFINITIONS, definition("widgets", "v1", "v1beta1"))
    api.create(DEFINITIONS, definition("gadgets", "v1"))
    own = {"v1.example.com", "v1beta1.example.com"}
    assert names(api, API_SERVICES) >= own
    api_service = api("GET", f"{API_SERVICES}/v1.example.com")[1]
    assert api_service["spec"] == {
        "group": "example.com",
        "version": "v1",
        "groupPriorityMinimum": 1000,
        "versionPriority": 100,
    }
    assert api_service["metadata"]["labels"] == {"kube-aggregator.kubernetes.io/automanaged": "true"}
    assert (api_service["status"]["conditions"][0]["type"], api_service["status"]["conditions"][0]["reason"]) == (
        "Available",
        "Local",
    )
    api("DELETE", f"{API_SERVICES}/v1.example.com")
    assert api("GET", f"{API_SERVICES}/v1.example.com")[1]["metadata"]["uid"] != api_service["metadata"]["uid"]
    change = {"spec": {"versionPriority": 7}}
    api("PATCH", f"{API_SERVICES}/v1.example.com", change, "application/merge-patch+json")
    assert api("GET", f"{API_SERVICES}/v1.example.com")[1]["spec"] == api_service["spec"]
    api("DELETE", f"{DEFINITIONS}/widgets.example.com")
    assert names(api, API_SERVICES) & own == {"v1.example.com"}
    api("DELETE", f"{DEFINITIONS}/gadgets.example.com")
    assert not names(api, API_SERVICES) & own


async def test_deleted_builtin_api_service_stays_deleted(api: InProcessApi):
    assert api("DELETE", f"{API_SERVICES}/v1.apps")[0] == 200
    api.create(DEFINITIONS, definition("widgets", "v1"))
    assert "v1.apps" not in names(api, API_SERVICES)


async def test_api_service_of_another_creator_is_not_changed(api: InProcessApi):
    spec = {"group": "example.com", "version": "v1", "groupPriorityMinimum": 5, "versionPriority": 5}
    api.create(API_SERVICES, {"metadata": {"name": "v1.example.com"}, "spec": spec})
    api.create(DEFINITIONS, definition("widgets", "v1"))
    assert api("GET", f"{API_SERVICES}/v1.example.com")[1]["spec"] == spec
    api("DELETE", f"{DEFINITIONS}/widgets.example.com")
    assert "v1.example.com" in names(api, API_SERVICES)


@pytest.mark.virtual_time
async def test_dangling_condition_follows_priority_level(running_api: InProcessApi):
    spec = {"priorityLevelConfiguration": {"name": "mine"}, "matchingPrecedence": 500}
    running_api.create(f"{FLOW}/flowschemas", {"metadata": {"name": "a"}, "spec": spec})

    async def dangling() -> tuple[str, str]:
        await asyncio.sleep(1)
        obj = running_api("GET", f"{FLOW}/flowschemas/a")[1]
        condition = obj["status"]["conditions"][0]
        managers = [entry["manager"] for entry in obj["metadata"]["managedFields"]]
        assert managers.count("api-priority-and-fairness-config-consumer-v1") == 1
        return condition["status"], condition["message"].split('"mine" ')[1]

    assert await dangling() == ("True", "but there is no such object")
    level = {
        "metadata": {"name": "mine"},
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}},
    }
    running_api.create(f"{FLOW}/prioritylevelconfigurations", level)
    assert await dangling() == ("False", "and it exists")
    running_api("DELETE", f"{FLOW}/prioritylevelconfigurations/mine")
    assert await dangling() == ("True", "but there is no such object")


# --- addresses --------------------------------------------------------------------------------------------------------


def service(name: str, **spec: Any) -> JSON:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


async def test_ip_address_object_exists_while_service_uses_address(api: InProcessApi):
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


async def test_service_cannot_take_ip_address_of_another_parent(api: InProcessApi):
    reference = {"resource": "things", "group": "example.com", "name": "x"}
    labels = {"ipaddress.kubernetes.io/ip-family": "IPv4"}
    api.create(ADDRESSES, {"metadata": {"name": "10.0.0.9", "labels": labels}, "spec": {"parentRef": reference}})
    status, answer = api("POST", SERVICES, service("a", clusterIP="10.0.0.9"))
    assert status == 422
    assert answer["message"].endswith("failed to allocate IP 10.0.0.9: provided IP is already allocated")


async def test_ready_service_cidr_provides_addresses(api: InProcessApi):
    cidrs = "/apis/networking.k8s.io/v1/servicecidrs"
    api.create(cidrs, {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.9.0.0/24"]}})
    service_manifest = service("a", clusterIP="10.9.0.9")
    ready = {
        "type": "Ready",
        "status": "False",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": "",
        "message": "",
    }
    status = {"status": {"conditions": [ready]}}
    assert api("PATCH", f"{cidrs}/more/status", status, "application/merge-patch+json")[0] == 200
    assert api("POST", SERVICES, service_manifest)[0] == 422
    ready["status"] = "True"
    assert api("PATCH", f"{cidrs}/more/status", status, "application/merge-patch+json")[0] == 200
    api.create(SERVICES, service_manifest)
    assert "10.9.0.9" in names(api, ADDRESSES)


@pytest.mark.virtual_time
async def test_unused_ip_addresses_are_removed_after_a_minute(running_api: InProcessApi):
    reference = {"resource": "services", "namespace": "default", "name": "nobody"}
    labels = {
        "ipaddress.kubernetes.io/ip-family": "IPv4",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }
    running_api.create(
        ADDRESSES, {"metadata": {"name": "10.0.0.9", "labels": labels}, "spec": {"parentRef": reference}}
    )
    await asyncio.sleep(30)
    assert names(running_api, ADDRESSES) == {"10.0.0.1", "10.0.0.9"}
    await asyncio.sleep(60)
    assert names(running_api, ADDRESSES) == {"10.0.0.1"}
