"""Pools, zones and resources of nodes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from kubeloop.devcluster.kubelet.pods.pod_admission import amounts, requested_amounts
from kubeloop.kube.json_object import JSON
from kubeloop.planning.result import ResourceUse
from kubeloop.scheduler.cache.node_info import NodeInfo
from kubeloop.scheduler.scheduler import Scheduler

_POOL_LABELS: Final = (
    "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name",
    "kubernetes.azure.com/agentpool", "agentpool", "karpenter.sh/nodepool", "kops.k8s.io/instancegroup",
    "doks.digitalocean.com/node-pool", "node.cluster.x-k8s.io/pool", "node.kubernetes.io/instance-type",
)  # fmt: skip
_ZONE: Final = "topology.kubernetes.io/zone"
_NUMBER = re.compile(r"-?\d+$")
_RELATIONS: Final = ("affinity", "topologySpreadConstraints", "volumes", "resourceClaims")
_SHOWN: Final = ("cpu", "memory")


def pool_of(node: JSON) -> str:
    """Return the pool of a node by the labels of cloud providers, else by its name without the number at the end."""
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    for label in _POOL_LABELS:
        if label in labels:
            return labels[label]
    name: str = node["metadata"]["name"]
    return _NUMBER.sub("", name) or name


def zone_of(node: JSON) -> str:
    """Return the zone of a node, "" if it has none."""
    zone: str = (node["metadata"].get("labels") or {}).get(_ZONE, "")
    return zone


def nodes_for_requests(pods: Iterable[JSON], like: JSON) -> float:
    """Return how many nodes like this one the requests of pods need at least; infinity if one is larger than the node.

    Pods with affinity, spread constraints, volumes or claims do not count: a new node may let them fit on another one.
    """
    allocatable = amounts(like["status"].get("allocatable"))
    needed: Counter[str] = Counter()
    for pod in pods:
        if not any(pod["spec"].get(field) for field in _RELATIONS):
            for name, amount in requested_amounts(pod).items():
                if amount > allocatable.get(name, 0):
                    return math.inf
                needed[name] += amount
    return max((math.ceil(amount / allocatable[name]) for name, amount in needed.items() if amount), default=0)


class NodeUse:
    """Allocatable and requested amounts of all nodes, at one time; millicores of cpu, bytes of memory."""

    def __init__(self, nodes: Iterable[NodeInfo]) -> None:
        self.allocatable: Counter[str] = Counter()
        self.requested: Counter[str] = Counter()
        self.count = 0
        for info in nodes:
            self.count += 1
            self.allocatable.update(info.allocatable)
            self.requested.update(info.requested)
            self.requested["pods"] += len(info.pods)


def use_of(scheduler: Scheduler) -> NodeUse:
    """Return the amounts in the scheduler's cache."""
    scheduler.cache.update_snapshot(scheduler.snapshot)
    return NodeUse(scheduler.snapshot.node_infos)


def compare_use(before: NodeUse, after: NodeUse) -> dict[str, ResourceUse]:
    """Return the resources that pods request: cpu and memory, pods, then others by name."""
    names = {name for use in (before, after) for name, amount in use.requested.items() if amount}
    ordered = [*_SHOWN, "pods", *sorted(names - {*_SHOWN, "pods"})]
    return {
        name: ResourceUse(
            before.requested[name], before.allocatable[name], after.requested[name], after.allocatable[name]
        )
        for name in ordered
        if before.allocatable[name] or after.allocatable[name] or name in names
    }
