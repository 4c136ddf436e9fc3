"""Scenarios whose objects and changes are drawn from the seed of the run."""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any

from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.objects.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from kubeloop.testing.faults.fault_plan import FaultPlan
from support.faults.cluster import Cluster
from support.faults.objects import (
    JSON,
    container,
    controller_of,
    is_finished,
    is_terminating,
    is_true,
    manifest,
    name_of,
)
from support.faults.scenario import Scenario, Step, create
from support.faults.scenarios.batch import JOB, CountedOnce, FinishedForever, job
from support.faults.scenarios.pod_groups import (
    ALL_GATES,
    ZONE,
    Gangs,
    domains_of,
    member,
    min_count,
    nodes_with,
    pod_group,
    pods_in,
)
from support.faults.scenarios.workloads import (
    DAEMON_SET,
    DEPLOYMENT,
    STATEFUL_SET,
    daemon_set,
    deployment,
    stateful_set,
)

_MOST_REPLICAS = 6


def _steps(change: Any, count: int, seconds: float) -> list[Step]:
    return [Step(f"change {number}", change, seconds) for number in range(1, count + 1)]


def _image(number: int) -> JSON:
    return {"template": {"spec": {"containers": [container(f"app:{number}")]}}}


# --- Deployments ------------------------------------------------------------------------------------------------------


def _strategy(rng: random.Random) -> JSON:
    surge, unavailable = rng.choice(
        ((1, 0), (0, 1), (2, "50%"), ("25%", "25%"), ("100%", "0%"), (0, "100%"), (None, None))
    )
    if surge is None:
        return {"type": "Recreate", "rollingUpdate": None}
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def _change_deployment(cluster: Cluster) -> None:
    rng = cluster.rng
    spec = rng.choice(
        (
            _image(rng.randrange(1, 4)),
            _image(rng.randrange(1, 4)),
            {"replicas": rng.randrange(_MOST_REPLICAS)},
            {"paused": rng.random() < 0.5},
            {"strategy": _strategy(rng)},
        )
    )
    cluster.patch(DEPLOYMENTS, "web", {"spec": spec})


def _end_deployment(cluster: Cluster) -> None:
    cluster.patch(DEPLOYMENTS, "web", {"spec": {**_image(4), "paused": False}})


class _Growth:
    """When a ReplicaSet grows, all together have at most replicas + maxSurge.

    Of a Deployment that was observed last, or that is not observed yet: the controller may have read any of these.
    """

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        # a write that arrives late, or twice, follows a Deployment that another sync has observed since
        self._checks = not plan.of_kind("old-lists", "crash-late", "freeze-leader", "slow", "silent", "duplicate")
        self._most: dict[int, int] = {}  # by generation
        cluster.store.subscribe(DEPLOYMENTS, self._on_deployment)
        cluster.store.subscribe(REPLICA_SETS, self._on_replica_set)

    def _on_deployment(self, change: Change) -> None:
        obj = change.now.object
        replicas, surge = obj["spec"]["replicas"], obj["spec"]["strategy"].get("rollingUpdate", {}).get("maxSurge", 0)
        if isinstance(surge, str):
            surge = math.ceil(replicas * int(surge.removesuffix("%")) / 100)
        self._most[obj["metadata"]["generation"]] = replicas + surge

    def _on_replica_set(self, change: Change) -> None:
        before = change.before.object["spec"]["replicas"] if change.before is not None else 0
        web = self._cluster.get(DEPLOYMENTS, "web")
        if (
            not self._checks
            or web is None
            or change.type == "DELETED"
            or change.now.object["spec"]["replicas"] <= before
        ):
            return
        observed = web.get("status", {}).get("observedGeneration", 0)
        most = max(most for generation, most in self._most.items() if generation >= observed)
        total = sum(rs["spec"]["replicas"] for rs in self._cluster.all(REPLICA_SETS))
        if total > most:
            self._cluster.violate(f"the ReplicaSets grow to {total} replicas, at most {most} are allowed")


# --- StatefulSets -----------------------------------------------------------------------------------------------------


def _create_stateful_set(cluster: Cluster) -> None:
    policy = cluster.rng.choice(("OrderedReady", "Parallel"))
    cluster.apply(stateful_set("app:1", replicas=cluster.rng.randrange(_MOST_REPLICAS), podManagementPolicy=policy))


def _change_stateful_set(cluster: Cluster) -> None:
    rng = cluster.rng
    pods = cluster.pods_of("db")
    if pods and rng.random() < 0.3:
        cluster.delete(PODS, name_of(rng.choice(pods)))
        return
    spec = rng.choice((_image(rng.randrange(1, 4)), {"replicas": rng.randrange(_MOST_REPLICAS)}))
    cluster.patch(STATEFUL_SETS, "db", {"spec": spec})


