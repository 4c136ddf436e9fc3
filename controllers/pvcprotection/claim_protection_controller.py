"""Claim protection: adds the finalizer pvc-protection to claims, and removes it when no Pod uses a deleted one.

Source: v1.36 pkg/controller/volume/pvcprotection/pvc_protection_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.controllers.api.watches import For, InIndex, Watches
from kubeloop.controllers.protection.protection_controller import ProtectionController, protects
from kubeloop.controllers.runtime.pods.volume_claims import by_claim, claims_of_pod
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim

FINALIZER = "kubernetes.io/pvc-protection"


def _key_in_deletion(claim: PersistentVolumeClaim) -> Iterable[str]:
    return () if claim.metadata.deletion_timestamp is None else (claim.key,)


class ClaimProtectionController(ProtectionController):
    """Reconciles PersistentVolumeClaims."""

    name = "pvcprotection"
    resource, finalizer = PERSISTENT_VOLUME_CLAIMS, FINALIZER
    watches = (
        For(resource, predicates=[protects(FINALIZER)], indexes={"in deletion": _key_in_deletion}),
        Watches(PODS, InIndex(resource, "in deletion", by_claim), indexes={"claim": by_claim}),
    )

    async def is_used(self, obj: PersistentVolumeClaim) -> bool:
        """Return True if a Pod uses the claim, in the cache or in a list from the API server, which may be newer."""
        key = obj.key
        if any(uses_claim(pod, key) for pod in self.cache.by_index(PODS, "claim", key)):
            return True
        return any(uses_claim(pod, key) for pod in await self.client.list(PODS, obj.metadata.namespace))


def uses_claim(pod: Pod, key: str) -> bool:
    """Return True if a scheduled Pod uses the claim. Pods are not scheduled for a claim in deletion."""
    claims = dict(claims_of_pod(pod))
    if not pod.spec.node_name or key not in claims:
        return False
    metadata = pod.metadata
    stopped = metadata.deletion_timestamp is not None and not metadata.deletion_grace_period_seconds
    return not stopped or claims[key] is None  # a stopped Pod may wait for the deletion of an earlier ephemeral claim
