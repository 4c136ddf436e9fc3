"""Owners of volume claims, which persistentVolumeClaimRetentionPolicy decides.

A claim is deleted by the garbage collector with its owner: the StatefulSet (whenDeleted), or the Pod of an ordinal that
is scaled down (whenScaled). Pure functions. Source: pkg/controller/statefulset/stateful_set_utils.go.
"""

from __future__ import annotations

from kubeloop.controllers.statefulset.stateful_pods import is_in_range, ordinal_of
from kubeloop.kube.objects.api_types import JSONValue, Object, OwnerReference, Pod, StatefulSet, to_json
from kubeloop.kube.objects.object_fields import controller_reference
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim

_DELETE = "Delete"


def _retention(sts: StatefulSet) -> tuple[bool, bool]:
    """Return whether claims are deleted with the StatefulSet, and when it is scaled down."""
    policy = sts.spec.persistent_volume_claim_retention_policy
    if policy is None:
        return False, False
    return policy.when_deleted == _DELETE, policy.when_scaled == _DELETE


def _owners(sts: StatefulSet, pod: Pod) -> tuple[Object, ...]:
    """Return the owner that the policy gives the claims of a Pod, if any."""
    when_deleted, when_scaled = _retention(sts)
    if when_scaled and not is_in_range(sts, ordinal_of(pod)):
        return (pod,)
    return (sts,) if when_deleted else ()


def _refers_to_name(reference: OwnerReference, owner: Object) -> bool:
    """Return True if the reference has kind and name of `owner`, with whatever UID."""
    return (reference.api_version, reference.kind, reference.name) == (
        owner.api_version,
        owner.kind,
        owner.metadata.name,
    )


def _has_owner(claim: PersistentVolumeClaim, owner: Object) -> bool:
    return any(reference.uid == owner.metadata.uid for reference in claim.metadata.owner_references)


def _has_former_owner(claim: PersistentVolumeClaim, owner: Object) -> bool:
    """Return True if the claim belongs to a deleted object with the name of `owner`."""
    for reference in claim.metadata.owner_references:
        if _refers_to_name(reference, owner):
            return reference.uid != owner.metadata.uid
    return False


def has_other_controller(claim: PersistentVolumeClaim, sts: StatefulSet, pod: Pod) -> bool:
    """Return True if claims are to be deleted, but another object than StatefulSet or Pod controls this one."""
    if not any(_retention(sts)):
        return False
    for reference in claim.metadata.owner_references:
        owner = next((owner for owner in (sts, pod) if _refers_to_name(reference, owner)), None)
        if owner is not None:
            if reference.uid != owner.metadata.uid:
                return True
        elif reference.controller:
            return True
    return False


def owners_match_policy(claim: PersistentVolumeClaim, sts: StatefulSet, pod: Pod) -> bool:
    """Return True if the owners of a claim are those of the policy, or are not to be changed."""
    if _has_former_owner(claim, sts) or _has_former_owner(claim, pod):
        return True
    if has_other_controller(claim, sts, pod):
        return not _has_owner(claim, sts) and not _has_owner(claim, pod)
    uids = (sts.metadata.uid, pod.metadata.uid)
    if any(reference.uid in uids and not reference.controller for reference in claim.metadata.owner_references):
        return False
    desired = _owners(sts, pod)
    return all(_has_owner(claim, owner) == (owner in desired) for owner in (sts, pod))


def owner_references_by_policy(claim: PersistentVolumeClaim, sts: StatefulSet, pod: Pod) -> list[JSONValue]:
    """Return the owner references of a claim, with those to StatefulSet and Pod as the policy says."""
    others = [
        reference
        for reference in claim.metadata.owner_references
        if not _refers_to_name(reference, sts) and not _refers_to_name(reference, pod)
    ]
    references = [to_json(reference) for reference in others]
    if not has_other_controller(claim, sts, pod):
        uids = {reference.uid for reference in others}
        references += [controller_reference(owner) for owner in _owners(sts, pod) if owner.metadata.uid not in uids]
    return references


def awaits_former_pod(claim: PersistentVolumeClaim, sts: StatefulSet, pod_name: str) -> bool:
    """Return True if the claim is deleted with a former Pod of this name, so that a new Pod must not use it."""
    return _retention(sts)[1] and any(
        (reference.api_version, reference.kind, reference.name) == ("v1", "Pod", pod_name)
        for reference in claim.metadata.owner_references
    )
