"""The Deployment and ReplicaSet controllers with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.deployment.deployment_controller import DeploymentController
from kubeloop.controllers.deployment.replica_sets import ROLLBACK_TO
from kubeloop.controllers.replicaset.replica_set_controller import ReplicaSetController
from kubeloop.kube.objects.resources import DEPLOYMENTS, REPLICA_SETS
from support.apiserver.faulty_transport import SentRequest, WatchFault

pytestmark = pytest.mark.virtual_time


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
