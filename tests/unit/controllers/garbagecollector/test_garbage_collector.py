"""The garbage collector with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.garbagecollector.garbage_collector import (
    ClusterScopedDependent,
    GarbageCollector,
    _retry_on_conflict,
)
from kubeloop.controllers.garbagecollector.graph import ObjectIdentity
from kubeloop.devcluster.api import errors
from kubeloop.kube.errors import Conflict
from kubeloop.kube.objects.api_types import ApiStatus, PartialObjectMetadata, Pod
from kubeloop.kube.objects.resources import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, NODES, PODS, REPLICA_SETS, SECRETS
from support.apiserver.fake_apiserver import WIDGETS, FakeApiServer
from support.apiserver.faulty_transport import SentRequest, WatchFault

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def start_collector(fake_apiserver, recorded_events, start):
    """Return a function that starts a collector; an informer of Pods, in another form, exists already."""
    fake_apiserver.informers.informer(PODS)
    collector = GarbageCollector(structs.replace(fake_apiserver.context, events=recorded_events))

    async def run() -> GarbageCollector:
        await start(fake_apiserver.informers, collector)
        return collector

    return run


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


async def test_background_deletion_deletes_dependents_after_owner(fake_apiserver, start_collector):
    deployment_with_pods(fake_apiserver)
    fake_apiserver.add(CONFIG_MAPS, "unowned")
    collector = await start_collector()
    assert fake_apiserver.requests == []
    fake_apiserver.delete(DEPLOYMENTS, "web")
    await asyncio.sleep(5)
    assert fake_apiserver.names(REPLICA_SETS) == []
    assert fake_apiserver.names(PODS) == []
    assert fake_apiserver.names(CONFIG_MAPS) == ["unowned"]
    collector.graph.check()
    _, _, body = fake_apiserver.requests[0]
    assert body["propagationPolicy"] == "Background"
    assert set(body["preconditions"]) == {"uid", "resourceVersion"}


async def test_owner_deleted_before_start_is_detected(fake_apiserver, start_collector):
    absent_owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "old", "uid": "gone"}
    fake_apiserver.add(PODS, "left-behind", absent_owner)
    await start_collector()
    await asyncio.sleep(5)
    assert fake_apiserver.names(PODS) == []


async def test_object_with_owner_name_but_other_uid_is_not_the_owner(fake_apiserver, start_collector):
    replica_set = fake_apiserver.add(REPLICA_SETS, "web")
    fake_apiserver.add(PODS, "old", reference(replica_set, uid="uid-of-the-former"))
    fake_apiserver.add(PODS, "new", reference(replica_set))
    await start_collector()
    await asyncio.sleep(5)
    assert fake_apiserver.names(PODS) == ["new"]


async def test_foreground_deletion_deletes_owner_last(fake_apiserver, start_collector):
    deployment_with_pods(fake_apiserver)
    await start_collector()
    fake_apiserver.delete(DEPLOYMENTS, "web", "Foreground")
    await asyncio.sleep(5)
    assert fake_apiserver.names(DEPLOYMENTS) == []
    deleted = fake_apiserver.written("DELETE")
    assert deleted[0].endswith("/replicasets/web-1")
    assert sorted(path.rsplit("/", 1)[1] for path in deleted[1:]) == ["web-1-0", "web-1-1", "web-1-2"]
    assert [path.rsplit("/", 1)[1] for path in fake_apiserver.written("PATCH")] == ["web-1", "web"]


async def test_foreground_deletion_waits_for_blocking_dependents_only(fake_apiserver, start_collector):
    owner = fake_apiserver.add(REPLICA_SETS, "web")
    fake_apiserver.add(PODS, "blocking", reference(owner), finalizers=["example.com/hold"])
    fake_apiserver.add(PODS, "free", reference(owner, blockOwnerDeletion=False), finalizers=["example.com/hold"])
    await start_collector()
    fake_apiserver.delete(REPLICA_SETS, "web", "Foreground")
    await asyncio.sleep(30)
    assert fake_apiserver.names(REPLICA_SETS) == ["web"]
    blocking = fake_apiserver.store.get(PODS, "ns", "blocking")
    fake_apiserver.store.delete(PODS, "ns", blocking["metadata"]["name"])
    await asyncio.sleep(5)
    assert fake_apiserver.names(REPLICA_SETS) == []
    assert fake_apiserver.names(PODS) == ["free"]


async def test_orphan_deletion_keeps_dependents_without_reference(fake_apiserver, start_collector):
    owner = fake_apiserver.add(REPLICA_SETS, "web")
    other = fake_apiserver.add(REPLICA_SETS, "other")
    fake_apiserver.add(PODS, "one", reference(owner))
    fake_apiserver.add(PODS, "two", reference(owner), reference(other))
    fake_apiserver.add(WIDGETS, "custom", reference(owner))
    await start_collector()
    fake_apiserver.delete(REPLICA_SETS, "web", "Orphan")
    await asyncio.sleep(5)
    assert fake_apiserver.names(REPLICA_SETS) == ["other"]
    assert fake_apiserver.names(PODS) == ["one", "two"]
    assert "ownerReferences" not in fake_apiserver.store.get(PODS, "ns", "one")["metadata"]
    assert fake_apiserver.store.get(PODS, "ns", "two")["metadata"]["ownerReferences"] == [reference(other)]
    assert "ownerReferences" not in fake_apiserver.store.get(WIDGETS, "ns", "custom")["metadata"]


async def test_object_with_remaining_owner_loses_dangling_reference_only(fake_apiserver, start_collector):
    first, second = fake_apiserver.add(REPLICA_SETS, "first"), fake_apiserver.add(REPLICA_SETS, "second")
    fake_apiserver.add(PODS, "shared", reference(first), reference(second))
    await start_collector()
    fake_apiserver.delete(REPLICA_SETS, "first")
    await asyncio.sleep(5)
    assert fake_apiserver.store.get(PODS, "ns", "shared")["metadata"]["ownerReferences"] == [reference(second)]


async def test_owner_in_other_namespace_counts_as_absent_with_event(fake_apiserver, recorded_events, start_collector):
    owner = fake_apiserver.add(REPLICA_SETS, "web", namespace="other")
    fake_apiserver.add(PODS, "misplaced", reference(owner))
    await start_collector()
    await asyncio.sleep(5)
    assert fake_apiserver.names(PODS) == []
    assert fake_apiserver.names(REPLICA_SETS) == ["web"]
    assert {event.reason for event in recorded_events.events} == {"OwnerRefInvalidNamespace"}


async def test_cluster_scoped_owner_keeps_namespaced_dependents(fake_apiserver, start_collector):
    node = fake_apiserver.add(NODES, "node-1")
    fake_apiserver.add(PODS, "mirror", reference(node))
    await start_collector()
    await asyncio.sleep(5)
    assert fake_apiserver.names(PODS) == ["mirror"]
    fake_apiserver.delete(NODES, "node-1", namespace="")
    await asyncio.sleep(5)
    assert fake_apiserver.names(PODS) == []


async def test_cluster_scoped_object_with_namespaced_owner_is_kept(fake_apiserver, start_collector):
    absent_owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "gone"}
    fake_apiserver.add(NODES, "node-1", absent_owner)
    await start_collector()
    await asyncio.sleep(60)
    assert fake_apiserver.names(NODES) == ["node-1"]
    assert fake_apiserver.requests == []


async def test_dependent_of_unknown_owner_kind_is_kept(fake_apiserver, start_collector):
    fake_apiserver.add(PODS, "patient", {"apiVersion": "new.example.com/v1", "kind": "New", "name": "n", "uid": "u"})
    await start_collector()
    await asyncio.sleep(60)
    assert fake_apiserver.names(PODS) == ["patient"]


async def test_owner_reference_in_a_version_that_is_not_served_is_resolved(fake_apiserver, start_collector):
    owner = fake_apiserver.add(REPLICA_SETS, "web")
    fake_apiserver.add(PODS, "p", reference(owner, apiVersion="apps/v1beta2"))
    await start_collector()
    await asyncio.sleep(5)
    assert fake_apiserver.names(PODS) == ["p"]
    fake_apiserver.delete(REPLICA_SETS, "web")
    await asyncio.sleep(5)
    assert fake_apiserver.names(PODS) == []


async def test_objects_of_a_new_custom_resource_are_collected_soon(start):
    server = FakeApiServer()
    server.add(NAMESPACES, "ns")
    await start(server.informers, GarbageCollector(server.context))

    def discoveries() -> int:
        return len([request for request in server.transport.sent if request.path == "/apis"])

    server.add(CONFIG_MAPS, "other")
    await asyncio.sleep(3)
    assert discoveries() == 1
    server.define_widgets()
    absent_owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "old", "uid": "gone"}
    server.add(WIDGETS, "custom", absent_owner)
    await asyncio.sleep(3)
    assert server.names(WIDGETS) == []
    assert discoveries() > 1


async def test_failed_first_discovery_is_repeated_after_half_a_second(fake_apiserver, start_collector):
    attempts: list[float] = []

    def reject(method: str, path: str) -> errors.StatusError | None:
        if path != "/apis":
            return None
        attempts.append(asyncio.get_running_loop().time())
        return errors.forbidden(PODS, "", "not now") if len(attempts) <= 3 else None

    fake_apiserver.transport.reject = reject
    await start_collector()
    await asyncio.sleep(10)
    delays = [later - earlier for earlier, later in itertools.pairwise(attempts[:4])]
    assert delays == pytest.approx([0.5, 1, 2])


@pytest.mark.parametrize("starts_first", [True, False])
async def test_child_of_wrong_owner_kind_is_deleted_despite_many_unknown_kinds(
    fake_apiserver, start_collector, starts_first
):
    server = fake_apiserver
    if starts_first:
        await start_collector()
    for namespace in ("a", "b"):
        server.add(NAMESPACES, namespace)
    parent = server.add(CONFIG_MAPS, "parent", namespace="b")
    wrong = {"apiVersion": "v1", "kind": "Pod", "name": "invalid", "uid": parent["metadata"]["uid"]}
    unknown = [
        {"apiVersion": "test/v1", "kind": f"Invalid{number}", "name": "invalid", "uid": f"invalid-{number}"}
        for number in range(25)
    ]
    for number in range(40):
        server.add(CONFIG_MAPS, f"unknown-{number}", *unknown, wrong, namespace="a")
        server.add(SECRETS, f"unknown-{number}", *unknown, wrong, namespace="a")
    for number in range(5):
        server.add(SECRETS, f"valid-{number}", reference(parent), namespace="b")
        server.add(SECRETS, f"wrong-{number}", wrong, namespace="a")
    if not starts_first:
        await start_collector()
    await asyncio.sleep(30)
    assert len(server.names(CONFIG_MAPS)) == 1 + 40
    assert sum(name.startswith("unknown") for name in server.names(SECRETS)) == 40
    assert sum(name.startswith("valid") for name in server.names(SECRETS)) == 5
    assert not any(name.startswith("wrong") for name in server.names(SECRETS))
    paths = [request.path for request in server.transport.sent]
    assert not [path for path in paths if "/unknown-" in path], "retries would delay the requests for other objects"
    server.add(SECRETS, "wrong-later", wrong, namespace="a")
    await asyncio.sleep(3)
    assert "wrong-later" not in server.names(SECRETS)


async def test_deletion_is_retried_after_unrelated_change(fake_apiserver, start_collector):
    owner = fake_apiserver.add(REPLICA_SETS, "web")
    pod = fake_apiserver.add(PODS, "busy", reference(owner))
    await start_collector()

    def busy(method: str, path: str) -> None:
        if method == "DELETE" and path.endswith("/busy") and not fake_apiserver.written("DELETE"):
            current = fake_apiserver.store.get(PODS, "ns", "busy")
            fake_apiserver.store.update(PODS, {**current, "status": {"phase": "Running"}})

    fake_apiserver.transport.reject = busy
    fake_apiserver.delete(REPLICA_SETS, "web")
    await asyncio.sleep(5)
    assert fake_apiserver.names(PODS) == []
    first, second = (body["preconditions"] for method, _, body in fake_apiserver.requests if method == "DELETE")
    assert first["uid"] == second["uid"] == pod["metadata"]["uid"]
    assert "resourceVersion" in first
    assert "resourceVersion" not in second


async def test_deletion_after_a_conflict_without_a_change_has_its_precondition(fake_apiserver, start_collector):
    owner = fake_apiserver.add(REPLICA_SETS, "web")
    fake_apiserver.add(PODS, "p", reference(owner))
    await start_collector()
    conflicts = iter([errors.conflict(PODS, "p", "no")])
    fake_apiserver.transport.reject = lambda method, _path: next(conflicts, None) if method == "DELETE" else None
    fake_apiserver.delete(REPLICA_SETS, "web")
    await asyncio.sleep(5)
    assert fake_apiserver.names(PODS) == []
    (preconditions,) = (body["preconditions"] for method, _, body in fake_apiserver.requests if method == "DELETE")
    assert "resourceVersion" in preconditions


async def test_object_that_gets_a_new_owner_during_its_deletion_is_kept(fake_apiserver, start_collector):
    old, new = fake_apiserver.add(REPLICA_SETS, "old"), fake_apiserver.add(REPLICA_SETS, "new")
    fake_apiserver.add(PODS, "adopted", reference(old))
    await start_collector()

    def adopt(method: str, path: str) -> None:
        if method == "DELETE" and path.endswith("/adopted") and not fake_apiserver.written("DELETE"):
            current = fake_apiserver.store.get(PODS, "ns", "adopted")
            metadata = {**current["metadata"], "ownerReferences": [reference(new)]}
            fake_apiserver.store.update(PODS, {**current, "metadata": metadata})

    fake_apiserver.transport.reject = adopt
    fake_apiserver.delete(REPLICA_SETS, "old")
    await asyncio.sleep(5)
    assert fake_apiserver.written("DELETE") == [PODS.path("ns", "adopted")]  # with the outdated resourceVersion
    assert fake_apiserver.names(PODS) == ["adopted"]


async def test_object_replaced_during_its_deletion_is_kept(fake_apiserver, start_collector):
    owner = fake_apiserver.add(REPLICA_SETS, "web")
    fake_apiserver.add(PODS, "replaced", reference(owner))
    await start_collector()

    def replace(method: str, path: str) -> None:
        if method == "DELETE" and path.endswith("/replaced") and not fake_apiserver.written("DELETE"):
            fake_apiserver.store.delete(PODS, "ns", "replaced")
            fake_apiserver.add(PODS, "replaced")

    fake_apiserver.transport.reject = replace
    fake_apiserver.delete(REPLICA_SETS, "web")
    await asyncio.sleep(5)
    assert len(fake_apiserver.written("DELETE")) == 1
    assert fake_apiserver.names(PODS) == ["replaced"]


@pytest.mark.parametrize(
    ("policy", "finalizer", "read"),
    [
        pytest.param("Foreground", "foregroundDeletion", 2, id="foreground"),
        pytest.param("Orphan", "orphan", 1, id="orphan"),
    ],
)
async def test_object_of_the_same_name_keeps_its_finalizer(fake_apiserver, start_collector, policy, finalizer, read):
    fake_apiserver.add(REPLICA_SETS, "web")
    await start_collector()
    reads = itertools.count(1)

    def replace(request: SentRequest) -> None:
        if (request.method, request.path) == ("GET", REPLICA_SETS.path("ns", "web")) and next(reads) == read:
            fake_apiserver.store.delete(REPLICA_SETS, "ns", "web")
            fake_apiserver.add(REPLICA_SETS, "web", finalizers=[finalizer])

    fake_apiserver.transport.on_send = replace
    fake_apiserver.delete(REPLICA_SETS, "web", policy)
    await asyncio.sleep(30)
    assert next(reads) > read
    assert fake_apiserver.store.get(REPLICA_SETS, "ns", "web")["metadata"]["finalizers"] == [finalizer]


async def test_deletion_of_an_object_that_is_gone_succeeds(fake_apiserver, start_collector):
    owner = fake_apiserver.add(REPLICA_SETS, "web")
    fake_apiserver.add(PODS, "p", reference(owner))
    await start_collector()

    def delete_first(request: SentRequest) -> None:
        if request.method == "DELETE":
            fake_apiserver.store.delete(PODS, "ns", "p")

    fake_apiserver.transport.on_send = delete_first
    fake_apiserver.delete(REPLICA_SETS, "web")
    await asyncio.sleep(30)
    assert [request.path for request in fake_apiserver.transport.sent if request.method == "DELETE"] == [
        PODS.path("ns", "p")
    ]
    assert not any(fake_apiserver.metrics.values("kubeloop_reconcile_errors").values())


async def test_orphan_deletion_succeeds_if_a_dependent_is_gone(fake_apiserver, start_collector):
    owner = fake_apiserver.add(REPLICA_SETS, "web")
    fake_apiserver.add(PODS, "p", reference(owner))
    await start_collector()

    def delete_first(request: SentRequest) -> None:
        if (request.method, request.path) == ("PATCH", PODS.path("ns", "p")):
            fake_apiserver.store.delete(PODS, "ns", "p")

    fake_apiserver.transport.on_send = delete_first
    fake_apiserver.delete(REPLICA_SETS, "web", "Orphan")
    await asyncio.sleep(30)
    assert fake_apiserver.names(PODS) == fake_apiserver.names(REPLICA_SETS) == []
    assert not any(fake_apiserver.metrics.values("kubeloop_reconcile_errors").values())


async def test_finalizer_is_removed_after_conflicts_with_other_writers(fake_apiserver, start_collector):
    fake_apiserver.add(REPLICA_SETS, "web")
    await start_collector()
    conflicts = iter([True, True])

    def reject(method: str, path: str) -> errors.StatusError | None:
        return errors.conflict(REPLICA_SETS, "web") if method == "PATCH" and next(conflicts, False) else None

    fake_apiserver.transport.reject = reject
    fake_apiserver.delete(REPLICA_SETS, "web", "Foreground")
    await asyncio.sleep(30)
    assert fake_apiserver.names(REPLICA_SETS) == []
    assert not any(fake_apiserver.metrics.values("kubeloop_reconcile_errors").values())


async def test_all_dependents_are_orphaned_although_a_write_fails(fake_apiserver, start_collector):
    owner = fake_apiserver.add(REPLICA_SETS, "web")
    for name in ("a", "b"):
        fake_apiserver.add(PODS, name, reference(owner))
    await start_collector()

    def reject(method: str, path: str) -> errors.StatusError | None:
        return errors.internal_error("etcd") if (method, path) == ("PATCH", PODS.path("ns", "a")) else None

    fake_apiserver.transport.reject = reject
    fake_apiserver.delete(REPLICA_SETS, "web", "Orphan")
    await asyncio.sleep(30)
    owners = {
        pod["metadata"]["name"]: pod["metadata"].get("ownerReferences", []) for pod in fake_apiserver.objects(PODS)
    }
    assert owners["a"]
    assert not owners["b"]
    assert fake_apiserver.names(REPLICA_SETS) == ["web"]
    fake_apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(60)
    assert fake_apiserver.names(PODS) == ["a", "b"]
    assert fake_apiserver.names(REPLICA_SETS) == []


async def test_finalizer_of_an_object_that_is_gone_needs_no_removal(fake_apiserver, start_collector):
    fake_apiserver.add(REPLICA_SETS, "web")
    await start_collector()

    def delete_first(request: SentRequest) -> None:
        if request.method == "PATCH":
            fake_apiserver.store.delete(REPLICA_SETS, "ns", "web")

    fake_apiserver.transport.on_send = delete_first
    fake_apiserver.delete(REPLICA_SETS, "web", "Foreground")
    await asyncio.sleep(30)
    assert len([request for request in fake_apiserver.transport.sent if request.method == "PATCH"]) == 1
    assert not any(fake_apiserver.metrics.values("kubeloop_reconcile_errors").values())


async def test_foreground_deletion_releases_a_shared_dependent(fake_apiserver, start_collector):
    deleted, other = fake_apiserver.add(REPLICA_SETS, "deleted"), fake_apiserver.add(REPLICA_SETS, "other")
    fake_apiserver.add(PODS, "shared", reference(deleted), reference(other))
    await start_collector()
    fake_apiserver.delete(REPLICA_SETS, "deleted", "Foreground")
    await asyncio.sleep(5)
    assert fake_apiserver.names(REPLICA_SETS) == ["other"]
    (pod,) = fake_apiserver.objects(PODS)
    assert [owner["name"] for owner in pod["metadata"]["ownerReferences"]] == ["other"]


async def test_owner_that_no_informer_shows_is_read_again_with_backoff(fake_apiserver, start_collector):
    fake_apiserver.transport.watch_faults.append(WatchFault("silence", lines=1, resource="replicasets"))
    await start_collector()
    owner = fake_apiserver.add(REPLICA_SETS, "web")
    fake_apiserver.add(PODS, "p", reference(owner))
    await asyncio.sleep(1)
    path = REPLICA_SETS.path("ns", "web")
    read = [request for request in fake_apiserver.transport.sent if (request.method, request.path) == ("GET", path)]
    assert 5 <= len(read) <= 10  # after 5 ms, then 10 ms, ... from the first one
    fake_apiserver.delete(REPLICA_SETS, "web")
    await asyncio.sleep(2)
    assert fake_apiserver.names(PODS) == []


async def test_failed_deletions_are_retried(fake_apiserver, start_collector):
    deployment_with_pods(fake_apiserver)
    await start_collector()
    failures = iter(range(5))

    def reject(method: str, path: str) -> errors.StatusError | None:
        if method == "DELETE" and next(failures, None) is not None:
            return errors.forbidden(PODS, "x", "not now")
        return None

    fake_apiserver.transport.reject = reject
    fake_apiserver.delete(DEPLOYMENTS, "web")
    await asyncio.sleep(30)
    assert fake_apiserver.names(PODS) == []


async def test_foreground_deletion_resolves_owner_cycle(fake_apiserver, start_collector):
    a = fake_apiserver.add(CONFIG_MAPS, "a")
    b = fake_apiserver.add(CONFIG_MAPS, "b", reference(a))
    current = fake_apiserver.store.get(CONFIG_MAPS, "ns", "a")
    metadata = {**current["metadata"], "ownerReferences": [reference(b)]}
    fake_apiserver.store.update(CONFIG_MAPS, {**current, "metadata": metadata})
    await start_collector()
    fake_apiserver.delete(CONFIG_MAPS, "a", "Foreground")
    await asyncio.sleep(30)
    assert fake_apiserver.names(CONFIG_MAPS) == []


async def test_existing_informers_are_shared(fake_apiserver, start_collector):
    await start_collector()
    types = {informer.resource.plural: informer.resource.type for informer in fake_apiserver.informers.informers}
    assert types["pods"] is Pod
    assert types["configmaps"] is PartialObjectMetadata
    assert len(fake_apiserver.informers.informers) == len(types)


@pytest.mark.parametrize("others", [[], [NODES]], ids=["only owner", "with an absent cluster-scoped owner"])
async def test_cluster_scoped_object_with_an_existing_namespaced_owner_is_kept(
    fake_apiserver, recorded_events, start_collector, others
):
    owner = fake_apiserver.add(REPLICA_SETS, "web")
    absent = [{"apiVersion": "v1", "kind": resource.kind, "name": "x", "uid": "absent"} for resource in others]
    fake_apiserver.add(NODES, "node-1", *absent, reference(owner))
    await start_collector()
    await asyncio.sleep(60)
    assert fake_apiserver.names(NODES) == ["node-1"]
    assert {event.reason for event in recorded_events.events} == {"OwnerRefInvalidNamespace"}
    assert fake_apiserver.requests == []


@pytest.mark.parametrize("name", ["node-1", "web"])
async def test_invalid_owner_of_a_cluster_scoped_object_is_checked_once(fake_apiserver, start_collector, name):
    gone = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "gone"}
    node = fake_apiserver.add(NODES, "node-1", gone)
    collector = await start_collector()
    uid = node["metadata"]["uid"] if name == "node-1" else "gone"
    assert await collector.attempt_to_delete_item(uid) is None, "neither deleted nor checked again"
    assert fake_apiserver.names(NODES) == ["node-1"]
    assert collector.graph.get(uid) is not None
    with pytest.raises(ClusterScopedDependent):
        collector._locate(ObjectIdentity("ReplicaSet", "apps/v1", "", "web", "gone"))
    assert collector._locate(ObjectIdentity("ReplicaSet", "apps/v1", "ns", "web", "gone"))[1] == "ns"
    assert collector._locate(ObjectIdentity("Node", "v1", "ns", "n", "u"))[1] == "", "the namespace of its dependent"
    assert collector._locate(ObjectIdentity("Node", "v1", "", "n", "u"))[1] == ""


@pytest.mark.parametrize(
    ("conflicts", "seconds", "succeeds"),
    [
        pytest.param(0, 0.0, True, id="no conflict"),
        pytest.param(1, 0.01, True, id="one conflict"),
        pytest.param(2, 0.06, True, id="two: the pause grows fivefold"),
        pytest.param(3, 0.31, True, id="three"),
        pytest.param(4, 0.31, False, id="the fourth conflict is raised"),
    ],
)
async def test_conflicts_are_retried_after_growing_pauses(conflicts, seconds, succeeds):
    remaining = [Conflict(ApiStatus(code=409)) for _ in range(conflicts)]

    async def call() -> None:
        if remaining:
            raise remaining.pop()

    loop = asyncio.get_running_loop()
    began = loop.time()
    with contextlib.nullcontext() if succeeds else pytest.raises(Conflict):
        await _retry_on_conflict(call)
    assert loop.time() - began == pytest.approx(seconds)
    assert remaining == []


@pytest.mark.parametrize("resource", [SECRETS, WIDGETS], ids=["built-in kind", "custom kind"])
async def test_only_the_reference_to_a_deleted_owner_is_removed(fake_apiserver, start_collector, resource):
    await start_collector()
    gone, stays = (fake_apiserver.add(CONFIG_MAPS, name) for name in ("gone", "stays"))
    fake_apiserver.add(resource, "dependent", reference(gone), reference(stays))
    await asyncio.sleep(5)
    fake_apiserver.delete(CONFIG_MAPS, "gone")
    await asyncio.sleep(30)
    (dependent,) = [obj for obj in fake_apiserver.objects(resource) if obj["metadata"]["name"] == "dependent"]
    assert [owner["name"] for owner in dependent["metadata"]["ownerReferences"]] == ["stays"]
