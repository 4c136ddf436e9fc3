"""State of objects for the web page and `kubeloop top`, from a cluster in memory."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from kubeloop.kube.clock import SystemClock
from kubeloop.kube.errors import ServerUnreachable
from kubeloop.kube.objects.resources import DEPLOYMENTS, NODES
from kubeloop.kube.user_error import UserError
from kubeloop.process.endpoint.object_pages import OBJECTS_PATH, add_object_pages
from kubeloop.process.endpoint.server import EndpointServer
from kubeloop.testing.in_memory import memory_cluster
from support.objects.manifests import deployment

pytestmark = pytest.mark.virtual_time


def pages_of(cluster):
    endpoint = EndpointServer(CollectorRegistry(), clock=SystemClock())
    add_object_pages(endpoint, cluster.plane.client)
    return lambda name, **query: endpoint._pages[f"{OBJECTS_PATH}/{name}"](query)


async def test_pod_has_conditions_containers_events_and_a_log():
    async with memory_cluster(nodes=1) as cluster:
        await cluster.apply(deployment(replicas=1))
        await cluster.until(lambda: [pod.status.phase for pod in cluster.seen_pods()] == ["Running"])
        await asyncio.sleep(5)  # until the events are written
        (pod,) = cluster.seen_pods()
        page = pages_of(cluster)
        name = pod.metadata.name
        document = await page("pod", namespace="default", pod=name)
        assert {condition["type"] for condition in document["conditions"]} >= {"Ready", "PodScheduled"}
        (container,) = document["containers"]
        assert (container["state"], container["ready"], container["restarts"]) == ("running", True, 0)
        assert {"Scheduled", "Started"} <= {event["reason"] for event in document["events"]}
        times = [event["time"] for event in document["events"]]
        assert times == sorted(times, reverse=True)
        assert document["eventsProblem"] == ""
        assert isinstance((await page("logs", namespace="default", pod=name, container=container["name"]))["log"], str)
        with pytest.raises(UserError, match='pods "nope" not found'):
            await page("pod", namespace="default", pod="nope")


async def test_owner_has_its_progress_and_problems():
    async with memory_cluster(nodes=1) as cluster:
        await cluster.apply(deployment(replicas=2))
        await cluster.until(lambda: getattr(cluster.seen_deployment("web"), "status", None) is not None)
        await cluster.until(lambda: cluster.seen_deployment("web").status.available_replicas == 2)
        page = pages_of(cluster)
        done = {"state": "2 of 2 available", "complete": True, "problems": []}
        assert await page("owner", namespace="default", owner="deployment/web") == done
        (replica_set,) = {owner.name for pod in cluster.seen_pods() for owner in pod.metadata.owner_references}
        assert await page("owner", namespace="default", owner=f"replicaset/{replica_set}") == done
        late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
        status = cluster.api.store.get(DEPLOYMENTS, "default", "web")
        cluster.api.store.update(DEPLOYMENTS, {**status, "status": {**status["status"], "conditions": [late]}})
        problems = (await page("owner", namespace="default", owner="deployment/web"))["problems"]
        assert problems == ["ProgressDeadlineExceeded: timed out"]
        unknown = await page("owner", namespace="default", owner="workflow/x")
        assert unknown == {"state": "", "complete": None, "problems": []}


async def test_nodes_have_their_stage_and_the_requests_of_their_pods():
    async with memory_cluster(nodes=2) as cluster:
        await cluster.apply(deployment(replicas=3))
        await cluster.until(lambda: sum(bool(pod.spec.node_name) for pod in cluster.seen_pods()) == 3)
        cordoned = cluster.api.store.get(NODES, "", "node-1")
        cluster.api.store.update(NODES, {**cordoned, "spec": {**cordoned["spec"], "unschedulable": True}})
        page = pages_of(cluster)
        nodes = {node["name"]: node for node in await page("nodes")}
        assert {name: node["stage"] for name, node in nodes.items()} == {"node-0": "ready", "node-1": "cordoned"}
        assert nodes["node-0"]["allocatable"]["cpu"] == 8000
        assert nodes["node-0"]["created"] <= nodes["node-0"]["since"]
        requested = [(await page("nodes", node=name))[0]["requested"] for name in nodes]
        assert sum(counts.get("pods", 0) for counts in requested) == 3
        assert await page("nodes") is await page("nodes")  # one list serves requests that follow each other


class UnreachableServer:
    async def list_all(self, resource):
        raise ServerUnreachable("connection refused", maybe_applied=False)


async def test_unreachable_api_server_is_an_error():
    endpoint = EndpointServer(CollectorRegistry(), clock=SystemClock())
    add_object_pages(endpoint, UnreachableServer())
    with pytest.raises(UserError, match="the API server does not respond: connection refused"):
        await endpoint._pages[f"{OBJECTS_PATH}/nodes"]({})
