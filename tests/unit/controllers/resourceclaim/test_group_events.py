"""Claims that PodGroups share with their Pods, on the development API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.resourceclaim.group_events import check_group_is_cached
from kubeloop.controllers.resourceclaim.pod_claim_plan import NO_GROUP, Membership
from kubeloop.controllers.resourceclaim.resource_claim_controller import ResourceClaimController
from kubeloop.controllers.runtime.controller import ReconcileError
from kubeloop.kube.objects.resources import POD_GROUPS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from support.apiserver.fake_apiserver import FakeApiServer
from support.objects.resource_claims import ALLOCATION, FINALIZER, pod_body, pod_with_claims, template_body

pytestmark = pytest.mark.virtual_time
TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "gpus"}
MEMBER = {"schedulingGroup": {"podGroupName": "gang"}}


def group_body() -> Any:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": [TEMPLATE]}
    return {"kind": "PodGroup", "metadata": {"name": "gang"}, "spec": spec}


async def create(server: FakeApiServer, *bodies: Any) -> None:
    kinds = {resource.kind: resource for resource in (PODS, POD_GROUPS, RESOURCE_CLAIM_TEMPLATES)}
    for body in bodies:
        server.api.create(kinds[body["kind"]].path("ns"), {**body, "apiVersion": kinds[body["kind"]].api_version})
    await asyncio.sleep(2)


def claim_names(obj: Any) -> list[str]:
    return [entry["resourceClaimName"] for entry in obj.get("status", {}).get("resourceClaimStatuses", ())]


async def test_pods_of_a_group_use_the_one_claim_that_the_group_owns(gang_apiserver, start):
    await start(gang_apiserver.informers, ResourceClaimController(gang_apiserver.context))
    members = [pod_body(name, TEMPLATE, **MEMBER) for name in ("a", "b")]
    await create(gang_apiserver, template_body(), *members, group_body())
    await asyncio.sleep(30)
    (claim,) = gang_apiserver.objects(RESOURCE_CLAIMS)
    name = claim["metadata"]["name"]
    assert name.startswith("gang-gpu-")
    assert claim["metadata"]["ownerReferences"][0]["kind"] == "PodGroup"
    owners = [*gang_apiserver.objects(PODS), *gang_apiserver.objects(POD_GROUPS)]
    assert [claim_names(owner) for owner in owners] == [[name]] * 3


async def test_template_that_is_created_later_is_used_for_the_group(gang_apiserver, start):
    await start(gang_apiserver.informers, ResourceClaimController(gang_apiserver.context))
    await create(gang_apiserver, group_body())
    assert gang_apiserver.objects(RESOURCE_CLAIMS) == []
    event = gang_apiserver.context.events.events[0]
    assert event.message.startswith('PodGroupResourceClaim gpu: resource claim template "gpus"')
    await asyncio.sleep(100)  # so that the next try is not within the time below
    await create(gang_apiserver, template_body())
    assert len(gang_apiserver.objects(RESOURCE_CLAIMS)) == 1


async def test_deleted_claim_of_a_group_is_created_again(gang_apiserver, start):
    await start(gang_apiserver.informers, ResourceClaimController(gang_apiserver.context))
    await create(gang_apiserver, template_body(), group_body())
    (name,) = gang_apiserver.names(RESOURCE_CLAIMS)
    gang_apiserver.store.delete(RESOURCE_CLAIMS, "ns", name)
    await asyncio.sleep(2)
    (group,) = gang_apiserver.objects(POD_GROUPS)
    assert claim_names(group) == gang_apiserver.names(RESOURCE_CLAIMS) != [name]


async def test_reservation_of_a_group_ends_when_the_group_is_deleted(gang_apiserver, start):
    await start(gang_apiserver.informers, ResourceClaimController(gang_apiserver.context))
    await create(gang_apiserver, template_body(), group_body())
    (claim,), (group,) = gang_apiserver.objects(RESOURCE_CLAIMS), gang_apiserver.objects(POD_GROUPS)
    consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang"}
    consumer["uid"] = group["metadata"]["uid"]
    metadata = {**claim["metadata"], "finalizers": [FINALIZER]}
    allocated = {**claim, "metadata": metadata, "status": {"allocation": ALLOCATION, "reservedFor": [consumer]}}
    gang_apiserver.store.update(RESOURCE_CLAIMS, allocated)
    await asyncio.sleep(2)
    assert gang_apiserver.objects(RESOURCE_CLAIMS)[0]["status"]["reservedFor"] == [consumer]
    gang_apiserver.store.delete(POD_GROUPS, "ns", "gang")
    await asyncio.sleep(2)
    assert "allocation" not in gang_apiserver.objects(RESOURCE_CLAIMS)[0].get("status", {})


@pytest.mark.parametrize("membership", [NO_GROUP, Membership("ns/gang")])
def test_pod_waits_for_its_group_to_be_cached(membership: Membership):
    pod = pod_with_claims(TEMPLATE, **MEMBER)
    if membership is NO_GROUP:
        check_group_is_cached(pod, membership)
        return
    with pytest.raises(ReconcileError, match=r'podgroup\.scheduling\.k8s\.io "gang" not found'):
        check_group_is_cached(pod, membership)
