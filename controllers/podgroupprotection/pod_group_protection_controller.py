"""PodGroup protection: removes the finalizer of a PodGroup in deletion when all of its Pods have terminated.

The API server adds the finalizer when a PodGroup is created. Source: v1.36
pkg/controller/scheduling/podgroupprotection/podgroup_protection_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.protection_controller import ProtectionController
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.object_fields import is_finished, pod_group_key
from kubeloop.kube.objects.resources import POD_GROUPS, PODS
from kubeloop.kube.objects.workload_types import PodGroup

FINALIZER = "scheduling.k8s.io/podgroup-protection"
_ACTIVE_PODS = "active pods by pod group"


class PodGroupProtectionController(ProtectionController[PodGroup]):
    """Reconciles PodGroups; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "podgroupprotection", POD_GROUPS, FINALIZER, adds_finalizer=False)
        pods = context.informers.informer(PODS)
        self._pods = pods.store
        self._pods.add_index(_ACTIVE_PODS, active_group_keys)
        self._registrations = (
            *self._registrations,
            pods.on_events(added=self._on_pod, updated=lambda _, new: self._on_pod(new), deleted=self._add_group_of),
        )

    def _on_pod(self, pod: Pod) -> None:
        if is_finished(pod):
            self._add_group_of(pod)

    def _add_group_of(self, pod: Pod) -> None:
        if (key := pod_group_key(pod)) is not None:
            self.queue.add(key)

    async def is_used(self, obj: PodGroup) -> bool:
        return bool(self._pods.by_index(_ACTIVE_PODS, obj.key))


def active_group_keys(pod: Pod) -> Iterable[str]:
    """Return the key of the PodGroup of a Pod that has not terminated, for an index."""
    key = pod_group_key(pod)
    return () if key is None or is_finished(pod) else (key,)
