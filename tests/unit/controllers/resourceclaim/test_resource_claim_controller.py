"""Resource claim controller on the development API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.resourceclaim.resource_claim_controller import ResourceClaimController
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from support.apiserver.fake_apiserver import FakeApiServer
from support.apiserver.faulty_transport import SentRequest
from support.objects.resource_claims import (
    ALLOCATION,
    CLAIM_ANNOTATION,
    FINALIZER,
    claim_spec,
    consumer,
    pod_body,
    template_body,
)

pytestmark = pytest.mark.virtual_time
SHARED = {"name": "gpu", "resourceClaimName": "shared"}


@pytest.fixture
async def controller(fake_apiserver, recorded_events, start) -> ResourceClaimController:
    controller = ResourceClaimController(structs.replace(fake_apiserver.context, events=recorded_events))
    await start(fake_apiserver.informers, controller)
    return controller


async def create(server: FakeApiServer, *bodies: Any) -> None:
    kinds = {resource.kind: resource for resource in (PODS, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES)}
    for body in bodies:
        server.api.create(kinds[body["kind"]].path("ns"), body)
    await asyncio.sleep(1)


def claim_body(name: str, **metadata: Any) -> Any:
    metadata = {"name": name, "namespace": "ns", **metadata}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return {**head, "metadata": metadata, "spec": claim_spec()}


async def set_status(server: FakeApiServer, resource: Any, name: str, status: Any) -> None:
    obj = server.store.get(resource, "ns", name)
    server.store.update(resource, {**obj, "status": {**obj.get("status", {}), **status}})
    await asyncio.sleep(1)


def the_claim(server: FakeApiServer) -> Any:
    (claim,) = server.objects(RESOURCE_CLAIMS)
    return claim


def pod_status(server: FakeApiServer, name: str = "web") -> Any:
    return server.store.get(PODS, "ns", name).get("status", {})


def reserved_names(claim: Any) -> list[str]:
    return [entry["name"] for entry in claim.get("status", {}).get("reservedFor", ())]


async def test_claim_is_created_from_the_template_and_recorded(fake_apiserver, controller):
    await create(fake_apiserver, template_body(labels={"a": "b"}), pod_body())
    claim = the_claim(fake_apiserver)
    metadata = claim["metadata"]
    assert metadata["name"].startswith("web-gpu-")
    assert (metadata["labels"], metadata["annotations"]) == ({"a": "b"}, {CLAIM_ANNOTATION: "gpu"})
    assert claim["spec"]["devices"]["requests"][0]["name"] == "gpu"
    recorded = [{"name": "gpu", "resourceClaimName": metadata["name"]}]
    assert pod_status(fake_apiserver)["resourceClaimStatuses"] == recorded
    pod = fake_apiserver.store.get(PODS, "ns", "web")
    (body,) = [body for _, target, body in fake_apiserver.requests if target.startswith(PODS.path("ns", "web"))][:1]
    assert body["metadata"]["resourceVersion"]  # names that the cache does not show are not replaced
    managers = pod["metadata"]["managedFields"]
    assert ("ResourceClaimController", "Apply") in {(entry["manager"], entry["operation"]) for entry in managers}
    assert fake_apiserver.metrics.values("resourceclaim_controller_creates_total") == {",success,false": 1}


async def test_template_that_is_created_later_is_used(fake_apiserver, controller, recorded_events):
    await create(fake_apiserver, pod_body())
    assert fake_apiserver.objects(RESOURCE_CLAIMS) == []
    event = recorded_events.events[0]
    assert (event.type, event.reason) == ("Warning", "FailedResourceClaimCreation")
    assert event.message == (
        'PodResourceClaim gpu: resource claim template "gpus": resourceclaimtemplate.resource.k8s.io "gpus" not found'
    )
    await asyncio.sleep(100)  # so that the next try is not within the time below
    await create(fake_apiserver, template_body())
    assert the_claim(fake_apiserver)["metadata"]["generateName"] == "web-gpu-"


async def test_one_claim_is_created_while_the_cache_is_old_and_status_writes_fail(fake_apiserver, controller):
    fake_apiserver.transport.watch_delay_seconds = 5.0
    await create(fake_apiserver, template_body(), pod_body())
    await asyncio.sleep(30)
    assert len(fake_apiserver.objects(RESOURCE_CLAIMS)) == 1


async def test_deleted_claim_is_created_again_and_the_others_stay_recorded(fake_apiserver, controller):
    entries = [{"name": name, "resourceClaimTemplateName": "gpus"} for name in ("gpu", "nic")]
    await create(fake_apiserver, template_body(), pod_body("web", *entries))
    before = {it["name"]: it["resourceClaimName"] for it in pod_status(fake_apiserver)["resourceClaimStatuses"]}
    fake_apiserver.store.delete(RESOURCE_CLAIMS, "ns", before["gpu"])
    await asyncio.sleep(1)
    after = {it["name"]: it["resourceClaimName"] for it in pod_status(fake_apiserver)["resourceClaimStatuses"]}
    assert after["gpu"] != before["gpu"]
    assert after["nic"] == before["nic"]
    assert sorted(after.values()) == sorted(fake_apiserver.names(RESOURCE_CLAIMS))


async def test_claim_that_only_the_cache_lacks_is_not_created_again(fake_apiserver, controller):
    await create(fake_apiserver, template_body(), pod_body())
    claim = the_claim(fake_apiserver)["metadata"]
    fake_apiserver.informers.informer(RESOURCE_CLAIMS).store.remove(f"ns/{claim['name']}")  # as after an old list
    pod = fake_apiserver.store.get(PODS, "ns", "web")
    fake_apiserver.store.update(PODS, {**pod, "metadata": {**pod["metadata"], "labels": {"changed": "yes"}}})
    await asyncio.sleep(1)
    assert the_claim(fake_apiserver)["metadata"]["uid"] == claim["uid"]
    (recorded,) = pod_status(fake_apiserver)["resourceClaimStatuses"]
    assert recorded["resourceClaimName"] == claim["name"]


async def test_finished_pod_releases_and_deletes_its_claim(fake_apiserver, controller):
    await create(fake_apiserver, template_body(), pod_body("web", nodeName="n"))
    claim = the_claim(fake_apiserver)
    reserved = {"reservedFor": [consumer("web", fake_apiserver.store.get(PODS, "ns", "web")["metadata"]["uid"])]}
    claim["metadata"]["finalizers"] = [FINALIZER]
    fake_apiserver.store.update(RESOURCE_CLAIMS, {**claim, "status": {"allocation": ALLOCATION, **reserved}})
    await asyncio.sleep(1)
    assert reserved_names(the_claim(fake_apiserver)) == ["web"]
    await set_status(fake_apiserver, PODS, "web", {"phase": "Succeeded"})
    assert fake_apiserver.objects(RESOURCE_CLAIMS) == []
    path = RESOURCE_CLAIMS.path("ns", claim["metadata"]["name"])
    writes = [(method, target.partition("?")[0]) for method, target, _ in fake_apiserver.requests if path in target]
    writes = list(dict.fromkeys(writes))  # deleted twice if the deletion is not cached yet
    assert writes == [("PATCH", f"{path}/status"), ("PATCH", path), ("DELETE", path)]


async def test_finished_pod_releases_a_claim_that_its_status_does_not_name(fake_apiserver, controller):
    await create(fake_apiserver, template_body(), pod_body("web", nodeName="n"))
    uid = fake_apiserver.store.get(PODS, "ns", "web")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": uid, "controller": True}
    second = claim_body("second", annotations={CLAIM_ANNOTATION: "gpu"}, ownerReferences=[owner])
    await create(fake_apiserver, second)
    status = {"allocation": ALLOCATION, "reservedFor": [consumer("web", uid)]}
    await set_status(fake_apiserver, RESOURCE_CLAIMS, "second", status)
    await set_status(fake_apiserver, PODS, "web", {"phase": "Succeeded"})
    assert fake_apiserver.objects(RESOURCE_CLAIMS) == []


async def test_shared_claim_of_deleted_pods_is_deallocated_and_stays(fake_apiserver, controller):
    bodies = [pod_body(name, SHARED, nodeName="n") for name in ("web", "other")]
    await create(fake_apiserver, claim_body("shared", finalizers=[FINALIZER]), *bodies)
    uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in fake_apiserver.objects(PODS)}
    reserved = [consumer(name, uid) for name, uid in uids.items()]
    await set_status(fake_apiserver, RESOURCE_CLAIMS, "shared", {"allocation": ALLOCATION, "reservedFor": reserved})
    fake_apiserver.store.delete(PODS, "ns", "web")
    await asyncio.sleep(1)
    claim = the_claim(fake_apiserver)
    assert reserved_names(claim) == ["other"]
    assert "allocation" in claim["status"]
    fake_apiserver.store.delete(PODS, "ns", "other")
    await asyncio.sleep(1)
    claim = the_claim(fake_apiserver)
    assert claim["status"] == {}
    assert "finalizers" not in claim["metadata"]


async def test_reservation_of_a_pod_that_never_existed_is_removed(fake_apiserver, controller):
    await create(fake_apiserver, claim_body("shared", finalizers=[FINALIZER]))
    status = {"allocation": ALLOCATION, "reservedFor": [consumer("gone", "gone-uid")]}
    await set_status(fake_apiserver, RESOURCE_CLAIMS, "shared", status)
    assert the_claim(fake_apiserver)["status"] == {}


async def test_pod_that_the_cache_does_not_show_keeps_its_reservation(fake_apiserver, controller):
    await create(fake_apiserver, claim_body("shared", finalizers=[FINALIZER]))
    fake_apiserver.transport.watch_delay_seconds = 3.0
    fake_apiserver.api.create(PODS.path("ns"), pod_body("web", SHARED))
    uid = fake_apiserver.store.get(PODS, "ns", "web")["metadata"]["uid"]
    status = {"allocation": ALLOCATION, "reservedFor": [consumer("web", uid)]}
    await set_status(fake_apiserver, RESOURCE_CLAIMS, "shared", status)
    await asyncio.sleep(10)
    assert reserved_names(the_claim(fake_apiserver)) == ["web"]


async def test_pod_bound_without_the_scheduler_gets_its_reservation(fake_apiserver, controller):
    await create(fake_apiserver, claim_body("shared", finalizers=[FINALIZER]), pod_body("web", SHARED, nodeName="n"))
    assert reserved_names(the_claim(fake_apiserver)) == []
    await set_status(fake_apiserver, RESOURCE_CLAIMS, "shared", {"allocation": ALLOCATION})
    assert the_claim(fake_apiserver)["status"]["reservedFor"] == [
        consumer("web", fake_apiserver.store.get(PODS, "ns", "web")["metadata"]["uid"])
    ]


async def test_deleted_claim_in_use_is_removed_after_its_last_pod(fake_apiserver, controller):
    await create(fake_apiserver, claim_body("shared", finalizers=[FINALIZER]), pod_body("web", SHARED, nodeName="n"))
    await set_status(fake_apiserver, RESOURCE_CLAIMS, "shared", {"allocation": ALLOCATION})
    fake_apiserver.delete(RESOURCE_CLAIMS, "shared")
    await asyncio.sleep(1)
    assert reserved_names(the_claim(fake_apiserver)) == ["web"]
    fake_apiserver.store.delete(PODS, "ns", "web")
    await asyncio.sleep(1)
    assert fake_apiserver.objects(RESOURCE_CLAIMS) == []


async def test_claim_of_extended_resources_is_released_with_its_pod(fake_apiserver, controller):
    body = pod_body("web", nodeName="n")
    del body["spec"]["resourceClaims"]
    await create(fake_apiserver, claim_body("extended", finalizers=[FINALIZER]), body)
    uid = fake_apiserver.store.get(PODS, "ns", "web")["metadata"]["uid"]
    status = {"allocation": ALLOCATION, "reservedFor": [consumer("web", uid)]}
    await set_status(fake_apiserver, RESOURCE_CLAIMS, "extended", status)
    await set_status(fake_apiserver, PODS, "web", {"extendedResourceClaimStatus": {"resourceClaimName": "extended"}})
    assert reserved_names(the_claim(fake_apiserver)) == ["web"]
    await set_status(fake_apiserver, PODS, "web", {"phase": "Failed"})
    assert the_claim(fake_apiserver)["status"] == {}


async def test_claim_that_is_gone_before_its_release_is_no_error(fake_apiserver, controller):
    await create(fake_apiserver, claim_body("shared"))
    status = {"allocation": ALLOCATION, "reservedFor": [consumer("gone", "uid-gone")]}

    def delete_first(request: SentRequest) -> None:
        if request.path == RESOURCE_CLAIMS.path("ns", "shared", "status"):
            fake_apiserver.store.delete(RESOURCE_CLAIMS, "ns", "shared")

    fake_apiserver.transport.on_send = delete_first
    await set_status(fake_apiserver, RESOURCE_CLAIMS, "shared", status)
    await asyncio.sleep(60)
    assert len([target for _, target, _ in fake_apiserver.requests if target.endswith("/shared/status")]) == 1
    assert not any(fake_apiserver.metrics.values("kubeloop_reconcile_errors").values())


async def test_creation_whose_response_is_lost_counts_as_failure(fake_apiserver, controller):
    lost = iter([True])
    fake_apiserver.transport.lose_response = lambda method, path: (
        method == "POST" and path.endswith("/resourceclaims") and next(lost, False)
    )
    await create(fake_apiserver, template_body(), pod_body())
    await asyncio.sleep(60)
    assert len(fake_apiserver.objects(RESOURCE_CLAIMS)) == 1
    assert fake_apiserver.metrics.values("resourceclaim_controller_creates_total") == {",failure,false": 1}


async def test_claim_created_after_the_deletion_of_its_pod_is_not_stored(fake_apiserver, controller):
    async def delete_pod(request: SentRequest) -> None:
        if request.method == "POST" and request.path.endswith("/resourceclaims"):
            fake_apiserver.store.delete(PODS, "ns", "web")
            await asyncio.sleep(1)  # the informer shows it

    fake_apiserver.transport.before_request = delete_pod
    await create(fake_apiserver, template_body(), pod_body())
    await asyncio.sleep(60)
    assert len(fake_apiserver.objects(RESOURCE_CLAIMS)) == 1
    assert controller._created == {}


async def test_prioritized_list_needs_its_feature_gate(recorded_events, start):
    gates = FeatureGates({"DRAPrioritizedList": False})
    server = FakeApiServer()
    server.api.create("/api/v1/namespaces", {"metadata": {"name": "ns"}})
    context = structs.replace(server.context, events=recorded_events, feature_gates=gates)
    await start(server.informers, ResourceClaimController(context))
    spec = {"devices": {"requests": [{"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": "x"}]}]}}
    await create(server, template_body(spec=spec), pod_body())
    assert server.objects(RESOURCE_CLAIMS) == []
    message = "PodResourceClaim gpu: template includes a prioritized list of subrequests, but the feature is disabled"
    assert recorded_events.events[0].message == message
