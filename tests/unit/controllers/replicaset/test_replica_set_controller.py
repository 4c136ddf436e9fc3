"""The ReplicaSet controller with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.replicaset.replica_set_controller import ReplicaSetController
from kubeloop.controllers.runtime.controller import StaleCache
from kubeloop.devcluster.api import errors
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import PODS, REPLICA_SETS
from support.apiserver.fake_apiserver import FakeApiServer
from support.apiserver.faulty_transport import SentRequest

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
