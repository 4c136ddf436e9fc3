"""API writes of a rollout by kind, for increasing numbers of replicas.

    .venv/bin/python benchmarks/rollout_writes.py [REPLICAS ...]

Runs the Deployment and ReplicaSet controllers against the fake API server of the simulation tests, in virtual time:
create a Deployment, wait until it is complete, change its image, wait again. Prints the writes of the rollout as a
table for benchmarks/README.md, and its virtual and real seconds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from kubeloop.kube.objects.resources import DEPLOYMENTS
from kubeloop.testing import virtual_time
from support.simulation.rollout_simulation import RolloutSimulation, SimulationSettings, deployment

KINDS = (
    "create pods",
    "delete pods",
    "create replicasets",
    "scale replicasets",
    "annotations replicasets",
    "status replicasets",
    "status deployments",
)


async def complete(cluster: RolloutSimulation, replicas: int) -> None:
    while True:
        await asyncio.sleep(0.5)
        web = cluster.get(DEPLOYMENTS, "web")
        assert web is not None
        status = web["status"]
        if (
            status.get("observedGeneration") == web["metadata"]["generation"]
            and status.get("updatedReplicas") == status.get("availableReplicas") == status.get("replicas") == replicas
            and status.get("terminatingReplicas") == 0
        ):
            return


async def rollout(replicas: int) -> tuple[Counter[str], float]:
    """Return the writes of one rollout, and its virtual seconds."""
    pace = SimulationSettings(request=0.01, watch=0.02, start=4.0, stop=2.0)
    cluster = RolloutSimulation(1, pace)
    async with asyncio.TaskGroup() as tasks:
        control_plane_task = tasks.create_task(cluster.run())
        cluster.apply(DEPLOYMENTS, deployment(replicas=replicas))
        await complete(cluster, replicas)
        cluster.writes.clear()
        began = asyncio.get_running_loop().time()
        cluster.apply(DEPLOYMENTS, deployment(replicas=replicas, image="app:2"))
        await complete(cluster, replicas)
        seconds = asyncio.get_running_loop().time() - began
        control_plane_task.cancel()
    return cluster.writes, seconds


def main() -> None:
    sizes = [int(size) for size in sys.argv[1:]] or [500, 1000, 5000]
    print(f"| replicas | {' | '.join(KINDS)} | all | per replica | virtual s | real s |")
    print("|---" * (len(KINDS) + 5) + "|")
    for replicas in sizes:
        began = time.perf_counter()
        writes, seconds = virtual_time.run(rollout(replicas))
        total = writes.total()
        counts = " | ".join(str(writes[kind]) for kind in KINDS)
        took = f"{seconds:.0f} | {time.perf_counter() - began:.0f}"
        print(f"| {replicas} | {counts} | {total} | {total / replicas:.2f} | {took} |", flush=True)


if __name__ == "__main__":
    main()
