#!/usr/bin/env python3
"""Create and bind the pods of Deployments, and send their events, without a decision: the limit of a control plane.

    .venv/bin/python benchmarks/pod_limit.py KUBECONFIG      # the side `limit` of compare_with_kubernetes

Until SIGTERM, for each Deployment, sends what each of its pods needs of a ReplicaSet controller and a scheduler: a
create request, a bind request and the event Scheduled. One watch on pods is open, as that of a control plane.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from typing import Any

import uvloop

from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.transport import HttpRequest
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.resources import DEPLOYMENTS, EVENTS, NODES, PODS


async def run_pod(client: ApiClient, deployment: dict[str, Any], number: int, node: str) -> None:
    names = {"namespace": deployment["metadata"]["namespace"], "uid": deployment["metadata"]["uid"]}
    name = f"{deployment['metadata']['name']}-{number}"
    # any owner: a pod without one is cheaper for kube-apiserver
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": names["uid"], "controller": True}
    labels = {**deployment["spec"]["template"]["metadata"]["labels"], "pod-template-hash": "5d9c7b6f4d"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
        "spec": deployment["spec"]["template"]["spec"],
    }
    await client.create_raw(PODS, pod, names["namespace"])
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": node},
    }
    await client.create_raw(PODS, binding, names["namespace"], name=name, subresource="binding")
    event = {
        "metadata": {"name": f"{name}.{number:x}", "namespace": names["namespace"]},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": name, **names},
        "reason": "Scheduled",
        "message": f"Successfully assigned {names['namespace']}/{name} to {node}",
        "type": "Normal",
    }
    await client.create_raw(EVENTS, event, names["namespace"])


async def run_pods(client: ApiClient, deployment: dict[str, Any], nodes: list[str], concurrent: int) -> None:
    numbers = iter(range(deployment["spec"]["replicas"]))

    async def worker() -> None:
        for number in numbers:
            await run_pod(client, deployment, number, nodes[number % len(nodes)])

    async with asyncio.TaskGroup() as workers:
        for _ in range(concurrent):
            workers.create_task(worker())


async def read_pods(client: ApiClient) -> None:
    target = "/api/v1/pods?watch=1&resourceVersion=0"
    async with client.transport.stream(HttpRequest("GET", target, {"accept": "application/json"})) as response:
        async for _ in response.chunks:
            pass


async def main(options: argparse.Namespace) -> None:
    transport = await connect(options.kubeconfig, None)
    client = ApiClient(transport, clock=SystemClock(), rng=random.Random(), user_agent="pod_limit")
    nodes = [node.metadata.name for node in (await client.list(NODES)).items]
    async with asyncio.TaskGroup() as group:
        group.create_task(read_pods(client))
        async with client.watch(DEPLOYMENTS, resource_version="0") as events:
            async for event in events:
                if event.type == "ADDED":
                    metadata = event.object.metadata
                    deployment = await client.get_raw(DEPLOYMENTS, metadata.name, metadata.namespace)
                    group.create_task(run_pods(client, deployment, nodes, options.concurrent))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kubeconfig")
    parser.add_argument("--concurrent", type=int, default=32, help="pods of a Deployment at the same time")
    uvloop.run(main(parser.parse_args()))
