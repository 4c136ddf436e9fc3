"""CPU of idle simulated nodes: Leases and status reports, in one process.

    python benchmarks/node_heartbeats.py [--nodes 5000] [--seconds 20]

Prints one JSON document: CPU as a share of one core while nothing happens, and the seconds to start them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time

import uvloop

from kubeloop.devcluster.kubelet.nodes.simulated_nodes import SimulatedNodes
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.resources import LEASES


async def measure(nodes: int, seconds: float) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    store = ObjectStore(seconds=loop.time)
    simulated = SimulatedNodes(store, NodeSettings(count=nodes), clock=SystemClock(), rng=random.Random(1))
    before = time.process_time()
    simulated.register()
    task = asyncio.create_task(simulated.run())
    while len(store.table(LEASES)) < nodes:
        await asyncio.sleep(0.01)
    started = time.process_time() - before
    await asyncio.sleep(10.0)  # one period of the leases
    before, revision = time.process_time(), store.revision
    await asyncio.sleep(seconds)
    used, writes = time.process_time() - before, store.revision - revision
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return {
        "nodes": nodes,
        "start_cpu_seconds": round(started, 3),
        "writes_per_second": round(writes / seconds, 1),
        "cpu_percent_of_a_core": round(100 * used / seconds, 2),
        "cpu_microseconds_per_write": round(1e6 * used / max(writes, 1), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    print(json.dumps(uvloop.run(measure(options.nodes, options.seconds))))


if __name__ == "__main__":
    main()
