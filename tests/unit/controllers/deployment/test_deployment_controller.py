"""The Deployment and ReplicaSet controllers with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.controllers.deployment.deployment_controller import DeploymentController
from kubeloop.controllers.deployment.replica_sets import ROLLBACK_TO
from kubeloop.controllers.replicaset.replica_set_controller import ReplicaSetController
from kubeloop.kube.objects.api_types import Deployment, Pod, ReplicaSet, convert
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS, REPLICA_SETS, Resource
from support.apiserver.faulty_transport import SentRequest, WatchFault
from support.comparison import replay_server
from support.simulation.set_clock import SetClock

pytestmark = pytest.mark.virtual_time

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def apiserver(fake_apiserver, start):
    context = fake_apiserver.context
    await start(fake_apiserver.informers, DeploymentController(context), ReplicaSetController(context))
    return fake_apiserver


def create_deployment(api: Any, **spec: Any) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template, **spec}
    api.api.create(DEPLOYMENTS.path("ns"), {"metadata": {"name": "web"}, "spec": spec})


def change_image(api: Any, image: str) -> None:
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}
    api.api.succeed("PATCH", DEPLOYMENTS.path("ns", "web"), patch)


async def test_old_replica_set_that_is_gone_before_its_clean_up_is_no_error(apiserver):
    create_deployment(apiserver, revisionHistoryLimit=0)
    await asyncio.sleep(5)
    (old,) = apiserver.names(REPLICA_SETS)

    def delete_first(request: SentRequest) -> None:
        if request.method == "DELETE":
            assert request.path == REPLICA_SETS.path("ns", old)
            apiserver.store.delete(REPLICA_SETS, "ns", old)

    apiserver.transport.on_send = delete_first
    change_image(apiserver, "app:2")
    await asyncio.sleep(60)
    assert len(apiserver.names(REPLICA_SETS)) == 1
    assert [path for path in apiserver.written("DELETE") if path.endswith(old)]
    assert not any(apiserver.metrics.values("kubeloop_reconcile_errors").values())


async def test_rollback_is_not_repeated_before_the_cache_shows_it(apiserver):
    create_deployment(apiserver)
    await asyncio.sleep(5)
    (first,) = apiserver.names(REPLICA_SETS)
    change_image(apiserver, "app:2")
    await asyncio.sleep(5)
    apiserver.transport.watch_faults = [WatchFault("silence", lines=1, resource=DEPLOYMENTS.plural)]
    apiserver.transport.break_watches(DEPLOYMENTS.plural)
    await asyncio.sleep(5)
    patch = {"metadata": {"annotations": {ROLLBACK_TO: "1"}}}
    apiserver.api.succeed("PATCH", DEPLOYMENTS.path("ns", "web"), patch)
    await asyncio.sleep(1)
    annotation = {"metadata": {"annotations": {"example.com/checked": "true"}}}
    apiserver.api.succeed("PATCH", REPLICA_SETS.path("ns", first), annotation)
    await asyncio.sleep(1)
    assert apiserver.written("PATCH").count(DEPLOYMENTS.path("ns", "web")) == 1
    apiserver.transport.break_watches(DEPLOYMENTS.plural)
    await asyncio.sleep(5)
    (container,) = apiserver.store.get(DEPLOYMENTS, "ns", "web")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "app:1"
    assert [event.reason for event in apiserver.context.events.events].count("DeploymentRollback") == 1


# --- events ----------------------------------------------------------------------------------------------------------

LABELS = {"app": "web"}


def stored_deployment(name: str = "web", strategy: str = "RollingUpdate", selector: Any = None) -> Deployment:
    metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}
    spec = {"selector": selector or {"matchLabels": LABELS}, "strategy": {"type": strategy}}
    return convert(Deployment, {"kind": "Deployment", "metadata": metadata, "spec": spec})


def stored_replica_set(
    owner: str = "web", version: str = "1", *, name: str = "rs", deleted: bool = False
) -> ReplicaSet:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": owner, "uid": owner, "controller": True}
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": name,
        "labels": LABELS,
        "resourceVersion": version,
        "ownerReferences": [reference] if owner else [],
    }
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T11:00:00Z"
    return convert(ReplicaSet, {"kind": "ReplicaSet", "metadata": metadata})


def stored_pod(owner: str = "rs", name: str = "p") -> Pod:
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
    metadata = {"name": name, "namespace": "ns", "uid": name, "labels": LABELS, "ownerReferences": [reference]}
    return convert(Pod, {"metadata": metadata})


async def enqueued(stored: Sequence[Any], verb: str, obj: Any) -> list[str]:
    """Return the keys that an event of a ReplicaSet or Pod enqueues."""
    queue = replay_server.RecordingQueue()
    api = replay_server.ReplayServer({"state": {}})
    context = replay_server.replay_context(api, SetClock(NOW), queue)
    DeploymentController(context)
    resources: dict[type, Resource[Any]] = {Deployment: DEPLOYMENTS, ReplicaSet: REPLICA_SETS, Pod: PODS}
    for existing in stored:
        context.informers.informer(resources[type(existing)]).apply("ADDED", existing, 0)
    queue.calls.clear()
    context.informers.informer(resources[type(obj)]).apply(verb, obj, 0)
    return [call["key"] for call in queue.calls]


@pytest.mark.parametrize(
    ("before", "verb", "after", "keys"),
    [
        pytest.param(None, "ADDED", stored_replica_set(), ["ns/web"], id="added"),
        pytest.param(None, "ADDED", stored_replica_set("gone"), [], id="added, of an unknown owner"),
        pytest.param(None, "ADDED", stored_replica_set(""), ["ns/web"], id="orphan added"),
        pytest.param(None, "ADDED", stored_replica_set(deleted=True), ["ns/web"], id="added in deletion"),
        pytest.param(None, "ADDED", stored_replica_set("", deleted=True), [], id="orphan added in deletion"),
        pytest.param(stored_replica_set(), "MODIFIED", stored_replica_set(version="2"), ["ns/web"], id="changed"),
        pytest.param(stored_replica_set(), "MODIFIED", stored_replica_set(), [], id="the same version"),
        pytest.param(
            stored_replica_set(), "MODIFIED", stored_replica_set("", "2"), ["ns/web", "ns/web"], id="released: both"
        ),
        pytest.param(stored_replica_set(), "DELETED", stored_replica_set(version="2"), ["ns/web"], id="deleted"),
    ],
)
async def test_replica_set_event_enqueues_its_deployment(before, verb, after, keys):
    stored = [stored_deployment(), *([before] if before else [])]
    assert await enqueued(stored, verb, after) == keys


INVALID = {"matchExpressions": [{"key": "app", "operator": "Is"}]}


@pytest.mark.parametrize(
    ("deployment", "others", "keys"),
    [
        pytest.param(stored_deployment(strategy="Recreate"), [], ["ns/web"], id="last pod"),
        pytest.param(stored_deployment(), [], [], id="rolling update"),
        pytest.param(stored_deployment(strategy="Recreate"), [stored_pod(name="q")], [], id="another pod remains"),
        pytest.param(
            stored_deployment(strategy="Recreate"),
            [stored_replica_set("gone", name="foreign"), stored_pod("foreign", "q")],
            ["ns/web"],
            id="pod of another owner remains",
        ),
        pytest.param(stored_deployment(strategy="Recreate", selector=INVALID), [], [], id="invalid selector"),
        pytest.param(
            stored_deployment(strategy="Recreate", selector={"matchLabels": {"app": "db"}}),
            [stored_pod(name="q")],
            ["ns/web"],
            id="pods of a ReplicaSet that is not selected",
        ),
        pytest.param(stored_deployment("other", "Recreate"), [], [], id="unknown owner"),
    ],
)
async def test_deleted_pod_enqueues_a_recreate_that_waits_for_it(deployment, others, keys):
    stored = [deployment, stored_replica_set(), stored_pod(), *others]
    assert await enqueued(stored, "DELETED", stored_pod()) == keys


@pytest.mark.parametrize(
    ("left", "seconds", "calls"),
    [
        pytest.param(None, None, [], id="no deadline"),
        pytest.param(-1.0, None, [{"op": "add_rate_limited", "key": "ns/web"}], id="missed"),
        pytest.param(0.5, None, [{"op": "add_rate_limited", "key": "ns/web"}], id="within a second"),
        pytest.param(1.0, 2.0, [], id="in a second"),
        pytest.param(59.0, 60.0, [], id="later: one second after the deadline"),
    ],
)
def test_progress_deadline_is_checked_again(left, seconds, calls):
    queue = replay_server.RecordingQueue()
    context = replay_server.replay_context(replay_server.ReplayServer({"state": {}}), SetClock(NOW), queue)
    controller = DeploymentController(context)
    queue.calls.clear()
    assert controller._recheck_seconds("ns/web", left) == seconds
    assert queue.calls == calls


async def test_complete_deployment_is_not_polled_while_a_pod_is_unavailable(apiserver):
    create_deployment(apiserver)
    await asyncio.sleep(900)
    apiserver.api.succeed("PATCH", DEPLOYMENTS.path("ns", "web"), {"spec": {"replicas": 1}})
    await asyncio.sleep(60)
    (deployment,) = apiserver.objects(DEPLOYMENTS)
    reasons = {condition["type"]: condition["reason"] for condition in deployment["status"]["conditions"]}
    assert reasons["Progressing"] == "NewReplicaSetAvailable"
    adds = apiserver.metrics.values("workqueue_adds_total")[",deployment"]
    await asyncio.sleep(600)
    assert apiserver.metrics.values("workqueue_adds_total")[",deployment"] <= adds + 15


@pytest.mark.parametrize(("observed", "written"), [(1, True), (2, False), (3, False)])
async def test_deployment_that_selects_all_pods_is_reported(observed, written):
    metadata = {"name": "web", "namespace": "ns", "uid": "web", "generation": 2, "resourceVersion": "5"}
    deployment = {"metadata": metadata, "spec": {"selector": {}}, "status": {"observedGeneration": observed}}
    api = replay_server.ReplayServer({"state": {"deployments": [deployment]}})
    context = replay_server.replay_context(api, SetClock(NOW), replay_server.RecordingQueue())
    controller = DeploymentController(context)
    context.informers.informer(DEPLOYMENTS).apply("ADDED", convert(Deployment, deployment), 0)
    assert await controller.reconcile("ns/web") is None
    assert [(event.type, event.reason) for event in context.events.events] == [("Warning", "SelectingAll")]
    statuses = [call["object"]["status"] for call in api.calls]
    assert statuses == ([{"observedGeneration": 2}] if written else [])
