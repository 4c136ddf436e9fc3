#!/usr/bin/env python3
"""Pods per second that kube-apiserver creates and binds for a plain client: the limit of any control plane.

    KUBEBUILDER_ASSETS=DIR .venv/bin/python benchmarks/pod_limit.py [--pods N] [--nodes N] [--concurrent N] [--events]

The client sends what the pods of one ReplicaSet need: for each pod a create and a bind request, with --events also its
event Scheduled. It decides nothing and reads nothing but responses; one watch on pods is open, as that of a control
plane. The servers are those of `compare_with_kubernetes`, whose pods/s are to be compared with these.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

import uvloop
from pod_load import create_nodes, deployment
from scheduler_perf.figures import cpu_seconds

from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.transport import HttpRequest
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.resources import EVENTS, NAMESPACES, PODS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.comparison.real_apiserver import RealApiServer, real_apiserver, why_missing

LOAD = "load"
NAMES = {"namespace": LOAD, "uid": "5c0e0a52-3bb6-4c1e-8f4e-4b6d1a3c2b11"}
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": NAMES["uid"], "controller": True}
SERVER_FLAGS = {"max-requests-inflight": "4000", "max-mutating-requests-inflight": "4000"}


async def run_pod(client: ApiClient, number: int, node: str, *, with_event: bool) -> None:
    name = f"web-{number}"
    metadata = {"name": name, "labels": {"app": "web", "pod-template-hash": "5d9c7b6f4d"}, "ownerReferences": [OWNER]}
    spec = deployment("web", 1)["spec"]["template"]["spec"]
    await client.create_raw(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, LOAD)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": node},
    }
    await client.create_raw(PODS, binding, LOAD, name=name, subresource="binding")
    if with_event:
        event = {
            "metadata": {"name": f"{name}.{number:x}", "namespace": LOAD},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": name, **NAMES},
            "reason": "Scheduled",
            "message": f"Successfully assigned {LOAD}/{name} to {node}",
            "type": "Normal",
        }
        await client.create_raw(EVENTS, event, LOAD)


async def read_pods(client: ApiClient) -> None:
    target = "/api/v1/pods?watch=1&resourceVersion=0"
    async with client.transport.stream(HttpRequest("GET", target, {"accept": "application/json"})) as response:
        async for _ in response.chunks:
            pass


async def main(options: argparse.Namespace, server: RealApiServer) -> None:
    transport = await connect(str(server.kubeconfig), None)
    client = ApiClient(transport, clock=SystemClock(), rng=random.Random(), user_agent="pod_limit")
    await create_nodes(client, options.nodes)
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LOAD}})
    await asyncio.sleep(options.settle)
    numbers = iter(range(options.pods))

    async def worker() -> None:
        for number in numbers:
            await run_pod(client, number, f"bench-{number % options.nodes:05}", with_event=options.events)

    assert server.apiserver is not None
    pid = server.apiserver.pid
    watching = asyncio.create_task(read_pods(client))
    cpu, own_cpu, began = cpu_seconds(pid), time.process_time(), time.perf_counter()
    async with asyncio.TaskGroup() as workers:
        for _ in range(options.concurrent):
            workers.create_task(worker())
    seconds = time.perf_counter() - began
    server_milliseconds, own_milliseconds = (
        used / options.pods * 1000 for used in (cpu_seconds(pid) - cpu, time.process_time() - own_cpu)
    )
    watching.cancel()
    await client.close()
    print(
        f"{options.pods / seconds:.0f} pods/s; ms of CPU per pod: {server_milliseconds:.2f} of kube-apiserver,"
        f" {own_milliseconds:.2f} of the client"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--concurrent", type=int, default=32, help="pods at the same time")
    parser.add_argument("--settle", type=float, default=3.0, help="seconds before the load")
    parser.add_argument("--events", action="store_true", help="create the event Scheduled of each pod")
    arguments = parser.parse_args()
    if (reason := why_missing("etcd", "kube-apiserver")) is not None:
        sys.exit(f"error: {reason}")
    with tempfile.TemporaryDirectory() as folder, real_apiserver(Path(folder), SERVER_FLAGS) as started:
        uvloop.run(main(arguments, started))
