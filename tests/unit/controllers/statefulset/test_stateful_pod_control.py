"""Writes of Pods and claims, with their events; the plan's order is tested with the controller."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.controllers.statefulset.stateful_pod_control import CannotWriteClaims, StatefulPodControl
from kubeloop.controllers.statefulset.stateful_set_plan import ChangePod, CreatePod
from kubeloop.devcluster.api import errors
from kubeloop.kube.errors import AlreadyExists, Conflict, Invalid
from kubeloop.kube.objects.api_types import ControllerRevision, ObjectMeta, Pod, StatefulSet, convert
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from support.objects.stateful_sets import StatefulSetClient

pytestmark = pytest.mark.virtual_time

CREATE = CreatePod(0, ControllerRevision(metadata=ObjectMeta(name="web-abc")))


@pytest.fixture
async def web(fake_apiserver, start):
    context = fake_apiserver.context
    consistency = ConsistencyStore({}, enabled=False)
    web = StatefulSetClient(fake_apiserver)
    control = StatefulPodControl(context, consistency)

    async def apply(action: CreatePod | ChangePod) -> None:
        (sts,) = fake_apiserver.objects(STATEFUL_SETS)
        reconcile = context.traces.reconcile("statefulset", "ns/web")
        await control.apply(convert(StatefulSet, sts), action, reconcile)

    web.apply = apply
    await start(fake_apiserver.informers)
    return web


def stored_pod(web: StatefulSetClient) -> Pod:
    return convert(Pod, web.pod("web-0"))


async def test_claim_errors_are_collected_and_the_pod_is_not_created(web):
    def reject(method: str, path: str) -> errors.StatusError | None:
        if method == "POST" and path.endswith("/persistentvolumeclaims"):
            return errors.forbidden(PERSISTENT_VOLUME_CLAIMS, "x", "quota")
        return None

    web.server.transport.reject = reject
    web.create(replicas=1, claims=("data", "logs"))
    with pytest.raises(CannotWriteClaims, match=r"\[failed to create PVC data-web-0: .*, failed to create PVC logs"):
        await web.apply(CREATE)
    assert web.pods == []
    assert web.events[0].startswith(
        "FailedCreate: Create Claim data-web-0 for Pod web-0 in StatefulSet web failed error: "
    )
    assert web.events[2].startswith("FailedCreate: Create Pod web-0 in StatefulSet web failed error: [failed to create")


async def test_claim_that_is_being_deleted_blocks_the_pod(web):
    web.create(replicas=1, claims=("data",))
    metadata = {"name": "data-web-0", "finalizers": ["example.com/hold"]}
    template = web.server.objects(STATEFUL_SETS)[0]["spec"]["volumeClaimTemplates"][0]
    path = PERSISTENT_VOLUME_CLAIMS.path("ns")
    web.server.api.create(path, {"metadata": metadata, "spec": template["spec"]})
    web.server.api.succeed("DELETE", f"{path}/data-web-0")
    await asyncio.sleep(1)
    with pytest.raises(CannotWriteClaims, match=r"^pvc data-web-0 is being deleted$"):
        await web.apply(CREATE)


async def test_existing_pod_is_an_error_without_event(web):
    web.create(replicas=1)
    await web.apply(CREATE)
    events = web.events
    with pytest.raises(AlreadyExists):
        await web.apply(CREATE)
    assert web.events == events


async def test_deletion_of_a_missing_pod_succeeds_and_a_newer_pod_is_not_deleted(web):
    web.create(replicas=1)
    await web.apply(CREATE)
    pod = stored_pod(web)
    with pytest.raises(Conflict):
        await web.apply(ChangePod("delete", replace(pod, metadata=replace(pod.metadata, uid="former"))))
    assert web.pods == ["web-0"]
    for _ in range(2):
        await web.apply(ChangePod("delete", pod))
    assert web.pods == []
    assert web.events[1:] == ["SuccessfulDelete: Delete Pod web-0 in StatefulSet web successful"] * 2


async def test_missing_volume_of_a_pod_cannot_be_added(web):
    web.create(replicas=1, claims=("data",))
    body = {"metadata": {"name": "web-0"}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}
    web.server.api.create(PODS.path("ns"), body)
    with pytest.raises(Invalid, match="may not change fields"):
        await web.apply(ChangePod("update", stored_pod(web)))
    assert web.server.names(PERSISTENT_VOLUME_CLAIMS) == ["data-web-0"]
    assert web.events[-1].startswith("FailedUpdate: Update Pod web-0 in StatefulSet web failed error: Pod")


async def test_conflicting_controller_of_a_claim_has_an_event(web):
    policy = {"whenDeleted": "Delete", "whenScaled": "Retain"}
    web.create(replicas=1, claims=("data",), persistentVolumeClaimRetentionPolicy=policy)
    await web.apply(CREATE)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x", "controller": True}
    path = PERSISTENT_VOLUME_CLAIMS.path("ns", "data-web-0")
    web.server.api.succeed("PATCH", path, {"metadata": {"ownerReferences": [owner]}})
    await asyncio.sleep(1)
    await web.apply(ChangePod("update claims", stored_pod(web)))
    assert web.events[-1].startswith("ConflictingController: PersistentVolumeClaim data-web-0 has a conflicting")


async def test_each_claim_gets_the_owner_of_the_retention_policy(web):
    web.create(replicas=1, claims=("data", "logs", "temp"))
    await web.apply(CREATE)
    web.change(persistentVolumeClaimRetentionPolicy={"whenDeleted": "Delete", "whenScaled": "Retain"})
    (sts,) = web.server.objects(STATEFUL_SETS)
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": sts["metadata"]["uid"]}
    path = PERSISTENT_VOLUME_CLAIMS.path("ns", "logs-web-0")
    web.server.api.succeed("PATCH", path, {"metadata": {"ownerReferences": [owner | {"controller": True}]}})
    web.server.store.delete(PERSISTENT_VOLUME_CLAIMS, "ns", "data-web-0")
    await asyncio.sleep(1)
    await web.apply(ChangePod("update claims", stored_pod(web)))
    owners = {
        claim["metadata"]["name"]: [owner["uid"] for owner in claim["metadata"].get("ownerReferences", ())]
        for claim in web.server.objects(PERSISTENT_VOLUME_CLAIMS)
    }
    uid = sts["metadata"]["uid"]
    assert owners == {"logs-web-0": [uid], "temp-web-0": [uid]}


async def test_missing_claims_are_created_next_to_existing_ones(web):
    web.create(replicas=1, claims=("data", "logs"))
    template = web.server.objects(STATEFUL_SETS)[0]["spec"]["volumeClaimTemplates"][0]
    path = PERSISTENT_VOLUME_CLAIMS.path("ns")
    web.server.api.create(path, {"metadata": {"name": "data-web-0"}, "spec": template["spec"]})
    await asyncio.sleep(1)
    await web.apply(CREATE)
    assert sorted(web.server.names(PERSISTENT_VOLUME_CLAIMS)) == ["data-web-0", "logs-web-0"]
    assert web.pods == ["web-0"]
