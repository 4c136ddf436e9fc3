"""ResourceClaims of a Pod: their names, owners and reservations.

Pure functions. Source: staging/src/k8s.io/dynamic-resource-allocation/resourceclaim/resourceclaim.go.
"""

from __future__ import annotations

from kubeloop.kube.objects.api_types import Pod, PodResourceClaim
from kubeloop.kube.objects.device_types import ResourceClaim
from kubeloop.kube.objects.object_fields import controller_of


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


def is_owned_by(claim: ResourceClaim, pod: Pod) -> bool:
    """Return True if the claim was created for the Pod. A claim of a template with another owner must not be used."""
    owner = controller_of(claim.metadata)
    return owner is not None and owner.uid == pod.metadata.uid


def is_reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    return any(consumer.uid == pod.metadata.uid for consumer in claim.status.reserved_for)
