#!/usr/bin/env python3
"""Lag of the event loop while a search for devices explodes until filterTimeout.

    .venv/bin/python benchmarks/device_search_lag.py [--seconds 30] [--pods 20] [--devices 32]

`kubeloop up` with one node of 31 equal devices. A claim for 32 of them makes the search try all combinations, in a
thread, until filterTimeout; then the pod is retried. Meanwhile, a Deployment is scaled to --pods and to 0 repeatedly,
so that the event loop has other work. The lag is that of the metric kubeloop_event_loop_lag_seconds of the process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop
from installed import environment
from scheduler_perf.figures import LOOP_LAG, Distribution, Metrics, cpu_seconds

from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.resources import DEPLOYMENTS, DEVICE_CLASSES, PODS, RESOURCE_CLAIMS

JSON = dict[str, Any]
DRIVER, NAMESPACE = "gpu.example.com", "default"
DEVICES = f"- {{driver: {DRIVER}, devices: [{{name: gpu, count: 31}}]}}\n"


def claim(name: str, count: int) -> JSON:
    request = {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": count}}
    return _object("ResourceClaim", "resource.k8s.io/v1", name, {"devices": {"requests": [request]}})


def pod(name: str) -> JSON:
    spec = {"containers": [_container()], "resourceClaims": [{"name": "gpus", "resourceClaimName": name}]}
    return _object("Pod", "v1", name, spec)


def deployment(replicas: int) -> JSON:
    template = {"metadata": {"labels": {"app": "load"}}, "spec": {"containers": [_container()]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "load"}}, "template": template}
    return _object("Deployment", "apps/v1", "load", spec)


def _container() -> JSON:
    return {"name": "main", "image": "app:1"}


def _object(kind: str, version: str, name: str, spec: JSON) -> JSON:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


@contextlib.contextmanager
def kubeloop_up(folder: Path) -> Iterator[tuple[str, int]]:
    """Run `kubeloop up`; yield the URL of its endpoint, and its PID. Its kubeconfig is in `folder`."""
    (folder / "devices.yaml").write_text(DEVICES)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(sys.executable, "-m", "kubeloop", "up", "--nodes", "1", "--devices", "devices.yaml"),
        *("--kubeconfig", "kubeconfig", "--endpoint-port", str(port)),
    ]
    variables = environment() | {"XDG_RUNTIME_DIR": str(folder)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, env=variables)
    try:
        while not (folder / "kubeconfig").exists():
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait()


def metrics(endpoint: str) -> Metrics:
    with urllib.request.urlopen(f"{endpoint}/metrics", timeout=60) as response:
        return Metrics.parse(response.read().decode())


async def wait_until_bound(client: ApiClient, name: str) -> None:
    while not (await client.get(PODS, name, NAMESPACE)).spec.node_name:
        await asyncio.sleep(0.1)


async def scale(client: ApiClient, pods: int) -> None:
    """Change the size of the Deployment every second, until cancelled."""
    while True:
        for replicas in (pods, 0):
            await client.patch(DEPLOYMENTS, "load", {"spec": {"replicas": replicas}}, PatchType.MERGE, NAMESPACE)
            await asyncio.sleep(1.0)


async def measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with kubeloop_up(folder) as (endpoint, pid):
            transport = await connect(str(folder / "kubeconfig"), None)
            client = ApiClient(transport, clock=SystemClock(), rng=random.Random(), user_agent="device_search_lag")
            try:
                await client.create(DEVICE_CLASSES, _object("DeviceClass", "resource.k8s.io/v1", "gpu", {}))
                await client.create(RESOURCE_CLAIMS, claim("first", 1), NAMESPACE)
                await client.create(PODS, pod("first"), NAMESPACE)
                await client.create(DEPLOYMENTS, deployment(0), NAMESPACE)
                await asyncio.wait_for(wait_until_bound(client, "first"), 60)
                await client.create(RESOURCE_CLAIMS, claim("exploding", options.devices), NAMESPACE)
                await asyncio.sleep(2.0)
                before, cpu_before, began = metrics(endpoint), cpu_seconds(pid), time.perf_counter()
                await client.create(PODS, pod("exploding"), NAMESPACE)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(options.seconds):
                        await scale(client, options.pods)
                cpu, seconds = cpu_seconds(pid) - cpu_before, time.perf_counter() - began
                after = metrics(endpoint)
            finally:
                await client.close()
    (lag,) = [distribution for (name, _), distribution in after.since(before).items() if name == LOOP_LAG]
    longer = {f"> {limit} ms": round(lag.count - count) for limit, count in _below(lag, 25, 50, 100)}
    quantiles = {name: round(value, 2) for name, value in lag.milliseconds().items()}
    print(json.dumps({"CPU": round(cpu / seconds, 2), "samples": round(lag.count), "lag ms": quantiles, **longer}))


def _below(lag: Distribution, *limits_ms: int) -> Iterator[tuple[int, float]]:
    """Yield each limit with the number of samples up to it."""
    counts = dict(lag.buckets)
    for limit in limits_ms:
        yield limit, counts[limit / 1000]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="duration of the measurement")
    parser.add_argument("--pods", type=int, default=20, help="pods of the Deployment that is scaled up and down")
    parser.add_argument("--devices", type=int, default=32, help="devices of the claim; 1: without a long search")
    uvloop.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
