"""Reservations of a ResourceClaim that have ended, its deallocation, and its deletion.

Pure functions. Source: syncClaim of v1.36 pkg/controller/resourceclaim/controller.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kubeloop.controllers.resourceclaim.pod_claim_plan import is_done
from kubeloop.kube.objects.api_types import JSONValue, OwnerReference, Pod, to_json
from kubeloop.kube.objects.device_types import ResourceClaim, ResourceClaimConsumerReference
from kubeloop.kube.objects.pod_claims import FINALIZER
from kubeloop.kube.objects.resources import POD_GROUPS, PODS, Resource
from kubeloop.kube.objects.workload_types import PodGroup

FindPod = Callable[[str], Pod | None]
"""Returns the Pod of a name in the claim's namespace."""

FindGroup = Callable[[str], PodGroup | None]
"""Returns the PodGroup of a name in the claim's namespace."""


@dataclass(frozen=True, slots=True)
class ClaimRelease:
    """status: fields of the status to write, null to remove one; {} for no write. removes_finalizer: afterwards."""

    status: dict[str, JSONValue]
    removes_finalizer: bool


def consumer_resource(consumer: ResourceClaimConsumerReference, *, groups: bool) -> Resource[Any] | None:
    """Return the resource of a consumer, None for other kinds. groups: PodGroups are consumers, too."""
    named = (consumer.api_group, consumer.resource)
    if named == (PODS.group, PODS.plural):
        return PODS
    return POD_GROUPS if groups and named == (POD_GROUPS.group, POD_GROUPS.plural) else None


def consumer_state(
    consumer: ResourceClaimConsumerReference,
    find: FindPod,
    is_deleted: Callable[[str], bool],
    find_group: FindGroup | None = None,
) -> Literal["active", "ended", "unknown"]:
    """Return whether a consumer may still use the claim; unknown: only the API server can tell.

    is_deleted: returns True for the UID of a consumer whose deletion has been observed. Consumers of other kinds, and
    PodGroups without `find_group`, are active.
    """
    resource = consumer_resource(consumer, groups=find_group is not None)
    if resource is None:
        return "active"
    if is_deleted(consumer.uid):
        return "ended"
    if resource is POD_GROUPS:
        assert find_group is not None
        pod_group = find_group(consumer.name)
        if pod_group is None:
            return "unknown"
        return "active" if pod_group.metadata.uid == consumer.uid else "ended"
    pod = find(consumer.name)
    if pod is None:
        return "unknown"
    return "ended" if pod.metadata.uid != consumer.uid or is_done(pod) else "active"


def plan_release(claim: ResourceClaim, remaining: Sequence[ResourceClaimConsumerReference]) -> ClaimRelease:
    """Return the writes to a claim of which only the `remaining` reservations are active.

    A claim is deallocated when its last reservation ends, and when it is deleted without any; one that is allocated
    and was never reserved stays allocated. Only claims with the finalizer were allocated by a scheduler.
    """
    status = claim.status
    is_released = len(remaining) < len(status.reserved_for)
    has_finalizer = FINALIZER in claim.metadata.finalizers
    ends = not remaining and (is_released or claim.metadata.deletion_timestamp is not None)
    fields: dict[str, JSONValue] = {}
    if is_released:
        fields["reservedFor"] = [to_json(consumer) for consumer in remaining] or None
    if ends and has_finalizer and status.allocation is not None:
        fields["allocation"] = None
    return ClaimRelease(fields, removes_finalizer=ends and has_finalizer)


def is_unused(claim: ResourceClaim, find: FindPod) -> bool:
    """Return True if the Pod that the claim was created for is finished or replaced. Requires a claim not reserved.

    The garbage collector deletes claims of Pods that do not exist.
    """
    owner = _owning_pod(claim)
    pod = find(owner.name) if owner is not None else None
    return owner is not None and pod is not None and (pod.metadata.uid != owner.uid or is_done(pod))


def _owning_pod(claim: ResourceClaim) -> OwnerReference | None:
    for owner in claim.metadata.owner_references:
        if owner.controller and owner.api_version == "v1" and owner.kind == "Pod":
            return owner
    return None
