"""Scenarios of pod groups: gangs that compete for room, preempt other pods, belong to Jobs, or change at random."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.feature_gates import GANG_SCHEDULING_GATES
from kubeloop.kube.objects.resources import JOBS, NODES, POD_GROUPS, PODS, PRIORITY_CLASSES, WORKLOADS
from kubeloop.kube.values.quantities import milli_value
from kubeloop.testing.faults.fault_plan import FaultPlan, binds_once, caches_are_current
from support.faults.cluster import Cluster
from support.faults.objects import (
    JSON,
    controller_of,
    is_finished,
    is_ready,
    is_terminating,
    is_true,
    manifest,
    name_of,
    pod_template,
    uid_of,
)
from support.faults.scenario import UNTIL_SETTLED, Scenario, Step, create
from support.faults.scenarios.scheduling import ProtectedPods, budget

ALL_GATES = dict.fromkeys(GANG_SCHEDULING_GATES, True)
ZONE = "topology.kubernetes.io/zone"
_FINALIZER = "scheduling.k8s.io/podgroup-protection"
_SCHEDULED = "PodGroupScheduled"
_STALE_SECONDS = 1.0  # by which caches are behind at most, if they are current
_END_SECONDS = 2.0  # after which a user ends a gang that runs
_DELAYS = ("error", "throttle", "lost-answer", "slow", "disconnect", "silent", "restart-server")
"""Faults under which a write fails or takes seconds, while others succeed."""
_INTERRUPTIONS = (
    *_DELAYS, "conflict", "crash-before", "crash-after", "crash-at", "crash-late", "old-lists", "freeze-leader",
)  # fmt: skip
"""Faults under which only a part of the writes of a scheduling attempt may reach the server in time."""
_STALE = ("late-events", "late-lists", "switch-server", "blind")


def nodes_with(count: int, cpus: int, **settings: Any) -> JSON:
    return {"count": count, "capacity": {"cpu": str(cpus), "memory": "8Gi", "pods": "110"}, **settings}


def pod_group(name: str, size: int, **spec: Any) -> JSON:
    """Return a PodGroup. size: minCount; 0 for one that is no gang."""
    policy: JSON = {"gang": {"minCount": size}} if size else {"basic": {}}
    return manifest(POD_GROUPS, name, spec={"schedulingPolicy": policy, **spec})


def member(group: str, number: int, **spec: Any) -> JSON:
    """Return a pod of a group that takes a whole CPU, and may have to wait for room."""
    template = pod_template(group, cpu="1", schedulingGroup={"podGroupName": group}, **spec)
    return manifest(PODS, f"{group}-{number}", labels={"app": group, "unschedulable": "true"}, spec=template["spec"])


def members(group: str, numbers: Iterable[int], **spec: Any) -> list[JSON]:
    return [member(group, number, **spec) for number in numbers]


def group_of(pod: JSON) -> str:
    """Return the name of the pod's group; "" without one."""
    return str(pod["spec"].get("schedulingGroup", {}).get("podGroupName", ""))


def pods_in(cluster: Cluster, group: str) -> list[JSON]:
    return cluster.all(PODS, lambda pod: group_of(pod) == group)


def min_count(group: JSON) -> int:
    """Return the number of pods that must be scheduled together; 0 without a gang policy."""
    return int(group["spec"]["schedulingPolicy"].get("gang", {}).get("minCount", 0))


def domains_of(cluster: Cluster, group: JSON) -> set[str]:
    """Return the values of the group's topology key on the nodes of its pods; none without a topology constraint."""
    topology = group["spec"].get("schedulingConstraints", {}).get("topology", [])
    nodes = [
        cluster.get(NODES, pod["spec"]["nodeName"], "") for pod in filter(_holds_room, pods_in(cluster, name_of(group)))
    ]
    return {
        node["metadata"]["labels"][constraint["key"]] for constraint in topology for node in nodes if node is not None
    }


def _holds_room(pod: JSON) -> bool:
    return bool(pod["spec"].get("nodeName")) and not is_finished(pod)


