"""PodGroup protection: removes the finalizer of a PodGroup in deletion when all of its Pods have terminated.

The API server adds the finalizer when a PodGroup is created. Source: v1.36
pkg/controller/scheduling/podgroupprotection/podgroup_protection_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.controllers.api.objects import Request
from kubeloop.controllers.api.watches import For, Watches
from kubeloop.controllers.protection.protection_controller import ProtectionController, protects
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.object_fields import is_finished, pod_group_key
from kubeloop.kube.objects.resources import POD_GROUPS, PODS
from kubeloop.kube.objects.workload_types import PodGroup

FINALIZER = "scheduling.k8s.io/podgroup-protection"


def active_group_keys(pod: Pod) -> Iterable[str]:
    """Return the key of the PodGroup of a Pod that has not terminated, for an index."""
    key = pod_group_key(pod)
    return () if key is None or is_finished(pod) else (key,)


def _group_of(pod: Pod) -> list[Request]:
    key = pod_group_key(pod)
    return [] if key is None else [Request.parse(key)]


def _has_ended(old: Pod | None, new: Pod | None) -> bool:
    """Return True if a Pod has terminated, was deleted, or was deleted and created again between two events."""
    return new is None or is_finished(new) or (old is not None and old.metadata.uid != new.metadata.uid)


class PodGroupProtectionController(ProtectionController):
    """Reconciles PodGroups."""

    name = "podgroupprotection"
    resource, finalizer, adds_finalizer = POD_GROUPS, FINALIZER, False
    watches = (
        For(resource, predicates=[protects(FINALIZER, adds_finalizer=False)]),
        Watches(PODS, _group_of, predicates=[_has_ended], indexes={"active": active_group_keys}),
    )

    async def is_used(self, obj: PodGroup) -> bool:
        return bool(self.cache.by_index(PODS, "active", obj.key))
