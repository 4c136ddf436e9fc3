#!/usr/bin/env python3
"""CPU of the allocation of devices: kubeloop and kube-scheduler, each on its own kube-apiserver.

    KUBEBUILDER_ASSETS=DIR .venv/bin/python benchmarks/device_allocation.py    # 1,000 nodes of 8 devices, 1,000 pods
    ... --nodes 200 --pods 500 --rounds 3 --sides kubeloop

DIR holds etcd, kube-apiserver and kube-scheduler. Each pod has a claim for 1 to 8 devices, in turn, that must have the
same value of an attribute. CPU is that of the scheduler's process (/proc), from the first created pod to the last bound
one. Another pod with a claim was scheduled before, so that the informers of claims run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import uvloop
from installed import environment, installed
from pod_load import create_nodes
from scheduler_perf.figures import cpu_seconds, peak_memory_mib

from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.resources import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.comparison.real_apiserver import RealApiServer, real_apiserver, why_missing

JSON = dict[str, Any]
DRIVER, DEVICES_PER_NODE, NAMESPACE = "gpu.example.com", 8, "default"
SERVER_FLAGS = {"max-requests-inflight": "4000", "max-mutating-requests-inflight": "4000"}


def device_class() -> JSON:
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].model == 'a100'"
    return _object("DeviceClass", "gpu", {"selectors": [{"cel": {"expression": expression}}]}, group=True)


def resource_slice(node: str) -> JSON:
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {"model": {"string": "a100"}, "fabric": {"string": node}, "index": {"int": number}},
            "capacity": {"memory": {"value": "40Gi"}},
        }
        for number in range(DEVICES_PER_NODE)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return _object(
        "ResourceSlice", node, {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": devices}, group=True
    )


def claim(name: str, count: int) -> JSON:
    request = {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": count}}
    devices = {"requests": [request], "constraints": [{"matchAttribute": f"{DRIVER}/fabric"}]}
    return _object("ResourceClaim", name, {"devices": devices}, group=True)


def pod(name: str) -> JSON:
    container = {"name": "main", "image": "app:1", "resources": {"claims": [{"name": "gpus"}]}}
    return _object(
        "Pod", name, {"containers": [container], "resourceClaims": [{"name": "gpus", "resourceClaimName": name}]}
    )


def _object(kind: str, name: str, spec: JSON, *, group: bool = False) -> JSON:
    version = "resource.k8s.io/v1" if group else "v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


async def create(client: ApiClient, resource: Resource[Any], bodies: Iterable[JSON], namespace: str = "") -> None:
    """Create objects, 32 at a time, in the given order."""
    remaining = iter(bodies)

    async def worker() -> None:
        for body in remaining:
            await client.create(resource, body, namespace)

    async with asyncio.TaskGroup() as workers:
        for _ in range(32):
            workers.create_task(worker())


async def wait_until_bound(client: ApiClient, count: int) -> None:
    """Wait until this many pods are bound."""
    bound: set[str] = set()
    async with client.watch(PODS, NAMESPACE, resource_version="0") as events:
        async for event in events:
            if event.type in ("ADDED", "MODIFIED") and event.object.spec.node_name:
                bound.add(event.object.metadata.name)
            if len(bound) >= count:
                return


@contextlib.contextmanager
def kubeloop(server: RealApiServer, python: Path) -> Iterator[int]:
    command: list[str | Path] = [
        python,
        "-m",
        "kubeloop",
        "run",
        f"--kubeconfig={server.kubeconfig}",
        "--controllers=scheduler",
    ]
    with (server.folder / "kubeloop.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=server.folder,
            env=environment() | {"XDG_RUNTIME_DIR": str(server.folder)},
        )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def kube_scheduler(server: RealApiServer, _python: Path) -> Iterator[int]:
    flags = ("--leader-elect=false", "--kube-api-qps=100000", "--kube-api-burst=100000")
    yield server.start_component("kube-scheduler", *flags).pid


SIDES = {"kubeloop": kubeloop, "kube-scheduler": kube_scheduler}


async def turn(side: str, options: argparse.Namespace, python: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, real_apiserver(Path(folder), SERVER_FLAGS) as server:
        transport = await connect(str(server.kubeconfig), None)
        client = ApiClient(transport, clock=SystemClock(), rng=random.Random(), user_agent="device_allocation")
        try:
            await create_nodes(client, options.nodes)
            await client.create(DEVICE_CLASSES, device_class())
            nodes = [f"bench-{number:05}" for number in range(options.nodes)]  # the names of create_nodes
            await create(client, RESOURCE_SLICES, map(resource_slice, nodes))
            await create(client, RESOURCE_CLAIMS, [claim("first", 1)], NAMESPACE)
            await create(client, PODS, [pod("first")], NAMESPACE)
            names = [f"pod-{number:05}" for number in range(options.pods)]
            claims = [claim(name, number % DEVICES_PER_NODE + 1) for number, name in enumerate(names)]
            await create(client, RESOURCE_CLAIMS, claims, NAMESPACE)
            with SIDES[side](server, python) as pid:
                async with asyncio.timeout(options.timeout):
                    await wait_until_bound(client, 1)
                    await asyncio.sleep(options.settle)
                    cpu_before, began = cpu_seconds(pid), time.perf_counter()
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(wait_until_bound(client, options.pods + 1))
                        await create(client, PODS, map(pod, names), NAMESPACE)
                seconds, cpu = time.perf_counter() - began, cpu_seconds(pid) - cpu_before
                return {
                    "pods/s": options.pods / seconds,
                    "CPU ms/pod": cpu / options.pods * 1000,
                    "peak MiB": peak_memory_mib(pid),
                }
        finally:
            await client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000, help="number of nodes, of 8 devices each")
    parser.add_argument("--pods", type=int, default=1000, help="number of pods with a claim each")
    parser.add_argument("--rounds", type=int, default=1, help="turns of each side")
    parser.add_argument("--sides", default=",".join(SIDES), help="comma-separated list of sides")
    parser.add_argument("--settle", type=float, default=2.0, help="seconds between the first pod and the load")
    parser.add_argument("--timeout", type=float, default=300.0, help="limit of a turn in seconds")
    options = parser.parse_args()
    if missing := why_missing("kube-scheduler"):
        parser.error(missing)
    sides = options.sides.split(",")
    turns: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    with installed() as python:
        for _ in range(options.rounds):
            for side in sides:
                figures = uvloop.run(turn(side, options, python))
                turns[side].append(figures)
                print(side, {name: round(value, 2) for name, value in figures.items()}, file=sys.stderr)
    for side in sides:
        medians = {name: statistics.median(figures[name] for figures in turns[side]) for name in turns[side][0]}
        print(f"| {side} | " + " | ".join(f"{value:.3g}" for value in medians.values()) + " |")


if __name__ == "__main__":
    main()
