"""ResourceClaims of a Pod and of a PodGroup: their names, owners and reservations.

A PodGroup shares a claim with a Pod whose entry in spec.resourceClaims equals its own (feature gate
DRAWorkloadResourceClaims). Pure functions. Source:
staging/src/k8s.io/dynamic-resource-allocation/resourceclaim/resourceclaim.go.
"""

from __future__ import annotations

from contextlib import suppress

from kubeloop.kube.objects.api_types import Pod, PodResourceClaim
from kubeloop.kube.objects.device_types import ResourceClaim, ResourceClaimConsumerReference
from kubeloop.kube.objects.object_fields import controller_of
from kubeloop.kube.objects.workload_types import PodGroup, PodGroupResourceClaim

_GROUP, _PLURAL = "scheduling.k8s.io", "podgroups"

FINALIZER = "resource.kubernetes.io/delete-protection"
"""Finalizer that the scheduler adds to a claim when it allocates it."""

EXTENDED_RESOURCE_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
"""Annotation, "true" on the claim that the scheduler creates for the extended resources of a Pod."""


class ClaimNotCreated(Exception):
    """The status of the Pod names no claim yet for a claim template in its spec."""


def claim_name(pod: Pod, pod_claim: PodResourceClaim) -> str | None:
    """Return the name of the ResourceClaim of an entry in spec.resourceClaims; None if the Pod needs no claim for it.

    Raises ClaimNotCreated.
    """
    if pod_claim.resource_claim_name is not None:
        return pod_claim.resource_claim_name
    for status in pod.status.resource_claim_statuses:
        if status.get("name") == pod_claim.name:
            name: str | None = status.get("resourceClaimName")
            return name
    raise ClaimNotCreated(f'pod "{pod.key}": ResourceClaim not created yet')


def claim_keys(pod: Pod) -> tuple[str, ...]:
    """Return "namespace/name" of the ResourceClaims of a Pod, each once; none for templates without a claim yet."""
    names = set()
    for entry in pod.spec.resource_claims:
        with suppress(ClaimNotCreated):
            names.add(claim_name(pod, entry))
    return tuple(f"{pod.metadata.namespace}/{name}" for name in names if name is not None)


def group_claim_name(pod_group: PodGroup, entry: PodGroupResourceClaim) -> str | None:
    """Return the name of the ResourceClaim of a PodGroup's entry, as claim_name() does. Raises ClaimNotCreated."""
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    for status in pod_group.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name
    raise ClaimNotCreated(f"PodGroup {pod_group.key}: ResourceClaim not created yet")


def is_shared(pod_claim: PodResourceClaim, pod_group: PodGroup) -> bool:
    """Return True if the PodGroup of a Pod, instead of the Pod, is the consumer of an entry's claim."""
    return any(
        (entry.name, entry.resource_claim_name, entry.resource_claim_template_name)
        == (pod_claim.name, pod_claim.resource_claim_name, pod_claim.resource_claim_template_name)
        for entry in pod_group.spec.resource_claims
    )


def is_owned_by(claim: ResourceClaim, consumer: Pod | PodGroup) -> bool:
    """Return True if the claim was created for the consumer. Others must not be used for a claim template."""
    owner = controller_of(claim.metadata)
    return owner is not None and owner.uid == consumer.metadata.uid


def is_deallocation(old: ResourceClaim | None, new: ResourceClaim) -> bool:
    return old is not None and old.status.allocation is not None and new.status.allocation is None


def consumer_reference(consumer: Pod | PodGroup) -> ResourceClaimConsumerReference:
    """Return the entry of status.reservedFor for a consumer."""
    group, plural = ("", "pods") if isinstance(consumer, Pod) else (_GROUP, _PLURAL)
    metadata = consumer.metadata
    return ResourceClaimConsumerReference(api_group=group, resource=plural, name=metadata.name, uid=metadata.uid)


def is_reserved_for(claim: ResourceClaim, consumer: Pod | PodGroup) -> bool:
    return any(entry.uid == consumer.metadata.uid for entry in claim.status.reserved_for)


def is_owned_by_group(claim: ResourceClaim, pod: Pod) -> bool:
    """Return True if the claim was created for the PodGroup of the Pod, whose UID the Pod does not have."""
    owner, group = controller_of(claim.metadata), pod.spec.scheduling_group
    return (
        owner is not None
        and group is not None
        and (owner.kind, owner.name) == ("PodGroup", group.pod_group_name)
        and owner.api_version.startswith(f"{_GROUP}/")
    )


def is_reserved_for_group(claim: ResourceClaim, pod: Pod) -> bool:
    """Return True if the claim is reserved for the PodGroup of the Pod."""
    group = pod.spec.scheduling_group
    return group is not None and any(
        (consumer.api_group, consumer.resource, consumer.name) == (_GROUP, _PLURAL, group.pod_group_name)
        for consumer in claim.status.reserved_for
    )
