"""The garbage collector against a small API server, in virtual time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kubeloop.controllers.garbagecollector import GarbageCollector
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.api_types import PartialObjectMetadata, Pod
from kubeloop.kube.objects.resources import CONFIG_MAPS, DEPLOYMENTS, NODES, PODS, REPLICA_SETS, Resource
from kubeloop.testing.virtual_time import VirtualClock
from kubeloop.tracing.recording.reconcile_recorder import ReconcileTraces

pytestmark = pytest.mark.virtual_time
WIDGETS: Resource[dict[str, Any]] = Resource("example.com", "v1", "Widget", "widgets", True, dict)


@pytest.fixture
async def collecting(object_api, recorded_events, running):
    """An API server and a collector that runs, with informers of its own and one that others use."""
    object_api.informers.informer(PODS)
    traces = ReconcileTraces(clock=VirtualClock(), rng=random.Random(3))
    collector = GarbageCollector(object_api.client, object_api.informers, recorder=recorded_events, traces=traces)

    async def start() -> GarbageCollector:
        await running(object_api.informers, collector)
        return collector

    return start


def reference(obj: dict[str, Any], **fields: Any) -> dict[str, Any]:
    metadata = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "blockOwnerDeletion": True,
        **fields,
    }


def deployment_with_pods(api: Any) -> None:
    deployment = api.add(DEPLOYMENTS, "web")
    replica_set = api.add(REPLICA_SETS, "web-1", reference(deployment))
    for number in range(3):
        api.add(PODS, f"web-1-{number}", reference(replica_set))


async def test_dependents_go_after_their_owner_in_the_background(object_api, collecting):
    deployment_with_pods(object_api)
    object_api.add(CONFIG_MAPS, "unowned")
    collector = await collecting()
    assert object_api.requests == []
    object_api.delete(DEPLOYMENTS, "web")
    await asyncio.sleep(5)
    assert object_api.names(REPLICA_SETS) == []
    assert object_api.names(PODS) == []
    assert object_api.names(CONFIG_MAPS) == ["unowned"]
    collector.graph.check()
    _, _, body = object_api.requests[0]
    assert body["propagationPolicy"] == "Background"
    assert set(body["preconditions"]) == {"uid", "resourceVersion"}


async def test_owners_that_are_gone_before_the_start_are_noticed(object_api, collecting):
    gone = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "old", "uid": "gone"}
    object_api.add(PODS, "left-behind", gone)
    await collecting()
    await asyncio.sleep(5)
    assert object_api.names(PODS) == []


async def test_a_new_object_of_the_owners_name_is_not_the_owner(object_api, collecting):
    replica_set = object_api.add(REPLICA_SETS, "web")
    object_api.add(PODS, "old", reference(replica_set, uid="uid-of-the-former"))
    object_api.add(PODS, "new", reference(replica_set))
    await collecting()
    await asyncio.sleep(5)
    assert object_api.names(PODS) == ["new"]


async def test_foreground_deletion_ends_with_the_owner(object_api, collecting):
    deployment_with_pods(object_api)
    await collecting()
    object_api.delete(DEPLOYMENTS, "web", "Foreground")
    await asyncio.sleep(5)
    assert object_api.names(DEPLOYMENTS) == []
    deleted = object_api.written("DELETE")
    assert deleted[0].endswith("/replicasets/web-1")
    assert sorted(path.rsplit("/", 1)[1] for path in deleted[1:]) == ["web-1-0", "web-1-1", "web-1-2"]
    assert [path.rsplit("/", 1)[1] for path in object_api.written("PATCH")] == ["web-1", "web"]


async def test_foreground_deletion_waits_for_blocking_dependents_alone(object_api, collecting):
    owner = object_api.add(REPLICA_SETS, "web")
    object_api.add(PODS, "blocking", reference(owner), finalizers=["example.com/hold"])
    object_api.add(PODS, "free", reference(owner, blockOwnerDeletion=False), finalizers=["example.com/hold"])
    await collecting()
    object_api.delete(REPLICA_SETS, "web", "Foreground")
    await asyncio.sleep(30)
    assert object_api.names(REPLICA_SETS) == ["web"]
    blocking = object_api.store.get(PODS, "ns", "blocking")
    object_api.store.delete(PODS, "ns", blocking["metadata"]["name"])
    await asyncio.sleep(5)
    assert object_api.names(REPLICA_SETS) == []
    assert object_api.names(PODS) == ["free"]


async def test_orphaned_dependents_stay_without_their_owner(object_api, collecting):
    owner = object_api.add(REPLICA_SETS, "web")
    other = object_api.add(REPLICA_SETS, "other")
    object_api.add(PODS, "one", reference(owner))
    object_api.add(PODS, "two", reference(owner), reference(other))
    object_api.add(WIDGETS, "custom", reference(owner))
    await collecting()
    object_api.delete(REPLICA_SETS, "web", "Orphan")
    await asyncio.sleep(5)
    assert object_api.names(REPLICA_SETS) == ["other"]
    assert object_api.names(PODS) == ["one", "two"]
    assert object_api.store.get(PODS, "ns", "one")["metadata"]["ownerReferences"] == []
    assert object_api.store.get(PODS, "ns", "two")["metadata"]["ownerReferences"] == [reference(other)]
    assert object_api.store.get(WIDGETS, "ns", "custom")["metadata"]["ownerReferences"] == []


async def test_an_object_with_another_owner_left_loses_the_dangling_reference_only(object_api, collecting):
    first, second = object_api.add(REPLICA_SETS, "first"), object_api.add(REPLICA_SETS, "second")
    object_api.add(PODS, "shared", reference(first), reference(second))
    await collecting()
    object_api.delete(REPLICA_SETS, "first")
    await asyncio.sleep(5)
    assert object_api.store.get(PODS, "ns", "shared")["metadata"]["ownerReferences"] == [reference(second)]


async def test_an_owner_in_another_namespace_counts_as_absent_and_is_told_of(object_api, recorded_events, collecting):
    owner = object_api.add(REPLICA_SETS, "web", namespace="other")
    object_api.add(PODS, "misplaced", reference(owner))
    await collecting()
    await asyncio.sleep(5)
    assert object_api.names(PODS) == []
    assert object_api.names(REPLICA_SETS) == ["web"]
    assert {reason for _, reason, _ in recorded_events.told} == {"OwnerRefInvalidNamespace"}


async def test_a_cluster_scoped_owner_holds_objects_anywhere(object_api, collecting):
    node = object_api.add(NODES, "node-1")
    object_api.add(PODS, "mirror", reference(node))
    await collecting()
    await asyncio.sleep(5)
    assert object_api.names(PODS) == ["mirror"]
    object_api.delete(NODES, "node-1", namespace="")
    await asyncio.sleep(5)
    assert object_api.names(PODS) == []


async def test_a_cluster_scoped_object_with_a_namespaced_owner_is_left_alone(object_api, collecting):
    gone = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "gone"}
    object_api.add(NODES, "node-1", gone)
    await collecting()
    await asyncio.sleep(60)
    assert object_api.names(NODES) == ["node-1"]
    assert object_api.requests == []


async def test_an_owner_of_an_unknown_kind_is_waited_for(object_api, collecting):
    object_api.add(PODS, "patient", {"apiVersion": "new.example.com/v1", "kind": "New", "name": "n", "uid": "u"})
    await collecting()
    await asyncio.sleep(60)
    assert object_api.names(PODS) == ["patient"]


async def test_a_change_that_leaves_the_owners_alone_does_not_stop_the_deletion(object_api, collecting):
    owner = object_api.add(REPLICA_SETS, "web")
    pod = object_api.add(PODS, "busy", reference(owner))
    await collecting()

    def busy(method: str, path: str) -> None:
        if method == "DELETE" and path.endswith("/busy") and not object_api.written("DELETE"):
            current = object_api.store.get(PODS, "ns", "busy")
            object_api.store.update(PODS, {**current, "status": {"phase": "Running"}})

    object_api.refuse = busy
    object_api.delete(REPLICA_SETS, "web")
    await asyncio.sleep(5)
    assert object_api.names(PODS) == []
    first, second = (body["preconditions"] for method, _, body in object_api.requests if method == "DELETE")
    assert first["uid"] == second["uid"] == pod["metadata"]["uid"]
    assert "resourceVersion" in first
    assert "resourceVersion" not in second


async def test_failures_are_retried(object_api, collecting):
    deployment_with_pods(object_api)
    await collecting()
    failures = iter(range(5))

    def refuse(method: str, path: str) -> errors.StatusError | None:
        if method == "DELETE" and next(failures, None) is not None:
            return errors.forbidden(PODS, "x", "not now")
        return None

    object_api.refuse = refuse
    object_api.delete(DEPLOYMENTS, "web")
    await asyncio.sleep(30)
    assert object_api.names(PODS) == []


async def test_circles_of_owners_are_broken_in_the_foreground(object_api, collecting):
    a = object_api.add(CONFIG_MAPS, "a")
    b = object_api.add(CONFIG_MAPS, "b", reference(a))
    current = object_api.store.get(CONFIG_MAPS, "ns", "a")
    metadata = {**current["metadata"], "ownerReferences": [reference(b)]}
    object_api.store.update(CONFIG_MAPS, {**current, "metadata": metadata})
    await collecting()
    object_api.delete(CONFIG_MAPS, "a", "Foreground")
    await asyncio.sleep(30)
    assert object_api.names(CONFIG_MAPS) == []


async def test_informers_that_others_use_are_shared(object_api, collecting):
    await collecting()
    types = {each.resource.plural: each.resource.type for each in object_api.informers.informers}
    assert types["pods"] is Pod
    assert types["configmaps"] is PartialObjectMetadata
    assert len(object_api.informers.informers) == len(types)