# --- DaemonSets -------------------------------------------------------------------------------------------------------

_NO_EXECUTE = [{"key": "broken", "effect": "NoExecute"}]
_NO_SCHEDULE = [{"key": "busy", "effect": "NoSchedule"}]


def _create_nodes(cluster: Cluster) -> None:
    for number in range(4):
        cluster.apply(manifest(NODES, f"disk-{number}", labels={"disk": cluster.rng.choice(("ssd", "ssd", "hdd"))}))


def _change_nodes(cluster: Cluster) -> None:
    rng = cluster.rng
    nodes = sorted(name for name in map(name_of, cluster.all(NODES)) if name.startswith("disk"))
    node = rng.choice(nodes)
    match rng.randrange(6):
        case 0:
            cluster.apply(manifest(NODES, f"disk-{len(nodes) + rng.randrange(10, 99)}", labels={"disk": "ssd"}))
        case 1 if len(nodes) > 2:
            cluster.delete(NODES, node)
        case 2:
            cluster.patch(NODES, node, {"metadata": {"labels": {"disk": rng.choice(("ssd", "hdd"))}}})
        case 3:
            cluster.patch(NODES, node, {"spec": {"taints": rng.choice((_NO_EXECUTE, _NO_SCHEDULE, []))}})
        case 4 if pods := cluster.pods_of("agent"):
            cluster.delete(PODS, name_of(rng.choice(pods)))
        case _:
            cluster.patch(DAEMON_SETS, "agent", {"spec": _image(rng.randrange(1, 4))})


def _end_node_changes(cluster: Cluster) -> None:
    """Remove the taints that keep a pod on its node, but give the node no other one."""
    for node in cluster.all(NODES, lambda node: node["spec"].get("taints") == _NO_SCHEDULE):
        cluster.patch(NODES, name_of(node), {"spec": {"taints": []}})


# --- Jobs -------------------------------------------------------------------------------------------------------------


def _create_job(cluster: Cluster) -> None:
    rng = cluster.rng
    spec: JSON = {
        "completions": rng.randint(1, 6),
        "parallelism": rng.randint(1, 4),
        "completionMode": rng.choice(("NonIndexed", "Indexed")),
        "podReplacementPolicy": rng.choice(("TerminatingOrFailed", "Failed")),
    }
    if spec["completionMode"] == "Indexed" and rng.random() < 0.5:
        spec["backoffLimitPerIndex"] = rng.randint(0, 2)
    else:
        spec["backoffLimit"] = rng.choice((0, 2, 20))
    cluster.apply(job("work", **spec))


def _change_job(cluster: Cluster) -> None:
    spec = {"parallelism": cluster.rng.randint(1, 4), "suspend": cluster.rng.random() < 0.3}
    _patch_job(cluster, spec)


def _end_job_changes(cluster: Cluster) -> None:
    _patch_job(cluster, {"suspend": False})


def _patch_job(cluster: Cluster, spec: JSON) -> None:
    work = cluster.get(JOBS, "work")
    if work is not None and not is_true(work, "Complete") and not is_true(work, "Failed"):
        cluster.patch(JOBS, "work", {"spec": spec})


class _SomePodsFail:
    """Lets a fifth of the pods of Jobs fail."""

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        self._rng = random.Random(f"failing pods/{cluster.seed}")
        cluster.store.subscribe(PODS, self._on_pod)

    def _on_pod(self, change: Change) -> None:
        if change.type == "ADDED" and controller_of(change.now.object) and self._rng.random() < 0.2:
            asyncio.get_running_loop().call_soon(self._fail, name_of(change.now.object))

    def _fail(self, name: str) -> None:
        self._cluster.patch(PODS, name, {"metadata": {"annotations": {"kubeloop.dev/exit-code": "1"}}})


# --- pod groups -------------------------------------------------------------------------------------------------------

_GROUPS = ("group-0", "group-1", "group-2", "group-3")
_LARGEST_GROUP = 3  # pods at first


def _create_group(cluster: Cluster) -> None:
    """Create a pod group, or one of the same name again: some are gangs, in one zone, or of high priority."""
    rng = cluster.rng
    name, size = rng.choice(_GROUPS), rng.randint(1, _LARGEST_GROUP)
    if cluster.get(POD_GROUPS, name) is not None:
        return
    spec: JSON = {}
    priority = {"priorityClassName": "high"} if rng.random() < 0.3 else {}
    if rng.random() < 0.3:
        spec["schedulingConstraints"] = {"topology": [{"key": ZONE}]}
    elif rng.random() < 0.5:
        spec["disruptionMode"] = "PodGroup"
    cluster.apply(pod_group(name, rng.randint(0, size), **spec, **priority))
    for number in range(size):
        cluster.apply(member(name, number, **priority))


