"""What happens to pods and nodes, measured from the states of their objects: in a recording, or in a replay."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from kubeloop.devcluster.api.conditions import condition_of, is_true
from kubeloop.devcluster.kubelet.pods.pod_admission import Amounts, amounts, requested_amounts
from kubeloop.kube.json_object import JSON
from kubeloop.scheduler.cache.node_info import is_extended_resource

POOL_LABELS: Final = (
    "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "karpenter.sh/nodepool", "agentpool",
    "kubernetes.azure.com/agentpool", "node.kubernetes.io/instance-type",
)  # fmt: skip
_REASONS = re.compile(r"(\d+) ([^,]+?)(?=, \d+ |\. |$)")
_NATIVE: Final = ("cpu", "memory", "pods")
_ENDED: Final = ("Succeeded", "Failed")


class PodRun(msgspec.Struct):
    """One pod. Times are in seconds since the start; None for what has not happened.

    disruption: reason of its condition DisruptionTarget. waits: seconds without a node, by reason.
    """

    key: str
    workload: str
    created: float
    is_initial: bool = False
    node: str = ""
    bound: float | None = None
    ready: float | None = None
    ended: float | None = None
    deleted: float | None = None
    failed: bool = False
    disruption: str = ""
    reason: str = ""
    reason_since: float = 0.0
    waits: dict[str, float] = {}


class PoolUse(msgspec.Struct, frozen=True, rename="camel"):
    """Use of one pool at one time.

    needed: how many of its nodes would hold its pods. fragmented: share of the free CPU that is on nodes without room
    for a pod of usual size: that which 90 % of the pool's pods do not exceed.
    """

    nodes: int
    needed: int
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]
    fragmented: float


class Sample(msgspec.Struct, frozen=True, rename="camel"):
    """State at one time. created, bound: numbers of pods since the start. pending: pods without a node. pools: {} for
    most samples."""

    seconds: float
    created: int
    bound: int
    pending: int
    running: int
    pools: Mapping[str, PoolUse]


class Measurement:
    """Pods and nodes of a run. sample() is called at fixed intervals."""

    def __init__(self, workload_of: Callable[[JSON], str]) -> None:
        self._workload_of = workload_of
        self.runs: dict[str, PodRun] = {}  # by uid
        self.samples: list[Sample] = []
        self._pools: dict[str, str] = {}  # by node
        self._allocatable: dict[str, Amounts] = {}  # by node
        self._requested: dict[str, Amounts] = {}  # by node
        self._placed: dict[str, tuple[str, Amounts]] = {}  # node and requests by uid of the pod
        self._sizes: dict[str, Amounts] = {}  # requests by uid, of pods that have not ended
        self._created = self._bound = 0

    # --- nodes -------------------------------------------------------------------------------------------------------

    def node_changed(self, node: JSON) -> None:
        name = node["metadata"]["name"]
        self._allocatable[name] = _measured(amounts((node.get("status") or {}).get("allocatable")))
        self._pools[name] = pool_of(node)

    def node_deleted(self, node: JSON) -> None:
        name = node["metadata"]["name"]
        self._allocatable.pop(name, None)
        self._pools.pop(name, None)

    # --- pods --------------------------------------------------------------------------------------------------------

    def pod_changed(self, seconds: float, pod: JSON, *, initial: bool = False) -> PodRun:
        """Record a state of a pod."""
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        uid = metadata["uid"]
        run = self.runs.get(uid)
        if run is None:
            key = f"{metadata['namespace']}/{metadata['name']}"
            run = self.runs[uid] = PodRun(key, self._workload_of(pod), seconds, initial, waits={})
            self._created += not initial
            self._sizes[uid] = _measured(requested_amounts(pod))
        if run.bound is None and (node := spec.get("nodeName")):
            self._end_wait(run, seconds)
            run.bound, run.node = seconds, node
            self._bound += not initial
            self._place(uid, node, self._sizes.get(uid, {}))
        elif run.bound is None:
            self._note_reason(run, seconds, pod)
        if run.ready is None and is_true(pod, "Ready"):
            run.ready = seconds
        if run.ended is None and status.get("phase") in _ENDED:
            run.ended = seconds
            run.failed = status["phase"] == "Failed" and "deletionTimestamp" not in metadata
            self._release(uid)
        target = condition_of(pod, "DisruptionTarget")
        if target is not None and target.get("status") == "True":
            run.disruption = target.get("reason", "")
        return run

    def pod_deleted(self, seconds: float, pod: JSON) -> None:
        uid = pod["metadata"]["uid"]
        run = self.runs.get(uid)
        if run is not None and run.deleted is None:
            self._end_wait(run, seconds)
            run.deleted = seconds
            self._release(uid)

    def finish(self, seconds: float) -> None:
        """End the waits of pods that are still pending."""
        for run in self.runs.values():
            if run.bound is None and run.deleted is None:
                self._end_wait(run, seconds)

    def _note_reason(self, run: PodRun, seconds: float, pod: JSON) -> None:
        condition = condition_of(pod, "PodScheduled")
        if condition is None or condition.get("status") != "False":
            return
        reason = condition.get("message") or condition.get("reason", "")
        if reason != run.reason:
            self._end_wait(run, seconds)
            run.reason, run.reason_since = reason, seconds

    def _end_wait(self, run: PodRun, seconds: float) -> None:
        if run.reason and seconds > run.reason_since:
            for reason in reasons_of(run.reason):
                run.waits[reason] = run.waits.get(reason, 0.0) + seconds - run.reason_since
        run.reason = ""

    def _place(self, uid: str, node: str, requests: Amounts) -> None:
        self._placed[uid] = node, requests
        requested = self._requested.setdefault(node, {})
        for name, amount in requests.items():
            requested[name] = requested.get(name, 0) + amount

    def _release(self, uid: str) -> None:
        self._sizes.pop(uid, None)
        if (placed := self._placed.pop(uid, None)) is not None:
            node, requests = placed
            requested = self._requested[node]
            for name, amount in requests.items():
                requested[name] -= amount

    # --- samples -----------------------------------------------------------------------------------------------------

    def sample(self, seconds: float, *, with_pools: bool = True) -> None:
        """Append the present state to the samples. with_pools: with the use of the pools, which takes longer."""
        pools = self._pool_uses() if with_pools else {}
        pending = sum(uid not in self._placed for uid in self._sizes)
        sample = Sample(seconds, self._created, self._bound, pending, len(self._placed), pools)
        self.samples.append(sample)

    def _pool_uses(self) -> dict[str, PoolUse]:
        placed_by_pool: dict[str, list[Amounts]] = {}
        for node, requests in self._placed.values():
            if (pool := self._pools.get(node)) is not None:
                placed_by_pool.setdefault(pool, []).append(requests)
        nodes_by_pool: dict[str, list[str]] = {}
        for node, pool in self._pools.items():
            nodes_by_pool.setdefault(pool, []).append(node)
        return {
            pool: self._pool_use(nodes, placed_by_pool.get(pool, [])) for pool, nodes in sorted(nodes_by_pool.items())
        }

    def _pool_use(self, nodes: list[str], placed: list[Amounts]) -> PoolUse:
        allocatable: dict[str, int] = {}
        requested: dict[str, int] = {}
        usual = sorted(requests.get("cpu", 0) for requests in placed)[len(placed) * 9 // 10] if placed else 0
        free = unusable = 0
        for node in nodes:
            has, uses = self._allocatable[node], self._requested.get(node, {})
            for name, amount in has.items():
                allocatable[name] = allocatable.get(name, 0) + amount
                requested[name] = requested.get(name, 0) + uses.get(name, 0)
            free_cpu = max(0, has.get("cpu", 0) - uses.get("cpu", 0))
            free += free_cpu
            is_full = uses.get("pods", 0) >= has.get("pods", 1 << 30) or uses.get("memory", 0) >= has.get("memory", 1)
            unusable += free_cpu if is_full or free_cpu < usual else 0
        needed = nodes_needed(placed, self._allocatable[nodes[0]])
        return PoolUse(len(nodes), needed, allocatable, requested, unusable / free if free else 0.0)


def _measured(resources: Amounts) -> Amounts:
    """Return the amounts of CPU, memory, pods and extended resources."""
    return {name: amount for name, amount in resources.items() if name in _NATIVE or is_extended_resource(name)}


def pool_of(node: JSON) -> str:
    """Return the name of a node's pool: a label of a provider, or its size."""
    labels = node["metadata"].get("labels") or {}
    for label in POOL_LABELS:
        if label in labels:
            return str(labels[label])
    size = amounts((node.get("status") or {}).get("allocatable"))
    return f"{size.get('cpu', 0) / 1000:g} cpu, {size.get('memory', 0) / (1 << 30):.4g}Gi"


