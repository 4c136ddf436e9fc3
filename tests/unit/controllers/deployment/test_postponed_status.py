"""Status writes of a Deployment and its ReplicaSet that the next event would make obsolete, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.deployment.deployment_controller import DeploymentController
from kubeloop.controllers.replicaset.replica_set_controller import ReplicaSetController
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS, REPLICA_SETS

pytestmark = pytest.mark.virtual_time

POD_TEMPLATE = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "app:1"}]},
}


def controllers_of(api: Any, recorded_events: Any) -> list[Any]:
    context = structs.replace(api.context, events=recorded_events)
    return [DeploymentController(context), ReplicaSetController(context)]


def create_deployment(api: Any, **spec: Any) -> None:
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": POD_TEMPLATE, **spec},
    }
    api.api.succeed("POST", DEPLOYMENTS.path(namespace="ns"), body)


def change_image(api: Any, image: str) -> None:
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}
    api.api.succeed("PATCH", DEPLOYMENTS.path(namespace="ns", name="web"), patch)


def status_writes(api: Any) -> list[str]:
    return [path.split("/")[-3] for path in api.written("PATCH") if path.endswith("/status")]


def progressing(api: Any) -> dict[str, Any]:
    conditions = api.objects(DEPLOYMENTS)[0]["status"]["conditions"]
    return next(condition for condition in conditions if condition["type"] == "Progressing")


def make_pods_ready(api: Any) -> None:
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for pod in api.objects(PODS):
        api.store.update(PODS, {**pod, "status": status})


def reject_pods(method: str, path: str) -> errors.StatusError | None:
    return errors.forbidden(PODS, "", "no more pods") if method == "POST" and path.endswith("/pods") else None


async def test_new_deployment_and_its_replica_set_have_one_status_write_each(fake_apiserver, recorded_events, start):
    await start(fake_apiserver.informers, *controllers_of(fake_apiserver, recorded_events))
    create_deployment(fake_apiserver, replicas=3)
    await asyncio.sleep(5)
    assert sorted(status_writes(fake_apiserver)) == ["deployments", "replicasets"]
    (deployment,) = fake_apiserver.objects(DEPLOYMENTS)
    assert deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    assert deployment["status"]["observedGeneration"] == 1
    assert deployment["status"]["unavailableReplicas"] == 3
    assert progressing(fake_apiserver)["reason"] == "ReplicaSetUpdated"


async def test_status_is_written_without_a_replica_set_controller(fake_apiserver, recorded_events, start):
    deployments, _ = controllers_of(fake_apiserver, recorded_events)
    await start(fake_apiserver.informers, deployments)
    create_deployment(fake_apiserver)
    await asyncio.sleep(0.4)
    assert status_writes(fake_apiserver) == []
    await asyncio.sleep(0.2)
    assert status_writes(fake_apiserver) == ["deployments"]
    (rs,) = fake_apiserver.names(REPLICA_SETS)
    assert progressing(fake_apiserver)["message"] == f'Created new replica set "{rs}"'


async def test_status_is_written_while_expectations_are_unmet(fake_apiserver, recorded_events, start):
    _, replica_sets = controllers_of(fake_apiserver, recorded_events)
    await start(fake_apiserver.informers, replica_sets)
    replica_sets.expectations.creation_observed = lambda key: None
    fake_apiserver.add(REPLICA_SETS, "web")
    fake_apiserver.api.succeed("PATCH", REPLICA_SETS.path(namespace="ns", name="web"), {"spec": {"replicas": 1}})
    await asyncio.sleep(5)
    assert fake_apiserver.objects(REPLICA_SETS)[0]["status"]["replicas"] == 1


STALLING = [
    {"strategy": {"type": "Recreate"}},
    {"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "100%"}}},
]


@pytest.mark.parametrize("strategy", STALLING)
async def test_stalled_rollout_shows_the_progress_of_its_pods(fake_apiserver, recorded_events, start, strategy):
    """The deadline starts when the pods have been created, as without postponed writes."""
    await start(fake_apiserver.informers, *controllers_of(fake_apiserver, recorded_events))
    create_deployment(fake_apiserver, replicas=3, progressDeadlineSeconds=60, **strategy)
    await asyncio.sleep(2)
    make_pods_ready(fake_apiserver)
    await asyncio.sleep(2)
    assert progressing(fake_apiserver)["reason"] == "NewReplicaSetAvailable"
    change_image(fake_apiserver, "app:2")
    await asyncio.sleep(1)
    for pod in fake_apiserver.objects(PODS):
        if "deletionTimestamp" in pod["metadata"]:
            fake_apiserver.store.delete(PODS, "ns", pod["metadata"]["name"])
    await asyncio.sleep(5)
    condition = progressing(fake_apiserver)
    (rs,) = (rs for rs in fake_apiserver.objects(REPLICA_SETS) if rs["spec"]["replicas"])
    assert condition["reason"] == "ReplicaSetUpdated"
    assert condition["message"] == f'ReplicaSet "{rs["metadata"]["name"]}" is progressing.'
    assert condition["status"] == "True"


async def test_first_status_of_a_rollout_is_not_postponed(fake_apiserver, recorded_events, start):
    """A crash between the writes would leave the Deployment complete, with no deadline for the new rollout."""
    await start(fake_apiserver.informers, *controllers_of(fake_apiserver, recorded_events))
    create_deployment(fake_apiserver, replicas=3)
    await asyncio.sleep(2)
    make_pods_ready(fake_apiserver)
    await asyncio.sleep(2)
    before = len(status_writes(fake_apiserver))
    change_image(fake_apiserver, "app:2")
    await asyncio.sleep(2)
    assert status_writes(fake_apiserver)[before] == "deployments"


async def test_pod_that_replaces_another_one_is_progress(fake_apiserver, recorded_events, start):
    await start(fake_apiserver.informers, *controllers_of(fake_apiserver, recorded_events))
    create_deployment(fake_apiserver, replicas=3, progressDeadlineSeconds=60)
    await asyncio.sleep(70)
    assert progressing(fake_apiserver)["reason"] == "ProgressDeadlineExceeded"
    fake_apiserver.store.delete(PODS, "ns", fake_apiserver.names(PODS)[0])
    await asyncio.sleep(2)
    assert len(fake_apiserver.names(PODS)) == 3
    assert progressing(fake_apiserver)["reason"] == "ReplicaSetUpdated"


async def test_status_of_another_client_replaces_a_postponed_one(fake_apiserver, recorded_events, start):
    deployments, _ = controllers_of(fake_apiserver, recorded_events)
    await start(fake_apiserver.informers, deployments)
    create_deployment(fake_apiserver, replicas=1)
    await asyncio.sleep(0.2)
    status = {"conditions": [{"type": "Other", "status": "True"}], "collisionCount": 7}
    path = DEPLOYMENTS.path(namespace="ns", name="web") + "/status"
    fake_apiserver.api.succeed("PATCH", path, {"status": status})
    await asyncio.sleep(2)
    written = fake_apiserver.objects(DEPLOYMENTS)[0]["status"]
    assert written["collisionCount"] == 7
    assert "Other" in {condition["type"] for condition in written["conditions"]}


async def test_progress_of_a_rollout_without_pods_is_not_lost(fake_apiserver, recorded_events, start):
    await start(fake_apiserver.informers, *controllers_of(fake_apiserver, recorded_events))
    create_deployment(fake_apiserver, replicas=0)
    await asyncio.sleep(5)
    assert progressing(fake_apiserver)["reason"] == "NewReplicaSetAvailable"
    fake_apiserver.transport.reject = reject_pods
    fake_apiserver.api.succeed("PATCH", DEPLOYMENTS.path(namespace="ns", name="web"), {"spec": {"paused": True}})
    change_image(fake_apiserver, "app:2")
    spec = {"paused": False, "replicas": 1, "progressDeadlineSeconds": 60}
    fake_apiserver.api.succeed("PATCH", DEPLOYMENTS.path(namespace="ns", name="web"), {"spec": spec})
    await asyncio.sleep(30)
    assert progressing(fake_apiserver)["reason"] != "NewReplicaSetAvailable"
    await asyncio.sleep(60)
    assert progressing(fake_apiserver)["reason"] == "ProgressDeadlineExceeded"
