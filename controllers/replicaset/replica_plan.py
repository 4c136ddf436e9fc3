"""Plan of a ReplicaSet's reconcile: how many Pods to create, which to delete, and the JSON of a new Pod.

Pure functions. Source: manageReplicas in pkg/controller/replicaset/replica_set.go, GetPodFromTemplate in
pkg/controller/controller_utils.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

import msgspec

from kubeloop.controllers.replicaset.deletion_order import pods_to_delete
from kubeloop.controllers.replicaset.pod_groups import PodsByGroup
from kubeloop.controllers.replicaset.related_pods import PodsPerNode
from kubeloop.controllers.runtime.owner_references import controller_reference
from kubeloop.kube.objects.api_types import JSONValue, Pod, ReplicaSet
from kubeloop.kube.objects.object_fields import replicas_of

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_MAX_NAME_LENGTH = 253


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


def generate_name(owner_name: str) -> str:
    """Return the generateName prefix of an owner's Pods: with a dash, unless that gives no valid Pod name."""
    prefix = f"{owner_name}-"
    masked = f"{prefix[:-2]}a"  # maskTrailingDash of apimachinery, used to validate generateName
    if len(masked) <= _MAX_NAME_LENGTH and _SUBDOMAIN.fullmatch(masked):
        return prefix
    return owner_name


def pod_from_template(rs: ReplicaSet) -> dict[str, JSONValue]:
    """Return the JSON of a Pod of `rs`, to be created in its namespace."""
    template = rs.spec.template
    template_metadata = template.get("metadata") or {}
    metadata: dict[str, JSONValue] = {
        "generateName": generate_name(rs.metadata.name),
        "ownerReferences": [controller_reference(rs)],
    }
    for name in ("labels", "annotations", "finalizers"):
        if template_metadata.get(name):
            metadata[name] = template_metadata[name]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec") or {}}
