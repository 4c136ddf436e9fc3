"""The ReplicaSet controller with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from msgspec import structs

from kubeloop.controllers.replicaset.replica_set_controller import (
    ReplicaSetController,
    new_replication_controller,
)
from kubeloop.controllers.runtime.controller import StaleCache
from kubeloop.devcluster.api import errors
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import ObjectMeta, Pod, ReplicaSet, ReplicaSetStatus, convert, to_json
from kubeloop.kube.objects.resources import NAMESPACES, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS
from kubeloop.kube.values.times import time_plus
from support.apiserver.fake_apiserver import FakeApiServer
from support.apiserver.faulty_transport import SentRequest
from support.comparison import replay_server
from support.simulation.set_clock import SetClock
from support.traces.disabled_recorders import DisabledReconcileRecorder

pytestmark = pytest.mark.virtual_time

LABELS = {"app": "web"}


@pytest.fixture
async def controller(fake_apiserver, recorded_events, start):
    controller = ReplicaSetController(structs.replace(fake_apiserver.context, events=recorded_events))
    await start(fake_apiserver.informers, controller)
    return controller


async def scale(api: Any, replicas: int) -> None:
    api.api.succeed("PATCH", REPLICA_SETS.path(namespace="ns", name="web"), {"spec": {"replicas": replicas}})
    await asyncio.sleep(2)


def controllers_of(api: Any) -> dict[str, list[str]]:
    """Return the names of the owners of each Pod."""
    return {
        obj["metadata"]["name"]: [owner["name"] for owner in obj["metadata"].get("ownerReferences", ())]
        for obj in api.objects(PODS)
    }


async def test_replica_set_has_as_many_pods_as_its_spec(fake_apiserver, controller):
    fake_apiserver.add(REPLICA_SETS, "web")
    await scale(fake_apiserver, 3)
    assert list(controllers_of(fake_apiserver).values()) == [["web"]] * 3
    fake_apiserver.delete(PODS, fake_apiserver.names(PODS)[0])
    await asyncio.sleep(2)
    assert len(fake_apiserver.names(PODS)) == 3
    await scale(fake_apiserver, 1)
    assert len(fake_apiserver.names(PODS)) == 1
    assert fake_apiserver.objects(REPLICA_SETS)[0]["status"]["replicas"] == 1
    controller.check()


async def test_orphan_is_adopted_and_pod_with_other_labels_released(fake_apiserver, controller):
    fake_apiserver.add(PODS, "orphan", labels=LABELS)
    fake_apiserver.add(REPLICA_SETS, "web")
    await scale(fake_apiserver, 1)
    assert controllers_of(fake_apiserver) == {"orphan": ["web"]}
    fake_apiserver.api.succeed(
        "PATCH", PODS.path(namespace="ns", name="orphan"), {"metadata": {"labels": {"app": "debug"}}}
    )
    await asyncio.sleep(2)
    owners = controllers_of(fake_apiserver)
    assert owners.pop("orphan") == []
    assert list(owners.values()) == [["web"]]


async def test_failed_creation_sets_condition_until_retry_succeeds(fake_apiserver, controller):
    def reject(method: str, path: str) -> errors.StatusError | None:
        return errors.forbidden(PODS, "", "no more pods") if method == "POST" and path.endswith("/pods") else None

    fake_apiserver.transport.reject = reject
    fake_apiserver.add(REPLICA_SETS, "web")
    await scale(fake_apiserver, 1)
    (condition,) = fake_apiserver.objects(REPLICA_SETS)[0]["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedCreate")
    fake_apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(60)
    assert len(fake_apiserver.names(PODS)) == 1
    assert "conditions" not in fake_apiserver.objects(REPLICA_SETS)[0]["status"]


async def test_pod_that_is_gone_before_its_deletion_is_no_error(fake_apiserver, controller, recorded_events):
    fake_apiserver.add(REPLICA_SETS, "web")
    await scale(fake_apiserver, 2)

    def delete_first(request: SentRequest) -> None:
        if request.method == "DELETE":
            fake_apiserver.store.delete(PODS, "ns", request.path.rpartition("/")[2])

    fake_apiserver.transport.on_send = delete_first
    await scale(fake_apiserver, 1)
    await scale(fake_apiserver, 2)
    assert len(fake_apiserver.names(PODS)) == 2
    assert not {"FailedDelete", "SuccessfulDelete"} & {event.reason for event in recorded_events.events}
    assert not any(fake_apiserver.metrics.values("kubeloop_reconcile_errors").values())


@pytest.mark.parametrize("enabled", [True, False])
async def test_stale_caches_postpone_a_sync_if_the_gate_is_on(recorded_events, start, enabled):
    server = FakeApiServer(gates=FeatureGates({"StaleControllerConsistencyReplicaSet": enabled}))
    controller = ReplicaSetController(server.context)
    await start(server.informers, controller)
    controller.consistency.wrote_at("ns/web", "uid", PODS.group_resource, "999999")
    with pytest.raises(StaleCache) if enabled else contextlib.nullcontext():
        controller.consistency.ensure_ready("ns/web")


async def test_deleted_replica_set_creates_no_pods_while_it_has_finalizers(fake_apiserver, controller):
    fake_apiserver.add(REPLICA_SETS, "web")
    path = REPLICA_SETS.path(namespace="ns", name="web")
    fake_apiserver.api.succeed("PATCH", path, {"metadata": {"finalizers": ["example.com/f"]}})
    fake_apiserver.api.succeed("DELETE", path)
    await scale(fake_apiserver, 3)
    assert fake_apiserver.names(PODS) == []
    assert fake_apiserver.objects(REPLICA_SETS)[0]["metadata"]["deletionTimestamp"]


# --- events, and expectations around writes -------------------------------------------------------------------------


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}


def stored_replica_set(name: str = "web", *, min_ready_seconds: int = 0, labels: Any = None) -> ReplicaSet:
    selector = {"matchLabels": labels or LABELS}
    metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}
    return convert(
        ReplicaSet, {"metadata": metadata, "spec": {"selector": selector, "minReadySeconds": min_ready_seconds}}
    )


def stored_pod(
    owner: str = "web", version: str = "1", *, ready: bool = False, deleted: bool = False, labels: Any = None
) -> Pod:
    references = [{**OWNER, "name": owner, "uid": owner}] if owner else []
    metadata = {
        "name": "p",
        "namespace": "ns",
        "uid": "p",
        "labels": labels or LABELS,
        "resourceVersion": version,
        "ownerReferences": references,
    }
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T11:00:00Z"
    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-01T11:00:00Z"}]
    return convert(Pod, {"metadata": metadata, "status": {"phase": "Running", "conditions": conditions}})


class Handled(NamedTuple):
    """Result of an event. calls: keys added to the queue, with the seconds of those added later."""

    calls: list[str | tuple[str, float]]
    creations: int
    deletions: int


def handle(*events: tuple[str, Any], stored: Sequence[ReplicaSet] = (), expected: tuple[int, int] = (2, 1)) -> Handled:
    """Deliver the events of a Pod after ReplicaSet `web` has expected creations and the deletion of `ns/p`."""
    queue = replay_server.RecordingQueue()
    context = replay_server.replay_context(replay_server.ReplayServer({"state": {}}), SetClock(NOW), queue)
    controller = ReplicaSetController(context)
    for rs in stored or (stored_replica_set(),):
        context.informers.informer(REPLICA_SETS).apply("ADDED", rs, 0)
    creations, deletions = expected
    *former, (verb, pod) = events
    for before, obj in former:
        context.informers.informer(PODS).apply(before, obj, 0)
    controller.expectations.expect("ns/web", creations, [f"ns/{name}" for name in ("p", "q")[:deletions]])
    queue.calls.clear()
    context.informers.informer(PODS).apply(verb, pod, 0)
    controller.check()
    expectation = controller.expectations._expected["ns/web"]
    calls = [(call["key"], call["after_seconds"]) if "after_seconds" in call else call["key"] for call in queue.calls]
    return Handled(calls, expectation.creations, expectation.deletions)


ADDED, MODIFIED, DELETED_EVENT = "ADDED", "MODIFIED", "DELETED"
ORPHAN_OWNERS = (stored_replica_set(), stored_replica_set("other"), stored_replica_set("db", labels={"app": "db"}))


@pytest.mark.parametrize(
    ("events", "handled"),
    [
        pytest.param([(ADDED, stored_pod())], (["ns/web"], 1, 1), id="added: a creation is observed"),
        pytest.param([(ADDED, stored_pod("gone"))], ([], 2, 1), id="added: of another owner"),
        pytest.param([(ADDED, stored_pod(deleted=True))], (["ns/web"], 2, 0), id="added while terminating: a deletion"),
        pytest.param([(ADDED, stored_pod("", deleted=True))], ([], 2, 1), id="terminating orphan"),
        pytest.param([(ADDED, stored_pod()), (MODIFIED, stored_pod(version="2"))], (["ns/web"], 2, 1), id="changed"),
        pytest.param([(ADDED, stored_pod()), (MODIFIED, stored_pod())], ([], 2, 1), id="the same version"),
        pytest.param(
            [(ADDED, stored_pod()), (MODIFIED, stored_pod(version="2", deleted=True))],
            (["ns/web"], 2, 0),
            id="marked for deletion",
        ),
        pytest.param(
            [(ADDED, stored_pod()), (MODIFIED, stored_pod(version="2", deleted=True, labels={"app": "x"}))],
            (["ns/web", "ns/web"], 2, 0),
            id="marked for deletion, with other labels: counts once",
        ),
        pytest.param(
            [(ADDED, stored_pod()), (MODIFIED, stored_pod("gone", version="2", deleted=True))],
            ([], 2, 1),
            id="marked for deletion by another owner, with the same labels",
        ),
        pytest.param(
            [(ADDED, stored_pod()), (MODIFIED, stored_pod("gone", version="2", deleted=True, labels={"app": "x"}))],
            (["ns/web"], 2, 0),
            id="marked for deletion by another owner, with other labels",
        ),
        pytest.param(
            [(ADDED, stored_pod()), (DELETED_EVENT, stored_pod(version="2"))], (["ns/web"], 2, 0), id="deleted"
        ),
    ],
)
def test_pod_event_enqueues_the_owner_and_meets_expectations(events, handled):
    assert handle(*events) == handled


def test_orphan_enqueues_the_replica_sets_that_select_it():
    result = handle((ADDED, stored_pod("")), stored=ORPHAN_OWNERS)
    assert sorted(result.calls) == ["ns/other", "ns/web"]
    assert (result.creations, result.deletions) == (2, 1), "it may be of any of them"


@pytest.mark.parametrize(
    ("min_ready_seconds", "before", "after", "calls"),
    [
        pytest.param(30, False, True, ["ns/web", ("ns/web", 30)], id="becomes ready"),
        pytest.param(1, False, True, ["ns/web", ("ns/web", 1)], id="shortest time"),
        pytest.param(30, True, True, ["ns/web"], id="was ready"),
        pytest.param(30, True, False, ["ns/web"], id="is no longer ready"),
        pytest.param(0, False, True, ["ns/web"], id="available at once"),
    ],
)
def test_pod_that_becomes_ready_is_checked_when_it_is_available(min_ready_seconds, before, after, calls):
    events = (ADDED, stored_pod(ready=before)), (MODIFIED, stored_pod(version="2", ready=after))
    assert handle(*events, stored=[stored_replica_set(min_ready_seconds=min_ready_seconds)]).calls == calls


async def test_replica_set_expects_its_writes_before_it_sends_them(fake_apiserver, controller):
    met: list[tuple[str, bool]] = []

    def record(request: SentRequest) -> None:
        if "/pods" in request.path:
            met.append((request.method, controller.expectations.met("ns/web")))

    fake_apiserver.transport.on_send = record
    fake_apiserver.add(REPLICA_SETS, "web")
    await scale(fake_apiserver, 2)
    await scale(fake_apiserver, 1)
    assert {method for method, _ in met} == {"POST", "DELETE"}
    assert not any(is_met for _, is_met in met)
    assert controller.expectations.met("ns/web")


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_failed_writes_are_expected_no_longer(fake_apiserver, controller, method):
    fake_apiserver.add(REPLICA_SETS, "web")
    await scale(fake_apiserver, 2)

    def reject(sent: str, path: str) -> errors.StatusError | None:
        return errors.forbidden(PODS, "", "refused") if sent == method and "/pods" in path else None

    fake_apiserver.transport.reject = reject
    await scale(fake_apiserver, 4 if method == "POST" else 1)
    assert controller.expectations.met("ns/web")
    assert len(fake_apiserver.names(PODS)) == 2
    assert fake_apiserver.metrics.values("kubeloop_reconcile_errors") != {}


# --- what one reconcile returns, writes and reports ------------------------------------------------------------------


def set_ready(api: FakeApiServer, since: str) -> None:
    """Set all Pods to Ready since this time."""
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
    for pod in api.objects(PODS):
        path = PODS.path("ns", pod["metadata"]["name"], "status")
        body = {"status": {"phase": "Running", "conditions": conditions}}
        api.api.succeed("PATCH", path, body, content_type="application/merge-patch+json")


@pytest.mark.parametrize(
    ("min_ready_seconds", "ready_for", "seconds", "available"),
    [
        pytest.param(0, 0, None, 2, id="available at once"),
        pytest.param(1, 0, 1.0, 0, id="one second"),
        pytest.param(30, 0, 30.0, 0, id="ready now"),
        pytest.param(30, 10, 20.0, 0, id="ready for 10 seconds"),
        pytest.param(30, 29, 1.0, 0, id="one second left"),
        pytest.param(30, 30, None, 2, id="available now"),
        pytest.param(30, None, None, 0, id="not ready"),
    ],
)
async def test_reconcile_returns_the_time_until_pods_are_available(
    fake_apiserver, controller, min_ready_seconds, ready_for, seconds, available
):
    fake_apiserver.add(REPLICA_SETS, "web")
    path = REPLICA_SETS.path(namespace="ns", name="web")
    fake_apiserver.api.succeed("PATCH", path, {"spec": {"minReadySeconds": min_ready_seconds}})
    await scale(fake_apiserver, 2)
    if ready_for is not None:
        set_ready(fake_apiserver, rfc3339(time_plus(fake_apiserver.context.clock.now(), -float(ready_for))))
        await asyncio.sleep(0.1)
    result = await controller.reconcile("ns/web")
    assert result == (None if seconds is None else pytest.approx(seconds, abs=0.2))
    status = fake_apiserver.objects(REPLICA_SETS)[0]["status"]
    assert status.get("availableReplicas", 0) == available
    assert status.get("readyReplicas", 0) == (0 if ready_for is None else 2)


async def test_terminating_pods_of_the_replica_set_are_counted(fake_apiserver, controller):
    fake_apiserver.add(REPLICA_SETS, "web")
    fake_apiserver.add(PODS, "foreign", {**OWNER, "name": "x", "uid": "x"}, labels=LABELS, finalizers=["example.com/f"])
    fake_apiserver.add(PODS, "orphan", labels=LABELS, finalizers=["example.com/f"])
    for name in ("foreign", "orphan"):
        fake_apiserver.delete(PODS, name)
    await scale(fake_apiserver, 3)
    own = [name for name, owners in controllers_of(fake_apiserver).items() if owners == ["web"]]
    for name in own[:2]:
        body = {"metadata": {"finalizers": ["example.com/f"]}}
        fake_apiserver.api.succeed("PATCH", PODS.path(namespace="ns", name=name), body)
        fake_apiserver.delete(PODS, name)
    await asyncio.sleep(2)
    status = fake_apiserver.objects(REPLICA_SETS)[0]["status"]
    assert (status["replicas"], status["terminatingReplicas"]) == (3, 2)


@pytest.mark.parametrize(("replicas", "ratios"), [(2, 1), (1, 2), (0, 0)])
async def test_ages_of_some_deleted_pods_are_reported(fake_apiserver, controller, replicas, ratios):
    fake_apiserver.add(REPLICA_SETS, "web")
    await scale(fake_apiserver, 3)
    set_ready(fake_apiserver, rfc3339(fake_apiserver.context.clock.now()))
    await asyncio.sleep(5)
    await scale(fake_apiserver, replicas)
    reported = fake_apiserver.metrics.values("replicaset_controller_sorting_deletion_age_ratio")
    assert sum(reported.values()) == ratios, "none if all are deleted"


async def test_writes_are_recorded_for_the_check_of_stale_caches(fake_apiserver, controller, monkeypatch):
    written: dict[str, list[str]] = {}

    def record(owner: Any, resource: Any, obj: Any) -> None:
        written.setdefault(resource.plural, []).append(f"{owner.key} {obj.key} {obj.metadata.resource_version}")

    monkeypatch.setattr(controller.consistency, "wrote", record)
    fake_apiserver.add(PODS, "orphan", labels=LABELS)
    fake_apiserver.add(REPLICA_SETS, "web")
    await scale(fake_apiserver, 2)
    (stored,) = fake_apiserver.objects(REPLICA_SETS)
    assert written["replicasets"][-1] == f"ns/web ns/web {stored['metadata']['resourceVersion']}"
    pods = {
        f"ns/web ns/{pod['metadata']['name']} {pod['metadata']['resourceVersion']}"
        for pod in fake_apiserver.objects(PODS)
    }
    assert set(written["pods"]) == pods
    assert not any(fake_apiserver.metrics.values("kubeloop_reconcile_errors").values()), "none is needed for adoptions"


async def test_check_reports_groups_that_differ_from_the_store(fake_apiserver, controller):
    fake_apiserver.add(REPLICA_SETS, "web")
    await scale(fake_apiserver, 1)
    controller.check()
    controller._pods.remove(f"ns/{fake_apiserver.names(PODS)[0]}")
    with pytest.raises(AssertionError):
        controller.check()


@pytest.mark.parametrize(
    ("owner", "selector", "nodes"),
    [
        pytest.param("", LABELS, {}, id="no owner"),
        pytest.param("deployment", LABELS, {"a": 2, "b": 1}, id="also Pods of the siblings"),
        pytest.param("other", {"app": "none"}, {}, id="no Pods"),
    ],
)
def test_related_pods_are_those_of_all_replica_sets_of_the_owner(owner, selector, nodes):
    queue = replay_server.RecordingQueue()
    context = replay_server.replay_context(replay_server.ReplayServer({"state": {}}), SetClock(NOW), queue)
    controller = ReplicaSetController(context)

    def owned(name: str, uid: str, labels: Any) -> ReplicaSet:
        rs = stored_replica_set(name, labels=labels)
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": uid, "uid": uid, "controller": True}
        return structs.replace(
            rs, metadata=convert(ObjectMeta, {**to_json(rs.metadata), "ownerReferences": [reference] if uid else []})
        )

    web = owned("web", owner, selector)
    others = [owned("sibling", "deployment", {"app": "sibling"}), owned("stranger", "strange", {"app": "stranger"})]
    for rs in (web, *others):
        context.informers.informer(REPLICA_SETS).apply("ADDED", rs, 0)
    for name, app, node in (("p", "web", "a"), ("q", "web", "b"), ("r", "sibling", "a"), ("s", "stranger", "a")):
        body = {"metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": app}}}
        pod = convert(Pod, {**body, "spec": {"nodeName": node}, "status": {"phase": "Running"}})
        context.informers.informer(PODS).apply("ADDED", pod, 0)
    assert controller.related_pods_per_node(web) == nodes


# --- status writes ---------------------------------------------------------------------------------------------------


def status_writes(api: FakeApiServer) -> list[int | None]:
    """Return the values of status.replicas that the controller has written; None: an update of other fields."""
    return [body["status"].get("replicas") for _, path, body in api.requests if path.endswith("/status")]


async def test_status_is_written_once_after_a_change_of_pods(fake_apiserver, controller):
    fake_apiserver.add(REPLICA_SETS, "web")
    await asyncio.sleep(2)
    await scale(fake_apiserver, 3)
    await scale(fake_apiserver, 1)
    assert status_writes(fake_apiserver) == [None, 3, 1]


async def test_status_of_a_failed_sync_is_written_at_once(fake_apiserver, controller):
    fake_apiserver.add(REPLICA_SETS, "web")
    await asyncio.sleep(2)
    fake_apiserver.transport.reject = lambda method, path: (
        errors.forbidden(PODS, "", "no more pods") if method == "POST" and path.endswith("/pods") else None
    )
    fake_apiserver.api.succeed("PATCH", REPLICA_SETS.path(namespace="ns", name="web"), {"spec": {"replicas": 1}})
    await asyncio.sleep(0.3)  # less than the delay of a postponed status
    assert fake_apiserver.objects(REPLICA_SETS)[0]["status"]["conditions"][0]["reason"] == "FailedCreate"


@pytest.mark.parametrize(
    ("uid", "pending", "after", "written"),
    [
        pytest.param("", None, 3, [], id="nothing is postponed"),
        pytest.param("", 1, 3, [1], id="fewer, then as many as before"),
        pytest.param("", 2, 4, [2], id="fewer, then more"),
        pytest.param("", 0, 1, [0], id="none, then one"),
        pytest.param("", 4, 3, [4], id="more, then as many as before"),
        pytest.param("", 1, 1, [], id="fewer, and the same again"),
        pytest.param("", 2, 1, [], id="fewer and fewer"),
        pytest.param("", 4, 5, [], id="more and more"),
        pytest.param("other", 1, 3, [], id="status of a deleted ReplicaSet of that name"),
    ],
)
async def test_postponed_status_is_written_if_the_count_turns(fake_apiserver, controller, uid, pending, after, written):
    """The stored status counts 3 Pods; a Deployment must see each decrease that an increase follows."""
    fake_apiserver.add(REPLICA_SETS, "web")
    await asyncio.sleep(2)
    stored = structs.replace(controller._owners.get("ns/web"), status=ReplicaSetStatus(replicas=3))
    if pending is not None:
        status = ReplicaSetStatus(replicas=pending)
        controller._status_delay.postpone("ns/web", (uid or stored.metadata.uid, status))
    before = len(status_writes(fake_apiserver))
    reconcile = DisabledReconcileRecorder().reconcile("replicaset", "ns/web")
    returned = await controller._write_pending_turn(stored, ReplicaSetStatus(replicas=after), reconcile)
    assert status_writes(fake_apiserver)[before:] == written
    assert returned.status.replicas == (written or [3])[-1]


@pytest.mark.parametrize(
    ("observed", "missing", "expects", "handled"),
    [
        pytest.param(True, 0, False, False, id="nothing to do"),
        pytest.param(False, 0, False, True, id="the spec has changed"),
        pytest.param(True, 1, False, True, id="a Pod is missing"),
        pytest.param(False, 1, False, True, id="both"),
        pytest.param(False, 0, True, False, id="the spec has changed, and Pods are expected"),
        pytest.param(True, 1, True, False, id="a Pod is missing, and expected"),
    ],
)
async def test_sync_handles_its_cause(fake_apiserver, controller, observed, missing, expects, handled):
    """A sync that only counts Pods is not linked to the write that caused it."""
    fake_apiserver.add(REPLICA_SETS, "web")
    await asyncio.sleep(2)
    stored = controller._owners.get("ns/web")
    generation = stored.metadata.generation - (not observed)
    stored = structs.replace(
        stored,
        spec=structs.replace(stored.spec, replicas=missing),
        status=structs.replace(stored.status, observed_generation=generation),
    )
    if expects:
        controller.expectations.expect("ns/web", 1, ())
    reconcile = DisabledReconcileRecorder().reconcile("replicaset", "ns/web")
    await controller._sync(stored, reconcile)
    assert reconcile.handled_cause is handled
    assert len(fake_apiserver.names(PODS)) == (missing if not expects else 0)


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_finished_pods_are_replaced_and_not_adopted(fake_apiserver, controller, phase):
    fake_apiserver.add(REPLICA_SETS, "web")
    await scale(fake_apiserver, 1)
    (own,) = fake_apiserver.names(PODS)
    fake_apiserver.add(PODS, "orphan", labels={"app": "x"})
    for name in (own, "orphan"):
        path = PODS.path("ns", name, "status")
        fake_apiserver.api.succeed(
            "PATCH", path, {"status": {"phase": phase}}, content_type="application/merge-patch+json"
        )
    fake_apiserver.api.succeed("PATCH", PODS.path(namespace="ns", name="orphan"), {"metadata": {"labels": LABELS}})
    await asyncio.sleep(2)
    owners = controllers_of(fake_apiserver)
    assert owners.pop("orphan") == []
    assert list(owners.values()) == [["web"]] * 2
    assert fake_apiserver.objects(REPLICA_SETS)[0]["status"]["replicas"] == 1


@pytest.mark.parametrize(
    ("resource", "gate", "counted"),
    [
        pytest.param(REPLICA_SETS, True, 0, id="ReplicaSet"),
        pytest.param(REPLICA_SETS, False, None, id="ReplicaSet, gate off"),
        pytest.param(REPLICATION_CONTROLLERS, True, None, id="ReplicationController"),
    ],
)
async def test_terminating_replicas_are_counted_for_replica_sets_only(start, resource, gate, counted):
    server = FakeApiServer(gates=FeatureGates({"DeploymentReplicaSetTerminatingReplicas": gate}))
    server.add(NAMESPACES, "ns")
    is_replica_set = resource is REPLICA_SETS
    controller = (ReplicaSetController if is_replica_set else new_replication_controller)(server.context)
    await start(server.informers, controller)
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    selector = {"matchLabels": LABELS} if is_replica_set else LABELS
    body = {"metadata": {"name": "web"}, "spec": {"replicas": 1, "selector": selector, "template": template}}
    server.api.create(resource.path(namespace="ns"), body)
    await asyncio.sleep(2)
    status = server.objects(resource)[0]["status"]
    assert (status["replicas"], status.get("terminatingReplicas")) == (1, counted)
    (reference,) = server.objects(PODS)[0]["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["name"]) == (resource.kind, "web")
