"""CPU of one reconcile of a large ReplicaSet: without changes, and choosing the Pods to delete.

    .venv/bin/python benchmarks/replicaset_reconcile.py [PODS ...]

The ReplicaSet controller alone, with caches filled directly, without an API server: a Deployment's new and old
ReplicaSet of PODS Pods each, on PODS / 10 nodes, ready for about an hour, some with restarts. Choosing is synchronous:
it blocks the event loop for its whole duration. CPU milliseconds, best of 7.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from kubeloop.controllers.replicaset.replica_plan import plan_replicas
from kubeloop.controllers.replicaset.replica_set_controller import BURST_REPLICAS, ReplicaSetController
from kubeloop.controllers.runtime.owners.owner_references import controller_index_key
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.api_types import Pod, ReplicaSet, convert
from kubeloop.kube.objects.resources import PODS, REPLICA_SETS
from support.apiserver.fake_apiserver import FakeApiServer
from support.simulation.set_clock import SetClock

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
REPEATS = 7


def replica_set(name: str, pods: int) -> dict[str, Any]:
    labels = {"app": "web", "pod-template-hash": name}
    owner = {"kind": "Deployment", "apiVersion": "apps/v1", "name": "web", "uid": "web", "controller": True}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "generation": 1,
            "resourceVersion": "1",
            "ownerReferences": [owner],
        },
        "spec": {"replicas": pods, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}},
        "status": {
            "replicas": pods,
            "fullyLabeledReplicas": pods,
            "readyReplicas": pods,
            "availableReplicas": pods,
            "terminatingReplicas": 0,
            "observedGeneration": 1,
        },
    }


def pod(number: int, rs: dict[str, Any], nodes: int, rng: random.Random) -> dict[str, Any]:
    created = NOW - timedelta(seconds=3600 + rng.randrange(60))
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(created + timedelta(seconds=3))}
    name = rs["metadata"]["name"]
    return {
        "metadata": {
            "name": f"{name}-{number:05d}",
            "namespace": "default",
            "uid": f"{rng.getrandbits(64):016x}",
            "resourceVersion": str(number + 2),
            "creationTimestamp": rfc3339(created),
            "labels": rs["spec"]["selector"]["matchLabels"],
            "ownerReferences": [{"kind": "ReplicaSet", "name": name, "uid": name, "controller": True}],
        },
        "spec": {"nodeName": f"node-{rng.randrange(nodes)}", "containers": []},
        "status": {
            "phase": "Running",
            "conditions": [ready],
            "containerStatuses": [{"name": "main", "restartCount": int(rng.random() < 0.05)}],
        },
    }


def best_ms(work: Callable[[], object]) -> float:
    """Return the CPU milliseconds of the fastest of REPEATS runs."""
    spent = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return min(spent) * 1000


async def measure(pods: int) -> tuple[float, float]:
    """Return the CPU milliseconds of a reconcile without changes, and of choosing the Pods of one burst."""
    rng = random.Random(1)
    server = FakeApiServer(clock=SetClock(NOW))
    controller = ReplicaSetController(server.context)
    for name in ("new", "old"):
        rs = replica_set(name, pods)
        server.informers.informer(REPLICA_SETS).apply("ADDED", convert(ReplicaSet, rs), arrived_ns=0)
        for number in range(pods):
            server.informers.informer(PODS).apply(
                "ADDED", convert(Pod, pod(number, rs, max(1, pods // 10), rng)), arrived_ns=0
            )

    def reconcile() -> None:
        coroutine = controller.reconcile("default/new")
        try:
            coroutine.send(None)
        except StopIteration:
            return
        raise AssertionError("a reconcile without changes sent a request")

    smaller = convert(ReplicaSet, replica_set("new", max(0, pods - BURST_REPLICAS)))
    groups = {**controller._groups.get(controller_index_key(smaller))}

    def choose() -> None:
        plan = plan_replicas(
            smaller, groups, lambda: controller.related_pods_per_node(smaller), NOW, burst=BURST_REPLICAS
        )
        assert len(plan.delete) == min(BURST_REPLICAS, pods)

    return best_ms(reconcile), best_ms(choose)


def main() -> None:
    print("| pods | no changes, ms | choosing 500 to delete, ms |")
    print("|---|---|---|")
    for pods in [int(argument) for argument in sys.argv[1:]] or [500, 5000]:
        nothing, choosing = asyncio.run(measure(pods))
        print(f"| {pods:,} | {nothing:.3f} | {choosing:.1f} |")


if __name__ == "__main__":
    main()
