"""Claims as the scheduler sees them: those of the informer, newer ones that it has just written, and allocations that
are not written yet.

Source: pkg/scheduler/framework/plugins/dynamicresources/dra_manager.go and util/assumecache of v1.36.
"""

from __future__ import annotations

import msgspec

from kubeloop.informers.metadata_accessor import is_older
from kubeloop.informers.shared_informer import SharedInformer
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.device_types import AllocationResult, ResourceClaim
from kubeloop.kube.objects.object_fields import controller_of
from kubeloop.kube.objects.pod_claims import EXTENDED_RESOURCE_ANNOTATION
from kubeloop.scheduler.devices.cluster.device_usage import DeviceUsage


class PendingAllocation(msgspec.Struct, frozen=True):
    """An allocation that is not written yet. pods: UIDs of the pods that have reserved it."""

    allocation: AllocationResult
    pods: set[str]


class ClaimCache:
    """Handler of the informer of claims. Every change of an allocation changes the usage of devices.

    pending: allocations chosen by Reserve that are not written yet, by UID of the claim. Pods of a group share them.
    """

    def __init__(self, informer: SharedInformer[ResourceClaim], usage: DeviceUsage) -> None:
        self._informer = informer
        self._store = informer.store
        self._usage = usage
        self._assumed: dict[str, ResourceClaim] = {}  # responses to writes, until the informer shows them
        self._special: dict[str, str] = {}  # keys of claims for extended resources, by UID of the pod
        self.pending: dict[str, PendingAllocation] = {}

    def special_claim_of(self, pod: Pod) -> ResourceClaim | None:
        """Return the claim that was created for the extended resources of a pod."""
        key = self._special.get(pod.metadata.uid)
        return None if key is None else self.get(key)

    def get(self, key: str) -> ResourceClaim | None:
        return self._assumed.get(key) or self._store.get(key)

    def has_shown(self, claim: ResourceClaim) -> bool:
        """Return True if the informer shows a claim, or has reached its version: then it is deleted already."""
        version = self._informer.last_resource_version
        reached = version != "" and not is_older(version, claim.metadata.resource_version)
        return reached or self.get(claim.key) is not None

    def assume(self, claim: ResourceClaim) -> None:
        """Use the response to a write until the informer shows it or a newer state."""
        current = self.get(claim.key)
        if current is None or current.metadata.uid != claim.metadata.uid or _is_newer(current, claim):
            return
        self._assumed[claim.key] = claim
        self._count(claim)

    def pending_allocation(self, uid: str) -> AllocationResult | None:
        pending = self.pending.get(uid)
        return None if pending is None else pending.allocation

    def add_pending(self, uid: str, allocation: AllocationResult, pod: Pod) -> None:
        """Reserve an allocation for a pod. If another pod has reserved one for the claim, the pod shares that."""
        pending = self.pending.get(uid)
        if pending is None:
            pending = self.pending[uid] = PendingAllocation(allocation, set())
            self._usage.set_allocation(uid, allocation)
        pending.pods.add(pod.metadata.uid)

    def release_pending(self, claim: ResourceClaim, pod: Pod) -> AllocationResult | None:
        """Release what a pod has reserved; it stays reserved for other pods that share it.

        Returns the allocation that no pod has reserved any more; None if there is none.
        """
        pending = self.pending.get(claim.metadata.uid)
        if pending is None:
            return None
        pending.pods.discard(pod.metadata.uid)
        if pending.pods:
            return None
        self.remove_pending(claim)
        return pending.allocation

    def remove_pending(self, claim: ResourceClaim) -> None:
        """Remove the pending allocation of a claim, if it has one, for all pods: it is written."""
        if self.pending.pop(claim.metadata.uid, None) is None:
            return
        current = self.get(claim.key)
        is_current = current is not None and current.metadata.uid == claim.metadata.uid
        allocation = current.status.allocation if current is not None and is_current else None
        self._usage.set_allocation(claim.metadata.uid, allocation)

    def on_add(self, obj: ResourceClaim, initial: bool) -> None:
        self._count(obj)

    def on_update(self, old: ResourceClaim, new: ResourceClaim) -> None:
        assumed = self._assumed.get(new.key)
        if assumed is not None:
            if assumed.metadata.uid == new.metadata.uid and _is_newer(assumed, new):
                return
            del self._assumed[new.key]
        self._count(new)

    def on_delete(self, obj: ResourceClaim, final_state_unknown: bool) -> None:
        self._assumed.pop(obj.key, None)
        if (owner := _pod_of_special(obj)) and self._special.get(owner) == obj.key:
            del self._special[owner]
        self._usage.set_allocation(obj.metadata.uid, self.pending_allocation(obj.metadata.uid))

    def _count(self, claim: ResourceClaim) -> None:
        uid = claim.metadata.uid
        self._usage.set_allocation(uid, self.pending_allocation(uid) or claim.status.allocation)
        if owner := _pod_of_special(claim):
            self._special[owner] = claim.key


def _pod_of_special(claim: ResourceClaim) -> str:
    """Return the UID of the pod for whose extended resources a claim was created; "" for other claims."""
    if claim.metadata.annotations.get(EXTENDED_RESOURCE_ANNOTATION) != "true":
        return ""
    owner = controller_of(claim.metadata)
    return "" if owner is None else owner.uid


def _is_newer(one: ResourceClaim, other: ResourceClaim) -> bool:
    return is_older(other.metadata.resource_version, one.metadata.resource_version)
