"""CPU time of one scheduling cycle, from the snapshot update to the selected node, without an API server.

    python benchmarks/scheduler --cycle [--nodes 5000] [--pods 20000] [--deployments 100] [--cycles 300] [--profile]
    python benchmarks/scheduler --cycle --workload NAME

Pods of Deployments (default spread constraints, CPU and memory requests) fill the cluster; then pods are scheduled and
assumed one after the other: all of one class, alternating between known classes, and each of a new class. Prints
microseconds of CPU per cycle and per part, and the memory in use.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import itertools
import pstats
import random
import resource
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from kubeloop.informers.store import Store
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES
from kubeloop.kube.objects.api_types import Node, Pod, ReplicaSet, Service, convert
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.attempts.algorithm import Algorithm
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.cache.cache import SchedulerCache
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.load import read_configuration
from kubeloop.scheduler.framework.runtime import Framework
from kubeloop.scheduler.framework.waiting_pods import WaitingPods
from kubeloop.scheduler.metrics import NO_METRICS
from kubeloop.scheduler.plugins.registry import IN_TREE_PLUGINS
from kubeloop.scheduler.queue.nominator import Nominator
from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.recording.pod_recorder import standalone_pod_recorder
from kubeloop.tracing.sampling.samplers import DISABLED_SAMPLER

STARTED = datetime(2026, 1, 1, tzinfo=UTC)


class FixedClock:
    def now(self) -> datetime:
        return STARTED

    def time_ns(self) -> int:
        return 0


class Bench:
    """The scheduler's decision parts over a synthetic cluster; also the handle of the plugins."""

    def __init__(self, nodes: int, deployments: int, lookup: Callable[[str], Pod | None] = lambda key: None) -> None:
        """lookup: returns a pending pod by key."""
        self.replica_sets: Store[ReplicaSet] = Store()
        self.services: Store[Service] = Store()
        self.listers = Listers(replica_sets=self.replica_sets, services=self.services, pods=Store[Pod]())
        self.cache = SchedulerCache(lambda: 0.0)
        self.snapshot = Snapshot()
        self.clock = FixedClock()
        self.rng = random.Random(0)
        self.client: Any = None
        self.recorder: Any = None
        self.traces = standalone_pod_recorder(
            OpenPodRecords(clock=SystemClock()), rng=self.rng, sampler=DISABLED_SAMPLER
        )
        self.extenders = ()
        self.metrics = NO_METRICS
        self.feature_gates = DEFAULT_FEATURE_GATES
        self.nominator = Nominator(lookup)
        document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        profile = read_configuration(document).profiles[0]
        self.framework = Framework(profile, self, IN_TREE_PLUGINS, self.nominator, WaitingPods())  # type: ignore[arg-type]
        self.algorithm = Algorithm(
            self.snapshot,
            percentage_of_nodes_to_score=None,
            tie_break="random",
            extenders=(),
            rng=self.rng,
            now_ns=SystemClock().time_ns,
        )
        for index in range(nodes):
            self.cache.add_node(convert(Node, node(index)))
        self.names = [f"web-{number}" for number in range(deployments)]
        for name in self.names:
            self.add_deployment(name)
        self.serial = itertools.count()
        self.parts: dict[str, int] = {}

    def add_deployment(self, name: str) -> None:
        labels = {"app": name}
        replica_set = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": labels}},
        }
        service = {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": labels}}
        self.replica_sets.put(f"default/{name}", convert(ReplicaSet, replica_set))
        self.services.put(f"default/{name}", convert(Service, service))

    def pod(self, app: str, node_name: str = "") -> Pod:
        return convert(Pod, pod(next(self.serial), app, node_name))

    def run_filters_with_nominated_pods(self, *args: Any) -> Any:
        return self.framework.node_filters.run_filters_with_nominated_pods(*args)

    async def cycle(self, pending: Pod) -> None:
        """Run one cycle, and add the time of each part to `parts`."""
        marks = [("", time.process_time_ns())]
        info = PodInfo(pending)
        marks.append(("pod info", time.process_time_ns()))
        self.cache.update_snapshot(self.snapshot)
        marks.append(("snapshot update", time.process_time_ns()))
        attempt = Attempt(self.framework, QueuedPodInfo(info, 0))
        facts_ns = time.process_time_ns()
        node_name = await self.algorithm.schedule(attempt)
        marks.append(("algorithm", time.process_time_ns()))
        bound = msgspec.structs.replace(pending, spec=msgspec.structs.replace(pending.spec, node_name=node_name))
        self.cache.assume_pod(info.with_pod(bound))
        marks.append(("assume", time.process_time_ns()))
        for (_, start), (name, end) in itertools.pairwise(marks):
            self.parts[name] = self.parts.get(name, 0) + end - (facts_ns if name == "algorithm" else start)

    async def measure(self, title: str, apps: Iterator[str], cycles: int, profiled: bool) -> None:
        await self.cycle(self.pod(next(apps)))
        self.parts.clear()
        pods = [self.pod(app) for app in itertools.islice(apps, cycles)]
        profile = cProfile.Profile()
        if profiled:
            profile.enable()
        for pending in pods:
            await self.cycle(pending)
        profile.disable()
        total = sum(self.parts.values())
        parts = ", ".join(f"{name} {ns / cycles / 1000:.0f}" for name, ns in self.parts.items())
        print(f"{title}: {total / cycles / 1000:.0f} us per cycle ({parts})")
        if profiled:
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def node(index: int) -> dict[str, Any]:
    name = f"node-{index}"
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": f"zone-{index % 3}",
        "kubernetes.io/os": "linux",
    }
    capacity = {"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    return {"metadata": {"name": name, "uid": name, "labels": labels}, "status": {"allocatable": capacity}}


def pod(number: int, app: str, node_name: str) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": True}
    metadata = {
        "name": f"{app}-{number}",
        "namespace": "default",
        "uid": f"uid-{number}",
        "labels": {"app": app, "pod-template-hash": "abc"},
        "ownerReferences": [owner],
    }
    container = {
        "name": "c",
        "image": "registry.example/web:1",
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    }
    tolerations = [
        {
            "key": f"node.kubernetes.io/{condition}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for condition in ("not-ready", "unreachable")
    ]
    spec: dict[str, Any] = {"containers": [container], "tolerations": tolerations, "schedulerName": "default-scheduler"}
    if node_name:
        spec["nodeName"] = node_name
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running" if node_name else "Pending"}}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20000)
    parser.add_argument(
        "--memory-pods", type=int, default=50000, help="number of pods for the final memory measurement"
    )
    parser.add_argument("--deployments", type=int, default=100)
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--profile", action="store_true", help="print a profile")
    parser.add_argument("--workload", help='a situation of scheduler_situations.py, or "all"')
    parser.add_argument("--preemption", action="store_true", help="same as --workload preemption")
    options = parser.parse_args()
    if options.workload or options.preemption:
        from scheduler_situations import SITUATIONS, measure_all

        name = options.workload or "preemption"
        if name != "all" and name not in SITUATIONS:
            parser.error(f"no workload {name}; choose all, {', '.join(SITUATIONS)}")
        await measure_all(list(SITUATIONS) if name == "all" else [name], options)
        return
    bench = Bench(options.nodes, options.deployments)
    for number in range(options.pods):
        name = f"node-{bench.rng.randrange(options.nodes)}"
        bench.cache.add_pod(bench.pod(bench.names[number % options.deployments], name))
    start_ns = time.process_time_ns()
    bench.cache.update_snapshot(bench.snapshot)
    first_ms = (time.process_time_ns() - start_ns) / 1e6
    gc.freeze()  # as kubeloop does after a long collection (kubeloop/process/python_gc.py)
    print(f"{options.nodes} nodes, {options.pods} pods; first snapshot {first_ms:.0f} ms")
    same, known = itertools.repeat(bench.names[0]), itertools.cycle(bench.names)
    fresh = (f"fresh-{number}" for number in itertools.count())
    await bench.measure("same class", same, options.cycles, options.profile)
    await bench.measure("known classes in turn", known, options.cycles, False)
    await bench.measure("known classes in turn, again", known, options.cycles, False)

    def never_seen() -> Iterator[str]:
        for name in fresh:
            bench.add_deployment(name)
            yield name

    await bench.measure("a new class each", never_seen(), min(options.cycles, 100), options.profile)
    print(f"peak memory {peak_mib():.0f} MiB")
    bench.cache.update_snapshot(bench.snapshot)
    more = options.memory_pods - bench.cache.sizes()[1]
    for number in range(more):
        name = f"node-{bench.rng.randrange(options.nodes)}"
        bench.cache.add_pod(bench.pod(bench.names[number % options.deployments], name))
    await bench.measure(f"same class, {options.memory_pods} pods", same, options.cycles, False)
    print(f"peak memory with {options.memory_pods} pods {peak_mib():.0f} MiB")


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    asyncio.run(main())
