"""Random cases of pod groups that compete for a few nodes, from a seed.

Made for a comparison of schedulers, so that few decisions are left to chance: the pods of a case use its nodes only,
and prefer each of them with another weight; groups and single pods that are pending have different priorities. In a
group, all pods are equal, or each has another priority.

Preemption for groups is compared with one pending group or single pod at a time, by descending priority, those that may
not preempt last. Otherwise nodes and victims depend on how far the evictions for one are when the next one is tried.
That depends on the API server: kube-scheduler waits for the patches of statuses before it tries the next pod, unless
the feature gate SchedulerAsyncAPICalls is on; kubeloop never does.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Literal

JSON = dict[str, Any]
Kind = Literal["gang", "topology", "preemption"]
SCHEDULER = "ordered"
_BASES = (10, 30, 50, 70, 90, 110)
PRIORITIES = (
    {f"p{value}": value for value in (0, 20, 60, 100, *_BASES)}
    | {f"p{base}-never": base for base in _BASES}
    | {f"p{base}-{index}": base + index for base in _BASES for index in range(1, 6)}
)
"""PriorityClasses by name; preemptionPolicy is Never for those with the suffix."""

GATES: dict[Kind, tuple[str, ...]] = {
    "gang": ("GenericWorkload", "GangScheduling"),
    "topology": ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling"),
    "preemption": ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling", "WorkloadAwarePreemption"),
}
"""Feature gates of the cases, by kind."""

MAX_NODES = 6
_WEIGHTS = (100, 80, 60, 40, 20, 1)


@dataclass
class Wave:
    """Changes of a case. deleted: names of pods to delete. ungated: of those whose scheduling gates are removed.

    groups: created after their pods, all of which then wait for them, so that all are scheduled at once.
    """

    pods: list[JSON] = field(default_factory=list)
    groups: list[JSON] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    ungated: list[str] = field(default_factory=list)

    def add(self, other: Wave) -> None:
        self.pods += other.pods
        self.groups += other.groups
        self.deleted += other.deleted
        self.ungated += other.ungated


@dataclass
class PodGroupCase:
    """placed: pods that are bound from the start. groups: those of placed pods. ordered: groups whose pods all differ.

    waves: the first one is there from the start, each other one comes once the scheduler has nothing more to do.
    """

    name: str
    namespace: str
    nodes: list[JSON] = field(default_factory=list)
    groups: list[JSON] = field(default_factory=list)
    budgets: list[JSON] = field(default_factory=list)
    placed: list[JSON] = field(default_factory=list)
    waves: list[Wave] = field(default_factory=list)
    ordered: set[str] = field(default_factory=set)

    @property
    def all_groups(self) -> list[JSON]:
        return [*self.groups, *(group for wave in self.waves for group in wave.groups)]

    @property
    def all_pods(self) -> list[JSON]:
        return [*self.placed, *(pod for wave in self.waves for pod in wave.pods)]


@dataclass
class _Pending:
    """A pending group or single pod. late: comes after `first`."""

    priority: str
    preempts: bool
    first: Wave
    late: Wave = field(default_factory=Wave)


def pod_group_case(kind: Kind, number: int, namespace: str) -> PodGroupCase:
    """Return a case; the same kind and number, the same case."""
    return _Generator(kind, number, namespace).generate()


def node_body(name: str, cpu: int, **labels: str) -> JSON:
    allocatable = {"cpu": str(cpu), "memory": "64Gi", "pods": "100"}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }


class _Generator:
    def __init__(self, kind: Kind, number: int, namespace: str) -> None:
        self._random = random.Random(f"{kind} {number}")
        self._kind = kind
        self._case = PodGroupCase(f"{kind[0]}{number}", namespace)
        self._rack_key = f"{self._case.name}.example.com/rack"

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def generate(self) -> PodGroupCase:
        rng, case = self._random, self._case
        ranks = rng.sample(range(MAX_NODES), rng.randint(2 if self._kind == "topology" else 1, MAX_NODES))
        case.nodes = [self._node(index, rank) for index, rank in enumerate(ranks)]
        for index in range(rng.choice((0, 1, 2))):
            case.groups.append(self._group(f"{case.name}-old{index}", rng.choice(("p0", "p20", "p60"))))
        self._place_pods()
        if self._chance(0.3):
            case.budgets.append(self._budget())
        bases = rng.sample(_BASES, len(_BASES))
        pending = [
            self._pending_group(f"{case.name}-new{index}", f"p{bases.pop()}")
            for index in range(rng.choice((1, 1, 2, 3)))
        ]
        for index in range(rng.choice((0, 0, 1, 2))):
            priority, never = f"p{bases.pop()}", "-never" if self._chance(0.1) else ""
            pod = self._pod(f"{case.name}-single{index}", rng.randint(1, 3), priority + never)
            pending.append(_Pending(priority, not never, Wave([pod])))
        if self._kind == "preemption":
            pending.sort(key=lambda entry: (entry.preempts, PRIORITIES[entry.priority]), reverse=True)
            case.waves = [wave for entry in pending for wave in (entry.first, entry.late) if wave != Wave()]
            return case
        case.waves = [Wave(), Wave()]
        for entry in pending:
            case.waves[0].add(entry.first)
            case.waves[1].add(entry.late)
        if self._chance(0.4) and case.placed:
            case.waves[1].deleted.append(rng.choice(case.placed)["metadata"]["name"])
        return case

    def _node(self, index: int, rank: int) -> JSON:
        labels = {"case": self._case.name, "rank": str(rank)}
        if self._kind != "gang" and self._chance(0.9):
            labels[self._rack_key] = f"r{index % 3}"
        return node_body(f"{self._case.name}-{index}", self._random.randint(1, 6), **labels)

    def _group(self, name: str, priority: str, *, constrained: bool = False, min_count: int = 1) -> JSON:
        spec: JSON = {"schedulingPolicy": {"gang": {"minCount": min_count}} if self._chance(0.8) else {"basic": {}}}
        if constrained:
            spec["schedulingConstraints"] = {"topology": [{"key": self._rack_key}]}
        if self._kind == "preemption":
            spec["priorityClassName"] = priority
            mode = self._random.choice((None, "Pod", "PodGroup", "PodGroup"))
            if mode is not None:
                spec["disruptionMode"] = mode
        return {"metadata": {"name": name, "namespace": self._case.namespace}, "spec": spec}

    def _pod(self, name: str, cpu: int, priority: str, group: str = "") -> JSON:
        case = self._case
        preferred = []
        for rank, weight in enumerate(_WEIGHTS):
            of_rank = {"key": "rank", "operator": "In", "values": [str(rank)]}
            preferred.append({"weight": weight, "preference": {"matchExpressions": [of_rank]}})
        spec: JSON = {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}],
            "schedulerName": SCHEDULER,
            "nodeSelector": {"case": case.name},
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
            "tolerations": [{"operator": "Exists"}],  # new nodes have a taint until they are ready
            "priorityClassName": priority,
            "terminationGracePeriodSeconds": 0,
        }
        if group:
            spec["schedulingGroup"] = {"podGroupName": group}
        return {"metadata": {"name": name, "namespace": case.namespace, "labels": {"case": case.name}}, "spec": spec}

    def _place_pods(self) -> None:
        """Fill the nodes partly with pods, some of them in groups."""
        rng, case = self._random, self._case
        hours = rng.sample(range(200), 36)
        for node in case.nodes:
            free = int(node["status"]["allocatable"]["cpu"])
            while free > 0 and self._chance(0.75):
                cpu = rng.randint(1, min(free, 3))
                free -= cpu
                priority, group = rng.choice(("p0", "p20", "p60", "p100")), ""
                if case.groups and self._chance(0.5):
                    of_group = rng.choice(case.groups)
                    group = of_group["metadata"]["name"]
                    if self._chance(0.8):
                        priority = of_group["spec"].get("priorityClassName", "p20")
                pod = self._pod(f"{case.name}-placed{len(case.placed)}", cpu, priority, group)
                pod["spec"]["nodeName"] = node["metadata"]["name"]
                day, hour = divmod(hours[len(case.placed)], 24)
                pod["status"] = {"phase": "Running", "startTime": f"2026-01-0{1 + day}T{hour:02}:00:00Z"}
                if self._chance(0.4):
                    pod["metadata"]["labels"]["app"] = "db"
                if self._chance(0.1):
                    pod["spec"]["terminationGracePeriodSeconds"] = 600
                case.placed.append(pod)

    def _budget(self) -> JSON:
        case = self._case
        selector = {"matchLabels": {"case": case.name, "app": "db"}}
        status = {"disruptionsAllowed": self._random.choice((0, 0, 1, 2)), "currentHealthy": 3, "desiredHealthy": 2}
        return {
            "metadata": {"name": case.name, "namespace": case.namespace},
            "spec": {"minAvailable": 1, "selector": selector},
            "status": status | {"expectedPods": 3, "observedGeneration": 1},
        }

    def _pending_group(self, name: str, priority: str) -> _Pending:
        rng, case = self._random, self._case
        size = rng.randint(1, 5)
        never = "-never" if self._chance(0.1) else ""
        constrained = self._chance({"gang": 0.0, "topology": 0.8, "preemption": 0.15}[self._kind])
        min_count = rng.randint(1, size) if self._chance(0.9) else size + 1
        group = self._group(name, priority, constrained=constrained, min_count=min_count)
        exists = self._chance(0.97)
        cpu = rng.randint(1, 3)
        differ = self._chance(0.5)
        if differ:
            case.ordered.add(name)
        gated, late = self._chance(0.15), self._chance(0.2)
        wave = Wave(groups=[group] if exists else [])
        pending = _Pending(priority, not constrained and (differ or not never), wave)
        for index in range(size):
            priority_of_pod = f"{priority}-{size - index}" if differ else priority + never
            pod = self._pod(f"{name}-{index}", rng.randint(1, 3) if differ else cpu, priority_of_pod, name)
            if gated and index == size - 1:
                pod["spec"]["schedulingGates"] = [{"name": "example.com/gate"}]
                pending.late.ungated.append(pod["metadata"]["name"])
            (pending.late if late and index == min_count - 1 else wave).pods.append(pod)
        return pending