def _create_groups(cluster: Cluster) -> None:
    cluster.apply(manifest(PRIORITY_CLASSES, "high", value=1000))
    for _ in _GROUPS:
        _create_group(cluster)


def _change_groups(cluster: Cluster) -> None:
    rng = cluster.rng
    name = rng.choice(_GROUPS)
    pods = sorted(map(name_of, pods_in(cluster, name)))
    match rng.randrange(6):
        case 0 if pods:
            cluster.delete(PODS, rng.choice(pods))
        case 1 if cluster.get(POD_GROUPS, name) is not None:
            cluster.apply(member(name, rng.randrange(10, 1000)))
        case 2:
            cluster.delete(POD_GROUPS, name)
        case 3:
            cluster.delete(POD_GROUPS, name)
            for pod in pods:
                cluster.delete(PODS, pod)
        case 4:
            cluster.patch(NODES, f"node-{rng.randrange(3)}", {"spec": {"unschedulable": rng.random() < 0.5}})
        case _:
            _create_group(cluster)


def _make_room(cluster: Cluster) -> None:
    """Let all groups fit, in each zone."""
    for node in cluster.all(NODES):
        cluster.patch(NODES, name_of(node), {"spec": {"unschedulable": False}})
    room = {"cpu": "40", "memory": "32Gi", "pods": "110"}
    for zone in ("zone-a", "zone-b"):
        name = f"large-{zone}"
        cluster.apply(manifest(NODES, name, labels={ZONE: zone}))
        cluster.patch(NODES, name, {"status": {"capacity": room, "allocatable": room}}, subresource="status")


def _complete_groups_run(cluster: Cluster) -> list[str]:
    """The pods of a group are bound if it has minCount of them; groups in deletion have pods.

    As in v1.36, a group that an old list has brought into two domains gets no further pods.
    """
    problems = []
    for group in cluster.all(POD_GROUPS):
        pods = [pod for pod in pods_in(cluster, name_of(group)) if not is_finished(pod)]
        if is_terminating(group) and not pods:
            problems.append(f"PodGroup {name_of(group)} is terminating")
        if len(pods) >= min_count(group) and len(domains_of(cluster, group)) < 2:
            problems += [f"Pod {name_of(pod)} is not bound" for pod in pods if not pod["spec"].get("nodeName")]
    return problems


SCENARIOS = (
    Scenario(
        "changing deployment",
        DEPLOYMENT,
        (
            Step("apply app:1", create(deployment("app:1"))),
            *_steps(_change_deployment, 5, 2.0),
            Step("resume with app:4", _end_deployment, 2.0),
        ),
        exact=(),
        invariants=(_Growth,),
    ),
    Scenario(
        "changing statefulset",
        STATEFUL_SET,
        (Step("create a StatefulSet", _create_stateful_set), *_steps(_change_stateful_set, 5, 2.0)),
        exact=(),
    ),
    Scenario(
        "changing nodes",
        (*DAEMON_SET, "podgc"),
        (
            Step("create nodes", _create_nodes),
            Step(
                "create a DaemonSet",
                create(daemon_set("app:1", pod={"nodeSelector": {"disk": "ssd"}}, maxSurge=0, maxUnavailable=1)),
            ),
            *_steps(_change_nodes, 6, 2.0),
            Step("allow pods on all nodes", _end_node_changes, 1.0),
        ),
        exact=(),
    ),
    Scenario(
        "changing job",
        JOB,
        (
            Step("create a Job", _create_job),
            *_steps(_change_job, 3, 1.5),
            Step("resume it", _end_job_changes, 2.0),
        ),
        exact=(),
        invariants=(_SomePodsFail, FinishedForever, CountedOnce),
        one_final_state=False,
    ),
    Scenario(
        "changing pod groups",
        ("scheduler", "podgroup-protection"),
        (
            Step("create pod groups", _create_groups),
            *_steps(_change_groups, 8, 1.5),
            Step("create large nodes", _make_room, 2.0),
        ),
        nodes=nodes_with(3, 2, zones=("zone-a", "zone-b")),
        exact=(),
        desired=_complete_groups_run,
        invariants=(Gangs,),
        gates=ALL_GATES,
        one_final_state=False,
    ),
)
