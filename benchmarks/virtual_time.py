"""CPU of clusters in virtual time: an idle day, and a week of a CronJob that runs each minute.

    python benchmarks/virtual_time.py [--nodes 1000] [--days 1] [--cron-days 7]

Prints one JSON document: seconds of CPU after the start, and writes of objects.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any

from kubeloop.testing.in_memory import memory_cluster
from kubeloop.testing.virtual_time import VirtualClock, run

DAY_SECONDS = 86_400.0
_POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "batch:1"}]}
CRON_JOB = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "tick"},
    "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": _POD}}}},
}


async def _measure(nodes: int, days: float, manifest: dict[str, Any] | None) -> dict[str, float]:
    async with memory_cluster(clock=VirtualClock(), nodes=nodes) as cluster:
        if manifest is not None:
            await cluster.apply(manifest)
        began, revision = time.process_time(), cluster.api.store.revision
        await asyncio.sleep(days * DAY_SECONDS)
        return {
            "nodes": nodes,
            "days": days,
            "cpu_seconds": round(time.process_time() - began, 2),
            "writes": cluster.api.store.revision - revision,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--days", type=float, default=1.0)
    parser.add_argument("--cron-days", type=float, default=7.0)
    options = parser.parse_args()
    results = {"idle": run(_measure(options.nodes, options.days, None))}
    if options.cron_days:
        results["cron_job"] = run(_measure(3, options.cron_days, CRON_JOB))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