def _cpus(cluster: Cluster) -> int:
    nodes = cluster.all(NODES)
    return sum(milli_value(node.get("status", {}).get("allocatable", {}).get("cpu", 0)) // 1000 for node in nodes)


class Gangs:
    """Invariants of the bound pods of a gang, and of its PodGroup.

    minCount pods of the gang exist and are bound, or the nodes have room for them, each of which takes a whole CPU.
    With a topology constraint, all are bound in one domain. The condition of a scheduled group stays True. A PodGroup
    loses its finalizer when no pod of it is active that was created before its deletion.
    """

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        self._binds_once = binds_once(plan)
        # else the binding of a pod may fail, and another pod get its room, while those of the same gang are bound
        self._binds_all = self._binds_once and not plan.of_kind(*_DELAYS)
        self._is_current = caches_are_current(plan)
        # as in v1.36, protection reads the pods from its cache
        self._knows_pods = not plan.of_kind(*_STALE, "old-lists", "slow", "silent")
        self._deleted: dict[str, list[float]] = defaultdict(list)  # times of the deletions of pods, by group
        cluster.store.subscribe(PODS, self._on_pod)
        cluster.store.subscribe(POD_GROUPS, self._on_group)

    def _on_pod(self, change: Change) -> None:
        pod, before = change.now.object, change.before
        group = self._cluster.get(POD_GROUPS, group_of(pod))
        if change.type == "DELETED":
            self._deleted[group_of(pod)].append(change.seconds)
        if group is None or before is None or not _holds_room(pod) or _holds_room(before.object):
            return
        self._check_size(group)
        pods = pods_in(self._cluster, name_of(group))
        cached = [at for at in self._deleted[name_of(group)] if at > change.seconds - _STALE_SECONDS]
        if self._is_current and len(pods) + len(cached) < min_count(group):
            self._cluster.violate(f"Pod {name_of(pod)} is bound, but its gang has the pods {[*map(name_of, pods)]}")
        lacking = min_count(group) - sum(map(_holds_room, pods))
        free = _cpus(self._cluster) - len(self._cluster.all(PODS, _holds_room))
        if self._binds_all and lacking > free:
            self._cluster.violate(f"Pod {name_of(pod)} is bound, but {lacking} more of its gang do not fit on {free}")
        domains = domains_of(self._cluster, group)
        if self._binds_once and len(domains) > 1:
            self._cluster.violate(f"PodGroup {name_of(group)} is in the domains {sorted(domains)}")

    def _check_size(self, group: JSON) -> None:
        """A gang that needs more than all nodes have is neither bound nor scheduled."""
        if min_count(group) > _cpus(self._cluster):
            self._cluster.violate(f"PodGroup {name_of(group)} is scheduled on {_cpus(self._cluster)} CPUs")

    def _on_group(self, change: Change) -> None:
        group, name = change.now.object, name_of(change.now.object)
        if is_true(group, _SCHEDULED):
            self._check_size(group)
        if change.before is None:
            return
        before = change.before.object
        if self._binds_once and is_true(before, _SCHEDULED) and not is_true(group, _SCHEDULED):
            self._cluster.violate(f"PodGroup {name} is not scheduled any more")
        is_protected = change.type != "DELETED" and _FINALIZER in group["metadata"].get("finalizers", ())
        since = group["metadata"].get("deletionTimestamp", "")
        users = [
            name_of(pod)
            for pod in pods_in(self._cluster, name)
            if not is_finished(pod) and pod["metadata"]["creationTimestamp"] < since
        ]
        if _FINALIZER in before["metadata"].get("finalizers", ()) and not is_protected and users and self._knows_pods:
            self._cluster.violate(f"PodGroup {name} is not protected any more while {users} use it")


# --- gangs that compete -----------------------------------------------------------------------------------------------

_SIZES: Mapping[str, int] = {"alpha": 3, "beta": 3, "gamma": 2, "large": 5}
"""minCount of each gang; of the large one more than the first two nodes have CPUs."""


class _EndsGangs:
    """A user ends a gang soon after minCount of its pods are ready, and creates again what a node has rejected.

    The PodGroup is deleted before its pods have ended.
    """

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        self._checks_conditions = not plan.of_kind(*_INTERRUPTIONS)
        self._ended: set[str] = set()
        cluster.store.subscribe(PODS, self._on_pod)

    def _on_pod(self, change: Change) -> None:
        pod, loop = change.now.object, asyncio.get_running_loop()
        group = group_of(pod)
        if group in self._ended or change.type == "DELETED":
            return
        if pod.get("status", {}).get("phase") == "Failed":
            loop.call_soon(self._create_again, pod)
        if sum(map(is_ready, pods_in(self._cluster, group))) >= _SIZES[group]:
            self._ended.add(group)
            loop.call_later(_END_SECONDS, self._delete, group)
            loop.call_later(2 * _END_SECONDS, self._end, group)

    def _create_again(self, pod: JSON) -> None:
        self._cluster.delete(PODS, name_of(pod), grace=0)
        self._cluster.apply(member(group_of(pod), int(name_of(pod).rpartition("-")[2])))

    def _delete(self, group: str) -> None:
        self._cluster.tell(f"user: delete PodGroup {group}")
        obj = self._cluster.get(POD_GROUPS, group)
        if self._checks_conditions and (obj is None or not is_true(obj, _SCHEDULED)):
            self._cluster.violate(f"PodGroup {group} is not scheduled, but its pods are ready")
        self._cluster.delete(POD_GROUPS, group)

    def _end(self, group: str) -> None:
        """Let the pods of alpha succeed, and delete those of the others."""
        self._cluster.tell(f"user: end the pods of {group}")
        for pod in pods_in(self._cluster, group):
            if group == "alpha":
                self._cluster.patch(PODS, name_of(pod), {"status": {"phase": "Succeeded"}}, subresource="status")
            else:
                self._cluster.delete(PODS, name_of(pod))


def _all_have_ended(cluster: Cluster) -> list[str]:
    problems = [f"PodGroup {name_of(group)} is left" for group in cluster.all(POD_GROUPS)]
    return problems + [f"Pod {name_of(pod)} has not ended" for pod in cluster.all(PODS) if not is_finished(pod)]


# --- gangs that preempt -----------------------------------------------------------------------------------------------


class _Evictions:
    """Invariant: all evictions that the urgent gang needs precede its binding; the low gang loses all or no pods."""

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        # the next attempt may choose other victims, as long as some have not been evicted, or are cached
        self._checks = not plan.of_kind(*_INTERRUPTIONS, *_STALE)
        self._evicted: dict[str, str] = {}  # groups by UID of the pod; "" for pods without a group
        cluster.store.subscribe(PODS, self._on_pod)

    def _on_pod(self, change: Change) -> None:
        pod, group = change.now.object, group_of(change.now.object)
        if group != "urgent" and (is_terminating(pod) or change.type == "DELETED"):
            self._evicted[uid_of(pod)] = group
        if self._checks and group == "urgent" and _holds_room(pod):
            groups = [*self._evicted.values()]
            if len(groups) != _URGENT_SIZE or groups.count("low") not in (0, _LOW_SIZE):
                self._cluster.violate(f"{len(groups)} pods are evicted, {groups.count('low')} of them of the low gang")


_LOW_SIZE, _URGENT_SIZE = 2, 4
_FILLING = (
    manifest(PRIORITY_CLASSES, "high", value=1000),
    budget("protected", "protected", minAvailable=1),
    pod_group("low", _LOW_SIZE, disruptionMode="PodGroup"),
    *members("low", range(_LOW_SIZE)),
    *(
        manifest(PODS, name, labels={"app": app}, spec=pod_template(app, cpu="1")["spec"])
        for name, app in (("protected", "protected"), *((f"victim-{number}", "victim") for number in range(3)))
    ),
)
_URGENT = (
    pod_group("urgent", _URGENT_SIZE, priorityClassName="high"),
    *members("urgent", range(_URGENT_SIZE), priorityClassName="high"),
)


def _urgent_runs(cluster: Cluster) -> list[str]:
    pods = pods_in(cluster, "urgent")
    return [f"Pod {name_of(pod)} is not bound" for pod in pods if not pod["spec"].get("nodeName")]


# --- gangs of Jobs ----------------------------------------------------------------------------------------------------

_WORKERS = 3


def _job(name: str, **spec: Any) -> JSON:
    """Return a Job of which all pods run until a user ends them."""
    annotations = {"run-seconds": "100000"}
    template = pod_template(name, cpu="1", annotations=annotations, restartPolicy="Never", **spec)
    template["metadata"]["labels"]["unschedulable"] = "true"  # for pods of users that replace those of the Job
    counts = {"completions": _WORKERS, "parallelism": _WORKERS, "backoffLimit": 20}
    return manifest(JOBS, name, spec={"completionMode": "Indexed", "template": template, **counts})


def _zoned_job(name: str) -> list[JSON]:
    constraints = {"topology": [{"key": ZONE}]}
    group = pod_group(name, _WORKERS, schedulingConstraints=constraints)
    return [group, _job(name, schedulingGroup={"podGroupName": name})]


class _EndsJobs:
    """A user ends all pods of a Job at once, when all run."""

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        # a gang whose pods have succeeded in part has too few to go on; a timer that was set before the clock jumped
        # back is late
        self._is_exact = not plan.of_kind("replace-object", "delete-object", "clock") and binds_once(plan)
        cluster.store.subscribe(PODS, self._on_pod)
        cluster.store.subscribe(JOBS, self._on_job)

    def _on_pod(self, change: Change) -> None:
        owner = controller_of(change.now.object)
        if owner and is_ready(change.now.object) and len(self._ready(owner["uid"])) == _WORKERS:
            asyncio.get_running_loop().call_soon(self._end, owner)

    def _ready(self, uid: str) -> list[JSON]:
        return self._cluster.all(PODS, lambda pod: controller_of(pod).get("uid") == uid and is_ready(pod))

    def _end(self, owner: JSON) -> None:
        for pod in self._ready(owner["uid"]):
            self._cluster.patch(PODS, name_of(pod), {"status": {"phase": "Succeeded"}}, subresource="status")

    def _on_job(self, change: Change) -> None:
        job = change.now.object
        if self._is_exact and change.type == "DELETED" and not is_true(job, "Complete"):
            self._cluster.violate(f"Job {name_of(job)} is not complete: {job.get('status')}")


def _delete_jobs(cluster: Cluster) -> None:
    for job in cluster.all(JOBS):
        cluster.delete(JOBS, name_of(job), policy="Background")
    for group in cluster.all(POD_GROUPS, lambda group: not controller_of(group)):
        cluster.delete(POD_GROUPS, name_of(group))
    for pod in cluster.all(PODS, lambda pod: not controller_of(pod)):
        cluster.delete(PODS, name_of(pod))


def _nothing_is_left(cluster: Cluster) -> list[str]:
    """Only objects that users created in place of others are left, and the PodGroups of such pods."""
    used = {group_of(pod) for pod in cluster.all(PODS)}
    left = [obj for resource in (JOBS, WORKLOADS, PODS) for obj in cluster.all(resource)]
    left += cluster.all(POD_GROUPS, lambda group: name_of(group) not in used)
    return [f"{obj['kind']} {name_of(obj)} is left" for obj in left if name_of(obj) not in cluster.replaced]


SCENARIOS = (
    Scenario(
        "pod groups",
        ("scheduler", "podgroup-protection"),
        (
            Step(
                "create gangs in part",
                create(
                    pod_group("alpha", 3),
                    *members("alpha", range(2)),
                    *members("beta", range(3)),
                    pod_group("large", 5),
                    *members("large", range(5)),
                ),
            ),
            Step(
                "create the rest",
                create(
                    *members("alpha", [2]), pod_group("beta", 3), pod_group("gamma", 2), *members("gamma", range(3))
                ),
                1.0,
            ),
            Step("add a node", create(manifest(NODES, "node-2")), 8.0),
        ),
        nodes=nodes_with(2, 2),
        desired=_all_have_ended,
        invariants=(_EndsGangs, Gangs),
        gates={"GenericWorkload": True, "GangScheduling": True},
    ),
    Scenario(
        "preempting pod groups",
        ("scheduler", "disruption", "podgroup-protection"),
        (
            Step("fill the nodes", create(*_FILLING)),
            Step("create an urgent gang", create(*_URGENT), UNTIL_SETTLED),
        ),
        nodes=nodes_with(2, 3, stop_delay_seconds=0.0),
        exact=(),
        desired=_urgent_runs,
        invariants=(Gangs, ProtectedPods, _Evictions),
        gates=ALL_GATES,
    ),
    Scenario(
        "pod groups of jobs",
        ("job", "scheduler", "podgroup-protection", "garbagecollector"),
        (
            Step("create Jobs", create(_job("train"), *_zoned_job("zoned"), *_zoned_job("zoned-too"))),
            Step("delete the Jobs", _delete_jobs, UNTIL_SETTLED),
        ),
        nodes=nodes_with(4, 2, zones=("zone-a", "zone-b")),
        exact=("pods", "podgroups", "workloads"),
        desired=_nothing_is_left,
        invariants=(_EndsJobs, Gangs),
        gates=ALL_GATES,
    ),
)
