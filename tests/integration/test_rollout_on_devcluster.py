"""Deployment and ReplicaSet controllers with the development API server, in memory and virtual time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.deployment.deployment_controller import DeploymentController
from kubeloop.controllers.replicaset.replica_set_controller import ReplicaSetController
from kubeloop.controllers.replicaset.replication_controllers import REPLICA_SET, REPLICATION_CONTROLLER
from kubeloop.devcluster.kubelet.nodes.simulated_nodes import SimulatedNodes
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.informers.shared_informer import ResourceEventHandlerFuncs
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.objects.resources import DEPLOYMENTS, NODES, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS
from kubeloop.testing.virtual_time import VirtualClock
from support.apiserver.fake_apiserver import FakeApiServer
from support.objects.manifests import deployment
from support.traces.disabled_recorders import DisabledReconcileRecorder

pytestmark = pytest.mark.virtual_time


async def test_deployment_rolls_out_back_and_replaces_released_pods(clock: VirtualClock):
    rng = random.Random(1)
    server = FakeApiServer(clock=clock)
    client, informers = server.client, server.informers
    context = structs.replace(server.context, traces=DisabledReconcileRecorder())
    parts: list[Any] = [DeploymentController(context)]
    parts += [ReplicaSetController(context, variant) for variant in (REPLICA_SET, REPLICATION_CONTROLLER)]
    nodes = SimulatedNodes(server.store, NodeSettings(count=3), clock=clock, rng=rng)
    nodes.register()
    names = [node["metadata"]["name"] for node in server.store.list(NODES)]

    def sizes() -> dict[str, int]:
        return {
            rs["metadata"]["annotations"]["deployment.kubernetes.io/revision"]: rs["spec"]["replicas"]
            for rs in server.store.list(REPLICA_SETS)
        }

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(part.run()) for part in (server.api.server, informers, nodes, *parts)]

        async def bind(pod: Any) -> None:
            target = {"kind": "Node", "name": rng.choice(names)}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.metadata.name}, "target": target}
            await client.create_raw(PODS, body, pod.metadata.namespace, name=pod.metadata.name, subresource="binding")

        def bind_new(pod: Any, initial: bool) -> None:
            tasks.create_task(bind(pod))

        informers.informer(PODS).add_handler(ResourceEventHandlerFuncs(on_add=bind_new))
        await informers.wait_synced()

        await client.create(DEPLOYMENTS, deployment(replicas=4), "default")
        await asyncio.sleep(60.0)
        status = server.store.list(DEPLOYMENTS)[0]["status"]
        assert (status["replicas"], status["availableReplicas"]) == (4, 4)
        assert sizes() == {"1": 4}

        changed = {"spec": deployment(replicas=4, image="app:2")["spec"]}
        await client.patch(DEPLOYMENTS, "web", changed, PatchType.STRATEGIC, "default")
        await asyncio.sleep(60.0)
        assert sizes() == {"1": 0, "2": 4}

        annotations = {"deprecated.deployment.rollback.to": "1"}
        await client.patch(DEPLOYMENTS, "web", {"metadata": {"annotations": annotations}}, PatchType.MERGE, "default")
        await asyncio.sleep(60.0)
        assert sizes() == {"2": 0, "3": 4}
        (web,) = server.store.list(DEPLOYMENTS)
        assert web["spec"]["template"]["spec"]["containers"][0]["image"] == "app:1"
        assert "deprecated.deployment.rollback.to" not in web["metadata"]["annotations"]
        assert web["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"

        released = server.store.list(PODS)[0]["metadata"]["name"]
        await client.patch(PODS, released, {"metadata": {"labels": {"app": "mine"}}}, PatchType.MERGE, "default")
        await asyncio.sleep(60.0)
        pods = {pod["metadata"]["name"]: pod for pod in server.store.list(PODS)}
        assert len(pods) == 5
        assert not pods[released]["metadata"].get("ownerReferences")

        rc = {
            "apiVersion": "v1",
            "kind": "ReplicationController",
            "metadata": {"name": "guestbook"},
            "spec": {"replicas": 2, "template": deployment("guestbook")["spec"]["template"]},
        }
        await client.create(REPLICATION_CONTROLLERS, rc, "default")
        await asyncio.sleep(60.0)
        assert server.store.list(REPLICATION_CONTROLLERS)[0]["status"]["availableReplicas"] == 2

        versions = server.store.list(DEPLOYMENTS)[0]["metadata"]["resourceVersion"]
        for part, key in ((parts[0], "default/web"), (parts[2], "default/guestbook")):
            part.queue.add(key)
        await asyncio.sleep(60.0)
        assert server.store.list(DEPLOYMENTS)[0]["metadata"]["resourceVersion"] == versions
        for task in running:
            task.cancel()
