#!/usr/bin/env python3
"""`kubeloop record` beside `kubeloop observe` on a real kube-apiserver: CPU, memory, size; SIGKILL and restarts.

    KUBEBUILDER_ASSETS=DIR .venv/bin/python benchmarks/record.py [--nodes 1000] [--pods 2000] [--rate 20] [--seconds 60]

Both run at the same time while pods are created, bound, started and deleted at the rate. Then the recorder is killed
during further load, continues with --append, and misses changes that the restarted API server no longer has (410).
bytesPerPod: what the file grew by for each pod of the load. lostSeconds: from the last change in the file to the kill.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import uvloop
from peers import NAMESPACE, SERVER_FLAGS, create_cluster, pod
from scheduler_perf.figures import cpu_seconds, peak_memory_mib

from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.resources import PODS
from kubeloop.recording.gzip_lines import GzipLineReader

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.comparison.real_apiserver import RealApiServer, real_apiserver, why_missing
from support.processes.cli_processes import Kubeloop, KubeloopProcess

JSON = dict[str, Any]
STEP_SECONDS = (0.2, 1.0, 5.0)  # from bound to started, to ready, to deleted


async def load(kubeconfig: str, prefix: str, nodes: list[JSON], rate: float, seconds: float) -> int:
    """Start and delete pods at that rate; return their number."""
    client = ApiClient(await connect(kubeconfig, None), clock=SystemClock(), rng=random.Random(1))

    async def live(number: int) -> None:
        name, node = f"{prefix}-{number}", nodes[number % len(nodes)]["metadata"]["name"]
        await client.create(PODS, pod(name, node), NAMESPACE)
        for pause, phase, ready in zip(
            STEP_SECONDS, ("Pending", "Running", "Running"), ("False", "False", "True"), strict=True
        ):
            conditions = [{"type": type_, "status": ready} for type_ in ("Ready", "ContainersReady")]
            status = {
                "status": {"phase": phase, "conditions": [*conditions, {"type": "PodScheduled", "status": "True"}]}
            }
            await client.patch(PODS, name, status, PatchType.MERGE, NAMESPACE, subresource="status")
            await asyncio.sleep(pause)
        await client.delete(PODS, name, NAMESPACE, grace_period_seconds=0)

    try:
        began, number = time.monotonic(), 0
        async with asyncio.TaskGroup() as pods:
            while (elapsed := time.monotonic() - began) < seconds:
                while number < elapsed * rate:
                    pods.create_task(live(number))
                    number += 1
                await asyncio.sleep(0.02)
        return number
    finally:
        await client.close()


def marks(path: Path) -> Counter[str]:
    lines = [json.loads(line) for line in GzipLineReader(path)]
    return Counter(line["mark"] for line in lines if "mark" in line)


def last_change(path: Path) -> float:
    """Return the time of the last line that is readable, in seconds since the epoch."""
    from kubeloop.kube.values.times import parse_time

    lines = [json.loads(line) for line in GzipLineReader(path)]
    return parse_time(lines[0]["start"]).timestamp() + float(lines[-1]["t"])


def measure(options: argparse.Namespace, folder: Path, server: RealApiServer) -> None:
    kubeconfig = str(server.kubeconfig)
    nodes = uvloop.run(create_cluster(kubeconfig, options.nodes, options.pods))
    path, command = folder / "day.kubeloop", Kubeloop(folder)
    record, observe = ("record", path, f"--kubeconfig={kubeconfig}"), ("observe", f"--kubeconfig={kubeconfig}")
    with command.running(*observe) as observing, command.running(*record) as recording:
        observing.wait_for("endpoint")
        recording.wait_for("recording")
        time.sleep(5.0)
        processes = {"record": recording.process.pid, "observe": observing.process.pid}
        at_start, size = {name: cpu_seconds(pid) for name, pid in processes.items()}, path.stat().st_size
        pods = uvloop.run(load(kubeconfig, "load", nodes, options.rate, options.seconds))
        time.sleep(2.0)
        for name, pid in processes.items():
            used = cpu_seconds(pid) - at_start[name]
            figures = {"startCpuSeconds": at_start[name], "cpuMillisecondsPerPod": round(used / pods * 1000, 2)}
            print(json.dumps({name: {**figures, "peakMiB": round(peak_memory_mib(pid))}}), flush=True)
        grown = path.stat().st_size - size
        print(json.dumps({"pods": pods, "firstListBytes": size, "bytesPerPod": round(grown / pods)}), flush=True)
        lost = kill_during_load(recording, path, kubeconfig, nodes, options.rate)
    with command.running(*record, "--append") as recording:
        recording.wait_for("recording")
        recording.process.send_signal(signal.SIGSTOP)
        restart(server)  # its watches end, before the changes
        uvloop.run(load(kubeconfig, "missed", nodes, options.rate, 3.0))
        restart(server)  # which has forgotten them
        recording.process.send_signal(signal.SIGCONT)
        time.sleep(15.0)
    print(json.dumps({"lostSeconds": round(lost, 2), "marks": marks(path)}), flush=True)


def restart(server: RealApiServer) -> None:
    server.kill_apiserver()
    server.start_apiserver()


def kill_during_load(recording: KubeloopProcess, path: Path, kubeconfig: str, nodes: list[JSON], rate: float) -> float:
    """Kill the recorder during the load; return how much of it is lost (seconds)."""

    async def kill() -> float:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load(kubeconfig, "killed", nodes, rate, 6.0))
            await asyncio.sleep(4.5)
            recording.process.send_signal(signal.SIGKILL)
            return time.time()

    return uvloop.run(kill()) - last_change(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=2_000, help="pods that run at the start")
    parser.add_argument("--rate", type=float, default=20.0, help="pod starts per second")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    if (reason := why_missing("etcd", "kube-apiserver")) is not None:
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with real_apiserver(folder / "server", SERVER_FLAGS) as server:
            measure(options, folder, server)


if __name__ == "__main__":
    main()
