"""A development cluster of 50,000 nodes: a burst of pods, a steady arrival, heartbeats, a restart, memory.

    .venv/bin/python benchmarks/scale.py [--nodes 50000] [--deployments 50] [--replicas 1000] [--rate 200]

The API server with simulated nodes, `kubeloop run` and this process are separate processes. In turn: the pods of all
Deployments are created at once; pods arrive at a steady rate; nothing happens for as long; the Deployments are scaled
to twice their replicas; `kubeloop run` stops, a pod is created, and it starts again. Times come from a watch on pods.
Memory is that of the two processes: resident at each moment, and its peak.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop
from pod_load import Run, deployment, watch
from scheduler_perf.figures import WORST_LOOP_LAG, cpu_seconds, memory_mib
from scheduler_perf.processes import Kubeloop, kubeloop_scheduler

from kubeloop.kube.auth.credentials import connect_with_token
from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS
from kubeloop.process.development_cluster.apiserver_command import api_server_process
from kubeloop.process.development_cluster.apiserver_process import starting_api_server

_TIMEOUT_SECONDS = 600.0
_TICK_SECONDS = 0.05
_SETTLE_SECONDS = 5.0


async def load(client: ApiClient, expected: int, create: Callable[[], Awaitable[None]]) -> dict[str, Any]:
    """Create pods and wait until `expected` pods of the namespace are bound. Return the time and created-to-bound."""
    run = Run(expected=expected)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch(client, "default", run, lambda: 0.0))
        await asyncio.sleep(_SETTLE_SECONDS)
        before, started = len(run.bound), time.perf_counter()
        await create()
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            await run.done.wait()
        seconds = time.perf_counter() - started
        watching.cancel()
    for uid in list(run.bound)[:before]:
        del run.bound[uid]
    rate = round(len(run.bound) / seconds)
    return {"seconds": round(seconds, 1), "podsPerSecond": rate, "createdToBoundMs": run.waits_milliseconds()}


async def create_steadily(client: ApiClient, rate: float, seconds: float) -> None:
    """Create pods without controller at a rate per second."""
    template = deployment("steady", 0)["spec"]["template"]
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            due = started + number // (rate * _TICK_SECONDS) * _TICK_SECONDS
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            pod = {"apiVersion": "v1", "kind": "Pod", **template}
            pod["metadata"] = {**template["metadata"], "name": f"steady-{number}"}
            group.create_task(client.create(PODS, pod, "default"))


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    figures: dict[str, Any] = {"memoryMiB": {}}
    burst = options.deployments * options.replicas
    names = [f"web-{number}" for number in range(options.deployments)]
    token = secrets.token_urlsafe(16)
    folder = tempfile.TemporaryDirectory()
    async with AsyncExitStack() as stack:
        path = Path(stack.enter_context(folder)) / "kubeconfig"
        arguments = [f"--nodes={options.nodes}", f"--kubeconfig={path}"]
        started = time.perf_counter()
        server_process = stack.enter_context(api_server_process(arguments, token=token))
        cluster = await (await stack.enter_async_context(starting_api_server(server_process))).ready()
        server = cluster.process.pid
        figures["serverStartSeconds"] = round(time.perf_counter() - started, 1)
        await asyncio.sleep(_SETTLE_SECONDS)
        client = ApiClient(
            connect_with_token(cluster.ready.plain_server, token), clock=SystemClock(), rng=random.Random()
        )
        stack.push_async_callback(client.close)

        async def start_kubeloop(stack: AsyncExitStack) -> Kubeloop:
            controllers = "deployment,replicaset,scheduler"
            return await stack.enter_async_context(
                kubeloop_scheduler(
                    path,
                    DEFAULT_FEATURE_GATES,
                    config=None,
                    tracing=True,
                    wrap=options.wrap.split(),
                    controllers=controllers,
                )
            )

        def note_memory(moment: str, kubeloop: int) -> None:
            sizes = {"server": memory_mib(server, "VmRSS"), "kubeloop": memory_mib(kubeloop, "VmRSS")}
            figures["memoryMiB"][moment] = {name: round(size) for name, size in sizes.items()}

        async with AsyncExitStack() as first:
            process = await start_kubeloop(first)
            await asyncio.sleep(_SETTLE_SECONDS)
            note_memory("nodes", process.pid)

            async def create_deployments() -> None:
                for name in names:
                    await client.create(DEPLOYMENTS, deployment(name, options.replicas), "default")

            async def scale() -> None:
                for name in names:
                    await client.patch(
                        DEPLOYMENTS, name, {"spec": {"replicas": 2 * options.replicas}}, PatchType.MERGE, "default"
                    )

            cpu = cpu_seconds(process.pid), cpu_seconds(server)
            figures["burst"] = await load(client, burst, create_deployments)
            figures["burst"]["cpuMsPerPod"] = {
                "kubeloop": round((cpu_seconds(process.pid) - cpu[0]) / burst * 1000, 2),
                "server": round((cpu_seconds(server) - cpu[1]) / burst * 1000, 2),
            }
            note_memory(f"{burst} pods", process.pid)
            await asyncio.sleep(_SETTLE_SECONDS)
            steady = int(options.rate * options.seconds)
            figures["steady"] = await load(
                client, burst + steady, lambda: create_steadily(client, options.rate, options.seconds)
            )
            await asyncio.sleep(_SETTLE_SECONDS)
            cpu = cpu_seconds(process.pid), cpu_seconds(server)
            await asyncio.sleep(options.seconds)
            figures["idleCpuPercent"] = {
                "kubeloop": round((cpu_seconds(process.pid) - cpu[0]) / options.seconds * 100, 1),
                "server": round((cpu_seconds(server) - cpu[1]) / options.seconds * 100, 1),
            }
            await load(client, 2 * burst + steady, scale)
            note_memory(f"{2 * burst} pods", process.pid)
            lag = (await process.metrics()).sums.get(WORST_LOOP_LAG, 0.0)
            figures["worstLoopLagMs"] = round(lag * 1000)
            figures["peakMiB"] = {
                "server": round(memory_mib(server, "VmHWM")),
                "kubeloop": round(memory_mib(process.pid, "VmHWM")),
            }
        pod = {"apiVersion": "v1", "kind": "Pod", **deployment("last", 0)["spec"]["template"]}
        pod["metadata"] = {**pod["metadata"], "name": "last"}
        await client.create(PODS, pod, "default")
        started = time.perf_counter()
        async with AsyncExitStack() as second:
            process = await start_kubeloop(second)
            while not (await client.get(PODS, "last", "default")).spec.node_name:
                await asyncio.sleep(0.02)
            figures["startToFirstBoundPodSeconds"] = round(time.perf_counter() - started, 1)
            note_memory("restarted", process.pid)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=50000)
    parser.add_argument("--deployments", type=int, default=50)
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=200.0, help="pods per second of the steady arrival")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of the steady and the idle phase")
    parser.add_argument("--wrap", default="", help="command to run kubeloop with, such as a profiler")
    print(json.dumps(uvloop.run(measure(parser.parse_args())), indent=2))


if __name__ == "__main__":
    main()
