"""Claim protection: adds the finalizer pvc-protection to claims, and removes it when no Pod uses a deleted one.

Source: v1.36 pkg/controller/volume/pvcprotection/pvc_protection_controller.go.
"""

from __future__ import annotations

from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.pods.volume_claims import CLAIM_INDEX, by_claim, claims_of_pod
from kubeloop.controllers.runtime.protection_controller import ProtectionController
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim

FINALIZER = "kubernetes.io/pvc-protection"


class ClaimProtectionController(ProtectionController[PersistentVolumeClaim]):
    """Reconciles PersistentVolumeClaims; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "pvcprotection", PERSISTENT_VOLUME_CLAIMS, FINALIZER)
        pods = context.informers.informer(PODS)
        self._pods = pods.store
        self._pods.add_index(CLAIM_INDEX, by_claim)
        self._registrations = (*self._registrations, pods.on_latest(self.on_pod, deleted=self.on_pod))

    def on_pod(self, pod: Pod) -> None:
        """Enqueue the terminating claims of a Pod."""
        if pod.spec.volumes:
            for key, _ in claims_of_pod(pod):
                claim = self._objects.get(key)
                if claim is not None and claim.metadata.deletion_timestamp is not None:
                    self.queue.add(key)

    async def is_used(self, obj: PersistentVolumeClaim) -> bool:
        """Return True if a Pod uses the claim, in the cache or in a list from the API server, which may be newer."""
        key = obj.key
        if any(uses_claim(pod, key) for pod in self._pods.by_index(CLAIM_INDEX, key)):
            return True
        pods = await self._client.list_all(PODS, obj.metadata.namespace)
        return any(uses_claim(pod, key) for pod in pods.items)


def uses_claim(pod: Pod, key: str) -> bool:
    """Return True if a scheduled Pod uses the claim. Pods are not scheduled for a claim in deletion."""
    claims = dict(claims_of_pod(pod))
    if not pod.spec.node_name or key not in claims:
        return False
    metadata = pod.metadata
    stopped = metadata.deletion_timestamp is not None and not metadata.deletion_grace_period_seconds
    return not stopped or claims[key] is None  # a stopped Pod may wait for the deletion of an earlier ephemeral claim
