"""Scenarios of Deployments, StatefulSets and DaemonSets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.objects.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_QUOTAS,
    STATEFUL_SETS,
)
from kubeloop.testing.faults.fault_plan import FaultPlan, creates_are_certain
from support.faults.cluster import Cluster
from support.faults.invariants import RolloutLimits
from support.faults.objects import JSON, controller_of, image_of, is_active, is_ready, manifest, name_of, workload
from support.faults.scenario import UNTIL_SETTLED, Scenario, Step, create

DEPLOYMENT = ("deployment", "replicaset", "scheduler")
STATEFUL_SET = ("statefulset", "scheduler", "persistentvolume-binder", "pvc-protection")
DAEMON_SET = ("daemonset", "scheduler")


def deployment(image: str, *, replicas: int = 4, name: str = "web", **spec: Any) -> JSON:
    rolling_update = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
    return workload(DEPLOYMENTS, name, image=image, **{"replicas": replicas, "strategy": rolling_update, **spec})


def _roll_out(image: str, **spec: Any) -> Callable[[Cluster], object]:
    return create(deployment(image, **spec))


STALLING = {
    "recreated": {"strategy": {"type": "Recreate"}},
    "replaced": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "100%"}}},
    "surging": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
    "late": {"strategy": {"type": "Recreate"}, "progressDeadlineSeconds": 120},
}


def _stalling(image: str, annotations: Mapping[str, str]) -> Callable[[Cluster], object]:
    pod = {"annotations": annotations}
    return create(*(deployment(image, name=name, replicas=3, pod=pod, **spec) for name, spec in STALLING.items()))


def _delete_late_pod(cluster: Cluster) -> None:
    pods = [name_of(pod) for pod in cluster.pods_of("late") if image_of(pod) == "app:2"]
    if pods:
        cluster.delete(PODS, min(pods))


class _OneVersion:
    """With strategy Recreate, no pod is created while one of another version may run."""

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        # a pod of the former ReplicaSet may be created late, or again by a user
        self._checks = not plan.of_kind("crash-late", "replace-object", "old-lists", "slow", "freeze-leader")
        cluster.store.subscribe(PODS, self._on_pod)

    def _on_pod(self, change: Change) -> None:
        pods = [pod for pod in self._cluster.pods_of("web") if pod.get("status", {}).get("phase") != "Failed"]
        images = {*map(image_of, pods)}
        if self._checks and change.type == "ADDED" and len(images) > 1:
            self._cluster.violate(f"pods of {sorted(images)} exist at the same time")


class _NeverMore:
    """A quota limits the pods at every moment.

    As in v1.36, the controller counts the cached pods: when a user deletes one, it may not see yet those that have
    replaced others before. So there may be as many pods more as users have deleted.
    """

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        self._checks = not plan.of_kind("old-lists")
        self._deleted = 0
        cluster.store.subscribe(PODS, self._on_pod)

    def _on_pod(self, change: Change) -> None:
        if change.type == "DELETED":
            self._deleted += 1
        quota = self._cluster.get(RESOURCE_QUOTAS, "pods")
        if not self._checks or change.type != "ADDED" or quota is None:
            return
        active, limit = len(self._cluster.all(PODS, is_active)), int(quota["spec"]["hard"]["pods"])
        if active > limit + self._deleted:
            deleted = f" after {self._deleted} deletions" if self._deleted else ""
            self._cluster.violate(f"{active} pods exist{deleted}, the quota allows {limit}")


def _quota(pods: int) -> JSON:
    return manifest(RESOURCE_QUOTAS, "pods", spec={"hard": {"pods": str(pods)}})


def _used_quota(cluster: Cluster) -> list[str]:
    status = (cluster.get(RESOURCE_QUOTAS, "pods") or {}).get("status", {})
    used, pods = status.get("used", {}).get("pods"), str(len(cluster.all(PODS, is_active)))
    return [] if used == pods else [f"the quota counts {used} pods of {pods}"]


def stateful_set(image: str, *, replicas: int = 3, **spec: Any) -> JSON:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    mount = {"serviceName": "db", "volumeClaimTemplates": [claim], "replicas": replicas}
    return workload(STATEFUL_SETS, "db", image=image, **mount, **spec)


class _DaemonSetLimits:
    """While nodes and users leave the pods alone, all but maxUnavailable nodes have an available pod, once they had.

    maxSurge counts nodes with two pods.
    """

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        self._checks = not plan.of_kind("delete-object", "replace-object", "old-lists")
        self._certain_creates = creates_are_certain(plan)
        self._was_complete = False
        cluster.store.subscribe(NODES, self._on_node)
        cluster.store.subscribe(PODS, self._on_pod)

    def _on_node(self, change: Change) -> None:
        if change.type != "MODIFIED":
            self._was_complete = False

    def _on_pod(self, change: Change) -> None:
        ds, nodes = self._cluster.get(DAEMON_SETS, "agent"), len(self._cluster.all(NODES))
        if ds is None or not self._checks:
            return
        limits = ds["spec"]["updateStrategy"]["rollingUpdate"]
        pods = self._cluster.pods_of("agent")
        available = len({pod["spec"]["nodeName"] for pod in pods if is_ready(pod)})
        self._was_complete |= available == nodes
        if self._was_complete and available < nodes - limits["maxUnavailable"]:
            self._cluster.violate(f"pods are available on {available} of {nodes} nodes")
        surplus = sum(map(is_active, pods)) - nodes
        if self._was_complete and self._certain_creates and surplus > limits["maxSurge"]:
            self._cluster.violate(f"{surplus} nodes have two pods")


def _partitioned(image: str, partition: int) -> JSON:
    return stateful_set(image, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": partition}})


class _OldRevision:
    """A pod below the partition of a rolling update is created with the old revision."""

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        cluster.store.subscribe(PODS, self._on_pod)

    def _on_pod(self, change: Change) -> None:
        pod, sts = change.now.object, self._cluster.get(STATEFUL_SETS, "db")
        if change.type != "ADDED" or not controller_of(pod) or sts is None:
            return
        partition = sts["spec"]["updateStrategy"]["rollingUpdate"]["partition"]
        if int(name_of(pod).rpartition("-")[2]) < partition and image_of(pod) != "app:1":
            self._cluster.violate(f"Pod {name_of(pod)} is created with {image_of(pod)} below the partition {partition}")


def _claims(count: int) -> Callable[[Cluster], list[str]]:
    def check(cluster: Cluster) -> list[str]:
        names = {name_of(claim) for claim in cluster.all(PERSISTENT_VOLUME_CLAIMS)}
        expected = {f"data-db-{ordinal}" for ordinal in range(count)}
        return [] if names == expected else [f"there are claims {sorted(names)}"]

    return check


def daemon_set(image: str, *, pod: Mapping[str, Any] = {}, **limits: int) -> JSON:
    strategy = {"type": "RollingUpdate", "rollingUpdate": limits}
    return workload(DAEMON_SETS, "agent", image=image, pod=pod, updateStrategy=strategy)


def _add_node(cluster: Cluster) -> None:
    cluster.apply(manifest(NODES, "added"))


def _remove_node(cluster: Cluster) -> None:
    cluster.delete(NODES, "node-0")


SCENARIOS = (
    Scenario(
        "rollout",
        DEPLOYMENT,
        (
            Step("apply app:1", _roll_out("app:1")),
            Step("apply app:2", _roll_out("app:2"), UNTIL_SETTLED),
        ),
        invariants=(RolloutLimits,),
    ),
    Scenario(
        "rollback",
        DEPLOYMENT,
        (
            Step("apply app:1", _roll_out("app:1")),
            Step("apply app:2", _roll_out("app:2"), UNTIL_SETTLED),
            Step("apply app:1 again", _roll_out("app:1"), 1.5),
        ),
        exact=(),
    ),
    Scenario(
        "scale during rollout",
        DEPLOYMENT,
        (
            Step("apply app:1", _roll_out("app:1")),
            Step("apply app:2", _roll_out("app:2"), UNTIL_SETTLED),
            Step("scale to 7", _roll_out("app:2", replicas=7), 1.0),
            Step("scale to 3", _roll_out("app:2", replicas=3), 1.5),
        ),
        exact=(),
    ),
    Scenario(
        "pause",
        DEPLOYMENT,
        (
            Step("apply app:1", _roll_out("app:1")),
            Step("apply app:2", _roll_out("app:2"), UNTIL_SETTLED),
            Step("pause", _roll_out("app:2", paused=True), 1.0),
            Step("scale to 5", _roll_out("app:2", replicas=5, paused=True), 3.0),
            Step("resume", _roll_out("app:2", replicas=5, paused=False), 5.0),
        ),
        exact=(),
    ),
    Scenario(
        "recreate",
        DEPLOYMENT,
        (
            Step("apply app:1", _roll_out("app:1", strategy={"type": "Recreate"})),
            Step("apply app:2", _roll_out("app:2", strategy={"type": "Recreate"}), UNTIL_SETTLED),
        ),
        invariants=(_OneVersion,),
    ),
    Scenario(
        "stalled rollouts",
        DEPLOYMENT,
        (
            Step("apply app:1", _stalling("app:1", {})),
            Step("apply app:2, which does not become ready", _stalling("app:2", {"not-ready": "true"}), 15.0),
            Step("delete a pod after the deadline of one", _delete_late_pod, 150.0),
        ),
        exact=(),
        stalls=True,
    ),
    Scenario(
        "quota",
        (*DEPLOYMENT, "resourcequota"),
        (
            Step("allow 3 pods", create(_quota(3))),
            Step("apply 5 replicas", _roll_out("app:1", replicas=5), UNTIL_SETTLED),
            Step("allow 6 pods", create(_quota(6)), 5.0),
        ),
        exact=(),
        desired=_used_quota,
        invariants=(_NeverMore,),
    ),
    Scenario(
        "statefulset",
        STATEFUL_SET,
        (
            Step("apply app:1", create(stateful_set("app:1"))),
            Step("apply app:2", create(stateful_set("app:2")), UNTIL_SETTLED),
            Step("scale to 2", create(stateful_set("app:2", replicas=2)), UNTIL_SETTLED),
        ),
        exact=("pods", "persistentvolumeclaims"),
        desired=_claims(3),
    ),
    Scenario(
        "partitioned statefulset",
        STATEFUL_SET,
        (
            Step("apply app:1", create(_partitioned("app:1", 0))),
            Step("apply app:2 with a partition", create(_partitioned("app:2", 2)), UNTIL_SETTLED),
            Step("delete a pod below it", lambda cluster: cluster.delete(PODS, "db-0"), UNTIL_SETTLED),
            Step("remove the partition", create(_partitioned("app:2", 0)), UNTIL_SETTLED),
        ),
        exact=("pods", "persistentvolumeclaims", "controllerrevisions"),
        desired=_claims(3),
        invariants=(_OldRevision,),
    ),
    Scenario(
        "parallel statefulset",
        STATEFUL_SET,
        (
            Step("apply app:1", create(stateful_set("app:1", podManagementPolicy="Parallel"))),
            Step("apply app:2", create(stateful_set("app:2", podManagementPolicy="Parallel")), 1.5),
            Step("scale to 4", create(stateful_set("app:2", replicas=4, podManagementPolicy="Parallel")), 1.0),
        ),
        exact=("persistentvolumeclaims",),
        desired=_claims(4),
    ),
    Scenario(
        "daemonset",
        (*DAEMON_SET, "podgc"),
        (
            Step("apply app:1", create(daemon_set("app:1", maxSurge=0, maxUnavailable=1))),
            Step("apply app:2", create(daemon_set("app:2", maxSurge=0, maxUnavailable=1)), UNTIL_SETTLED),
            Step("add a node", _add_node, 1.0),
            Step("remove a node", _remove_node, UNTIL_SETTLED),
        ),
        nodes={"count": 3},
        invariants=(_DaemonSetLimits,),
    ),
    Scenario(
        "surging daemonset",
        DAEMON_SET,
        (
            Step("apply app:1", create(daemon_set("app:1", maxSurge=1, maxUnavailable=0))),
            Step("apply app:2", create(daemon_set("app:2", maxSurge=1, maxUnavailable=0)), UNTIL_SETTLED),
        ),
        nodes={"count": 3},
        invariants=(_DaemonSetLimits,),
    ),
)
