"""One scheduling cycle in special situations: volumes, affinity, preemption, full nodes.

    .venv/bin/python benchmarks/scheduler --cycle --workload NAME      (or "all"; --nodes, --pods, --cycles, --profile)

Each situation has its own cluster. The figure is the CPU time of an attempt, up to the assumed pod, or, if the pod fits
no node, up to the message of its event and the victims of its preemption. The first cycle is reported separately: it
fills caches that later cycles use.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import pstats
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import msgspec
from scheduler_cycle import Bench, node, pod

from kubeloop.informers.store import Store
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import Namespace, Node, Pod, convert
from kubeloop.kube.objects.storage_types import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from kubeloop.process.python_gc import short_collections
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.dry_run import NodeDryRuns
from kubeloop.scheduler.framework.fit_error import FitError

_DRIVER = "csi.example.com"
_ZONE = "topology.kubernetes.io/zone"
_MIGRATED = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"}
_MIGRATED_DRIVER = "ebs.csi.aws.com"


class Situation(Bench):
    """A cluster of `nodes` with `pods`, filled by the functions below."""

    def __init__(self, options: argparse.Namespace, deployments: int = 100) -> None:
        self.nodes: int = options.nodes
        self.existing: int = options.pods
        self.waiting: Store[Pod] = Store()
        super().__init__(0, deployments, self.waiting.get)
        self.random = random.Random(1)

    def dry_runs(self, state: CycleState, pod: PodInfo) -> NodeDryRuns:
        return NodeDryRuns(self.framework.node_filters, state, pod)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        work.close()  # no eviction: only the choice of victims is measured

    def add_nodes(self, change: Callable[[int, JSON], None] = lambda index, body: None) -> None:
        for index in range(self.nodes):
            body = node(index)
            change(index, body)
            self.cache.add_node(convert(Node, body))

    def put(self, lister: str, kind: type[Any], body: JSON) -> None:
        obj = convert(kind, body)
        getattr(self.listers, lister).put(obj.key, obj)

    def body(self, app: str, change: Callable[[JSON], None], node_name: str = "") -> Pod:
        body = pod(next(self.serial), app, node_name)
        change(body)
        return convert(Pod, body)

    def fill(self, change: Callable[[JSON], None] = lambda body: None) -> None:
        for number in range(self.existing):
            app = self.names[number % len(self.names)]
            self.cache.add_pod(self.body(app, change, f"node-{self.random.randrange(self.nodes)}"))

    async def attempt(self, pending: Pod) -> int:
        """Return the CPU nanoseconds of one attempt, whatever its result."""
        self.waiting.put(pending.key, pending)
        start_ns = time.process_time_ns()
        info = PodInfo(pending)
        attempt = Attempt(self.framework, QueuedPodInfo(info, 0))
        self.cache.update_snapshot(self.snapshot)
        try:
            node_name = await self.algorithm.schedule(attempt)
        except FitError as error:
            verdicts = error.diagnosis.node_to_status
            result, status = await self.framework.filters.run_post_filter(attempt.state, info, self.snapshot, verdicts)
            error.diagnosis.post_filter_message = status.message
            str(error)
            if result is not None and result.nominated_node_name:
                self.nominator.add(info, result.nominated_node_name)
        else:
            bound = msgspec.structs.replace(pending, spec=msgspec.structs.replace(pending.spec, node_name=node_name))
            self.cache.assume_pod(info.with_pod(bound))
        return time.process_time_ns() - start_ns


Pods = Iterator[Pod]


def _volumes(body: JSON, claim: str) -> None:
    body["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]


def _claim(name: str, volume: str = "", storage_class: str = "") -> JSON:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": annotations},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "volumeName": volume,
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Bound" if volume else "Pending"},
    }


def _volume(name: str, claim: str = "", storage_class: str = "", at: tuple[str, str] | None = None) -> JSON:
    spec: JSON = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "csi": {"driver": _DRIVER, "volumeHandle": name},
    }
    if claim:
        spec["claimRef"] = {"name": claim, "namespace": "default", "uid": claim}
    if at is not None:
        expression = {"key": at[0], "operator": "In", "values": [at[1]]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    return {"metadata": {"name": name, "uid": name}, "spec": spec, "status": {"phase": "Available"}}


def _bound_volumes(situation: Situation, zoned: bool = False, migrated: bool = False) -> Pods:
    """Every pod has a bound CSI volume, or an in-tree volume that is migrated to CSI; the limit per node is 39."""
    situation.add_nodes()
    for index in range(situation.nodes):
        driver = {"name": _MIGRATED_DRIVER if migrated else _DRIVER, "nodeID": "", "allocatable": {"count": 39}}
        metadata = {"name": f"node-{index}", "annotations": _MIGRATED if migrated else {}}
        situation.put("csi_nodes", CSINode, {"metadata": metadata, "spec": {"drivers": [driver]}})
    numbers = itertools.count()

    def own_volume(body: JSON) -> None:
        number = next(numbers)
        at = (_ZONE, f"zone-{number % 3}") if zoned else None
        volume = _volume(f"pv-{number}", f"claim-{number}", at=at)
        if migrated:
            del volume["spec"]["csi"]
            volume["spec"]["awsElasticBlockStore"] = {"volumeID": f"aws://zone-0/vol-{number}"}
        situation.put("persistent_volumes", PersistentVolume, volume)
        situation.put("persistent_volume_claims", PersistentVolumeClaim, _claim(f"claim-{number}", f"pv-{number}"))
        _volumes(body, f"claim-{number}")

    situation.fill(own_volume)
    return (situation.body(situation.names[0], own_volume) for _ in itertools.count())


def _unbound_claims(situation: Situation, provisioner: str) -> Pods:
    """Every pod has an unbound claim: for a local volume of each node, or with dynamic provisioning."""
    situation.add_nodes()
    situation.fill()
    mode = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": provisioner}
    situation.put("storage_classes", StorageClass, {"metadata": {"name": "wait"}, **mode})
    if provisioner == "kubernetes.io/no-provisioner":
        for index in range(situation.nodes):
            at = ("kubernetes.io/hostname", f"node-{index}")
            situation.put("persistent_volumes", PersistentVolume, _volume(f"pv-{index}", storage_class="wait", at=at))
    numbers = itertools.count()

    def own_claim(body: JSON) -> None:
        name = f"claim-{next(numbers)}"
        situation.put("persistent_volume_claims", PersistentVolumeClaim, _claim(name, storage_class="wait"))
        _volumes(body, name)

    return (situation.body(situation.names[0], own_claim) for _ in itertools.count())


def _affinity(situation: Situation, kind: str, term: JSON, weight: int | None, namespaces: int = 1) -> Pods:
    """Every pod, bound or pending, has the affinity term for pods of its own app."""
    for number in range(namespaces):
        metadata = {"name": f"ns-{number}", "labels": {"team": f"team-{number % 10}"}}
        situation.put("namespaces", Namespace, {"metadata": metadata})

    def with_term(body: JSON) -> None:
        if namespaces > 1:
            body["metadata"]["namespace"] = f"ns-{next(situation.serial) % namespaces}"
        own = term | {"labelSelector": {"matchLabels": {"app": body["metadata"]["labels"]["app"]}}}
        if weight is None:
            terms: JSON = {"requiredDuringSchedulingIgnoredDuringExecution": [own]}
        else:
            weighted = [{"weight": weight, "podAffinityTerm": own}]
            terms = {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
        body["spec"]["affinity"] = {kind: terms}

    situation.add_nodes()
    situation.fill(with_term)
    return (situation.body(situation.names[number % len(situation.names)], with_term) for number in itertools.count())


def _full(situation: Situation, cpu: str, classes: int, priority: int) -> Pods:
    """Nodes of 4 CPUs with four pods of 900m and priority 0."""

    def of_four(index: int, body: JSON) -> None:
        body["status"]["allocatable"] = {"cpu": "4", "memory": "32Gi", "pods": "110"}

    def request_cpu(amount: str, body: JSON) -> None:
        body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": amount, "memory": "500Mi"}}

    def low(body: JSON) -> None:
        request_cpu("900m", body)
        body["status"]["startTime"] = "2025-12-31T00:00:00Z"

    situation.add_nodes(of_four)
    for number in range(4 * situation.nodes):
        situation.cache.add_pod(
            situation.body(situation.names[number % len(situation.names)], low, f"node-{number % situation.nodes}")
        )

    def high(number: int, body: JSON) -> None:
        request_cpu(cpu, body)
        body["spec"]["priority"] = priority
        body["metadata"]["labels"]["class"] = f"c-{number % classes}"

    return (situation.body("high", lambda body, number=number: high(number, body)) for number in itertools.count())  # type: ignore[misc]


def _deployments(situation: Situation) -> Pods:
    situation.add_nodes()
    situation.fill()
    return (situation.pod(app) for app in itertools.cycle(situation.names))


def _daemon_set(situation: Situation) -> Pods:
    """Pods of a DaemonSet: each fits one node, which its affinity names."""
    situation.add_nodes()
    situation.fill()

    def on_node(index: int, body: JSON) -> None:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"node-{index}"]}]}
        required = {"nodeSelectorTerms": [term]}
        body["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}

    return (
        situation.body(situation.names[0], partial(on_node, number % situation.nodes)) for number in itertools.count()
    )


def _tainted(situation: Situation) -> Pods:
    """Every twentieth node is tainted, so that not all rows are feasible."""

    def taint(index: int, body: JSON) -> None:
        if index % 20 == 0:
            body["spec"] = {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}

    situation.add_nodes(taint)
    situation.fill()
    return (situation.pod(situation.names[0]) for _ in itertools.count())


_NEAR = {"topologyKey": _ZONE}
SITUATIONS: dict[str, tuple[int, Callable[[Situation], Pods]]] = {
    "daemon-set": (100, _daemon_set),
    "tainted": (100, _tainted),
    "600-deployments": (600, _deployments),
    "csi-volumes": (100, _bound_volumes),
    "zonal-volumes": (100, lambda situation: _bound_volumes(situation, zoned=True)),
    "migrated-volumes": (100, lambda situation: _bound_volumes(situation, migrated=True)),
    "local-volumes": (100, lambda situation: _unbound_claims(situation, "kubernetes.io/no-provisioner")),
    "provisioned-volumes": (100, lambda situation: _unbound_claims(situation, _DRIVER)),
    "preferred-affinity": (100, lambda situation: _affinity(situation, "podAffinity", _NEAR, 10)),
    "required-affinity": (100, lambda situation: _affinity(situation, "podAffinity", _NEAR, None)),
    "anti-affinity": (
        100,
        lambda situation: _affinity(situation, "podAntiAffinity", {"topologyKey": "kubernetes.io/hostname"}, None),
    ),
    "namespace-selector": (
        100,
        lambda situation: _affinity(
            situation,
            "podAffinity",
            _NEAR | {"namespaceSelector": {"matchLabels": {"team": "team-1"}}},
            10,
            namespaces=100,
        ),
    ),
    "no-room": (1, lambda situation: _full(situation, "3", 1, 0)),
    "no-room-each-another-class": (1, lambda situation: _full(situation, "3", 1 << 30, 0)),
    "preemption": (1, lambda situation: _full(situation, "3", 1, 10)),
    "preemption-each-another-class": (1, lambda situation: _full(situation, "3", 1 << 30, 10)),
}
"""name -> (number of deployments, function that fills the cluster and returns its pending pods)"""


async def measure(name: str, options: argparse.Namespace) -> None:
    """Measure a situation and print one row."""
    deployments, create = SITUATIONS[name]
    situation = Situation(options, deployments)
    pods = create(situation)
    situation.cache.update_snapshot(situation.snapshot)
    first_ns = await situation.attempt(next(pods))
    for pending in itertools.islice(pods, deployments - 1):  # every class once
        await situation.attempt(pending)
    profile = cProfile.Profile()
    taken: list[int] = []
    for pending in list(itertools.islice(pods, options.cycles)):
        if options.profile:
            profile.enable()
        taken.append(await situation.attempt(pending))
        profile.disable()
    taken.sort()
    p50, p99 = taken[len(taken) // 2], taken[min(len(taken) - 1, len(taken) * 99 // 100)]
    print(
        f"{name:32}{first_ns / 1000:>12.0f}{p50 / 1000:>10.0f}{p99 / 1000:>10.0f}{taken[-1] / 1000:>10.0f}", flush=True
    )
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def heartbeats(options: argparse.Namespace) -> None:
    """Print the CPU time of cache and snapshot for a kubelet's status update without relevant changes."""
    situation = Situation(options)
    situation.add_nodes()
    situation.fill()
    situation.cache.update_snapshot(situation.snapshot)
    old = [info.node for info in situation.snapshot.node_infos if info.node is not None]
    new = []
    for node_ in old:
        body = msgspec.to_builtins(node_)
        body["status"]["conditions"] = [
            {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:10Z"}
        ]
        new.append(convert(Node, body))
    start_ns = time.process_time_ns()
    for before, after in zip(old, new, strict=True):
        situation.cache.update_node(before, after)
    events_ns = time.process_time_ns() - start_ns
    situation.cache.update_snapshot(situation.snapshot)
    all_ns = time.process_time_ns() - start_ns
    print(
        f"{len(new)} node status updates: {events_ns / len(new) / 1000:.1f} us each in the cache, "
        f"{(all_ns - events_ns) / len(new) / 1000:.1f} us in the snapshot"
    )


async def measure_all(names: list[str], options: argparse.Namespace) -> None:
    print(f"{'us of CPU per attempt':32}{'first':>12}{'p50':>10}{'p99':>10}{'max':>10}")
    with short_collections(time.perf_counter):  # as in `kubeloop run`
        for name in names:
            await measure(name, options)
    if len(names) > 1:
        heartbeats(options)