def nodes_needed(placed: Iterable[Amounts], size: Amounts) -> int:
    """Return how many nodes of this size hold the pods: first fit in order of decreasing size."""
    names = [name for name in size if name != "pods"]
    limit = [max(1, size[name]) for name in names]
    most_pods = size.get("pods", 1 << 30)
    by_size = Counter(tuple(requests.get(name, 0) for name in names) for requests in placed)
    groups = sorted(by_size.items(), key=lambda it: (-max(map(_share, it[0], limit), default=0.0), it[0]))
    bins: list[list[int]] = []  # free amounts, and free pods last
    for wanted, count in groups:
        remaining = count
        for free in bins:
            fits = min((have // need for have, need in zip(free, wanted, strict=False) if need), default=free[-1])
            taken = min(remaining, fits, free[-1])
            if taken > 0:
                for index, need in enumerate(wanted):
                    free[index] -= need * taken
                free[-1] -= taken
                remaining -= taken
            if not remaining:
                break
        while remaining:
            fits = min((have // need for have, need in zip(limit, wanted, strict=True) if need), default=most_pods)
            taken = max(1, min(remaining, fits, most_pods))
            bins.append([*(have - need * taken for have, need in zip(limit, wanted, strict=True)), most_pods - taken])
            remaining -= taken
    return len(bins)


def _share(need: int, have: int) -> float:
    return need / have


def reasons_of(message: str) -> list[str]:
    """Return the reasons in a message of the scheduler, without the numbers of nodes."""
    _, separator, rest = message.partition("nodes are available: ")
    text = rest.partition(". ")[0] if separator else ""
    reasons = [reason.strip().rstrip(".") for _, reason in _REASONS.findall(text)]
    return sorted(set(reasons)) or [message.partition(". ")[0] or "not scheduled"]
