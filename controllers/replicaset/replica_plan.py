"""Plan of a ReplicaSet's reconcile: how many Pods to create and which to delete.

Pure functions. Source: manageReplicas in pkg/controller/replicaset/replica_set.go.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from kubeloop.controllers.replicaset.pod_deletion_order import pods_to_delete
from kubeloop.controllers.replicaset.pod_groups import PodsByGroup
from kubeloop.controllers.replicaset.related_pods import PodsPerNode
from kubeloop.kube.objects.api_types import Pod, ReplicaSet
from kubeloop.kube.objects.object_fields import replicas_of


class ReplicaPlan(msgspec.Struct, frozen=True):
    """Pods to create or to delete, never both."""

    create: int = 0
    delete: tuple[Pod, ...] = ()  # in deletion order

    @property
    def has_changes(self) -> bool:
        """Return True if there are Pods to create or delete."""
        return bool(self.create or self.delete)


def plan_replicas(
    rs: ReplicaSet,
    active: PodsByGroup,
    related: Callable[[], PodsPerNode],
    now: datetime,
    *,
    burst: int,
    by_cost: bool = True,
) -> ReplicaPlan:
    """Plan the creation or deletion of at most `burst` Pods.

    active: the owned, active Pods. related: returns the active Pods per node of all ReplicaSets of the same owner;
    called only if Pods have to be selected for deletion. by_cost: respect the Pods' deletion cost.
    """
    current = sum(len(pods) for pods in active.values())
    surplus = current - replicas_of(rs)
    if surplus < 0:
        return ReplicaPlan(create=min(-surplus, burst))
    count = min(surplus, burst)
    if count == 0:
        return ReplicaPlan()
    pods = [pod for group in active.values() for pod in group.values()]
    return ReplicaPlan(delete=tuple(pods_to_delete(pods, related, count, now, by_cost=by_cost)))
