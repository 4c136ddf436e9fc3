"""PodGroup protection: removes the finalizer of a PodGroup in deletion when all of its Pods have terminated.

The API server adds the finalizer when a PodGroup is created. Source: v1.36
pkg/controller/scheduling/podgroupprotection/podgroup_protection_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.controllers.runtime.controller import Controller, EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.writes.object_patch import merge_object
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.object_fields import is_finished, pod_group_key
from kubeloop.kube.objects.resources import POD_GROUPS, PODS
from kubeloop.kube.objects.workload_types import PodGroup

FINALIZER = "scheduling.k8s.io/podgroup-protection"
_ACTIVE_PODS = "active pods by pod group"


class PodGroupProtectionController(EventDrivenController):
    """Reconciles PodGroups; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        pod_groups, pods = context.informers.informer(POD_GROUPS), context.informers.informer(PODS)
        self._pod_groups, self._pods = pod_groups.store, pods.store
        self._pods.add_index(_ACTIVE_PODS, active_group_keys)
        self._queue = context.new_queue("podgroupprotection")
        self._controller = Controller("podgroupprotection", self.reconcile, self._queue, context.workers, context)
        self._registrations = (
            pod_groups.on_latest(self._add),
            pods.on_events(added=self._on_pod, updated=self._on_pod_update, deleted=self._add_group_of),
        )

    def _add(self, pod_group: PodGroup) -> None:
        if is_deletion_candidate(pod_group):
            self._queue.add(pod_group.key)

    def _on_pod(self, pod: Pod) -> None:
        if is_finished(pod):
            self._add_group_of(pod)

    def _on_pod_update(self, old: Pod, new: Pod) -> None:
        self._on_pod(new)
        if old.metadata.uid != new.metadata.uid:
            self._add_group_of(old)  # deleted and created again between two events

    def _add_group_of(self, pod: Pod) -> None:
        if (key := pod_group_key(pod)) is not None:
            self._queue.add(key)

    async def reconcile(self, key: str) -> float | None:
        """Remove the finalizer of a PodGroup that is not used. An exception means: retry with backoff."""
        pod_group = self._pod_groups.get(key)
        if pod_group is None or not is_deletion_candidate(pod_group) or self._pods.by_index(_ACTIVE_PODS, key):
            return None
        remaining = [finalizer for finalizer in pod_group.metadata.finalizers if finalizer != FINALIZER]
        await merge_object(self._client, POD_GROUPS, pod_group, metadata={"finalizers": remaining})
        return None


def is_deletion_candidate(pod_group: PodGroup) -> bool:
    """Return True for a PodGroup in deletion that has the finalizer."""
    return pod_group.metadata.deletion_timestamp is not None and FINALIZER in pod_group.metadata.finalizers


def active_group_keys(pod: Pod) -> Iterable[str]:
    """Return the key of the PodGroup of a Pod that has not terminated, for an index."""
    key = pod_group_key(pod)
    return () if key is None or is_finished(pod) else (key,)
