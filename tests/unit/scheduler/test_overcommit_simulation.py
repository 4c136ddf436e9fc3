"""No node is overcommitted when bindings are delayed, lost or rejected (seeded simulation)."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kubeloop.kube.client.transport import TransportError
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import PODS
from kubeloop.scheduler.cache.node_info import NodeInfo
from support.apiserver.faulty_transport import injected_error

pytestmark = pytest.mark.virtual_time


def overcommitted(cluster: Any) -> list[str]:
    """Return the nodes whose pods exceed allocatable resources or share a host port, from the API server's objects."""
    overcommitted_nodes = []
    pods: list[Pod] = cluster.pods()
    for node in cluster.nodes():
        pods_on_node = [pod for pod in pods if pod.spec.node_name == node.metadata.name]
        info = NodeInfo.of(node, *pods_on_node)
        if len(pods_on_node) > info.allocatable["pods"] or info.requested.get("cpu", 0) > info.allocatable["cpu"]:
            overcommitted_nodes.append(node.metadata.name)
        ports = [port for pod in info.pods.values() for port in pod.host_ports]
        if len(ports) != len(set(ports)):
            overcommitted_nodes.append(node.metadata.name)
    return overcommitted_nodes


@pytest.mark.parametrize("seed", range(20))
async def test_no_node_is_overcommitted(cluster, scheduling, seed):
    rng = random.Random(seed)
    late_requests: list[asyncio.Task[None]] = []

    async def disturb_binding(key: str, node: str) -> None:
        await asyncio.sleep(rng.choice([0, 0.01, 0.5]))
        draw = rng.random()
        if draw < 0.1:
            raise injected_error(500)
        if draw < 0.15:
            raise TransportError("no connection", request_sent=False)
        if draw < 0.25:
            # The request arrives after the client has given up.
            namespace, name = key.split("/")
            uid = cluster.stored_pod(key)["metadata"]["uid"]
            binding = {"metadata": {"name": name, "uid": uid}, "target": {"name": node}}

            async def bind_late() -> None:
                await asyncio.sleep(rng.choice([0.1, 2]))
                cluster.server.api("POST", PODS.path(namespace, name, "binding"), binding)

            late_requests.append(asyncio.create_task(bind_late()))
            raise TransportError("the response was lost", request_sent=True)
        if draw < 0.35:
            cluster.lost_responses += 1

    cluster.before_bind = disturb_binding
    for number in range(6):
        cluster.node(f"n{number}", cpu=rng.choice(["1", "2"]), pods=rng.choice(["2", "4"]))
    async with scheduling(class_cache=bool(seed % 2)) as scheduler:
        for number in range(40):
            ports = [{"containerPort": 80, "hostPort": 80}] if rng.random() < 0.2 else []
            container = {
                "name": "c",
                "image": "i",
                "ports": ports,
                "resources": {"requests": {"cpu": f"{rng.choice([100, 300, 700])}m"}},
            }
            cluster.pod(f"p{number}", containers=[container], priority=rng.randrange(3))
            await asyncio.sleep(rng.choice([0, 0.05, 1]))
            bound = [pod for pod in cluster.pods() if pod.spec.node_name]
            if bound and rng.random() < 0.2:
                cluster.delete_pod(rng.choice(bound).key)
            assert overcommitted(cluster) == [], f"seed {seed}, pod {number}"
        await asyncio.sleep(200)
        assert overcommitted(cluster) == [], f"seed {seed}"
        scheduler.cache.check()
        scheduler.queue.check()
        assert scheduler.cache.assumed_pods() == []
        assert scheduler.queue.in_flight.keys() == []
        waiting = [pod for pod in cluster.pods() if not pod.spec.node_name]
        for pod in waiting:
            assert scheduler.queue.get(pod.key) is not None, f"seed {seed}: {pod.key} is lost"
        assert len(cluster.bindings) == len(set(cluster.bindings))
    await asyncio.gather(*late_requests)
