"""Claim protection: adds the finalizer pvc-protection to claims, and removes it when no Pod uses a deleted one.

Source: v1.36 pkg/controller/volume/pvcprotection/pvc_protection_controller.go.
"""

from __future__ import annotations

from kubeloop.controllers.runtime.controller import Controller, EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.pods.volume_claims import CLAIM_INDEX, by_claim, claims_of_pod
from kubeloop.controllers.runtime.writes.object_patch import merge_object
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim

FINALIZER = "kubernetes.io/pvc-protection"


class ClaimProtectionController(EventDrivenController):
    """Reconciles PersistentVolumeClaims; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        claims, pods = context.informers.informer(PERSISTENT_VOLUME_CLAIMS), context.informers.informer(PODS)
        self._claims, self._pods = claims.store, pods.store
        self._pods.add_index(CLAIM_INDEX, by_claim)
        self._queue = context.new_queue("pvcprotection")
        self._controller = Controller("pvcprotection", self.reconcile, self._queue, context.workers, context)
        self._registrations = (
            claims.on_latest(lambda claim: self._queue.add(claim.key)),
            pods.on_latest(self.on_pod, deleted=self.on_pod),
        )

    def on_pod(self, pod: Pod) -> None:
        """Enqueue the terminating claims of a Pod."""
        if pod.spec.volumes:
            for key, _ in claims_of_pod(pod):
                claim = self._claims.get(key)
                if claim is not None and claim.metadata.deletion_timestamp is not None:
                    self._queue.add(key)

    async def reconcile(self, key: str) -> float | None:
        """Add or remove the finalizer of a claim. An exception means: retry with backoff."""
        claim = self._claims.get(key)
        if claim is None:
            return None
        finalizers = claim.metadata.finalizers
        if claim.metadata.deletion_timestamp is None:
            desired = finalizers if FINALIZER in finalizers else (*finalizers, FINALIZER)
        elif FINALIZER not in finalizers or await self._is_used(claim):
            desired = finalizers
        else:
            desired = tuple(finalizer for finalizer in finalizers if finalizer != FINALIZER)
        if desired != finalizers:
            finalizer_list = {"finalizers": list(desired)}
            await merge_object(self._client, PERSISTENT_VOLUME_CLAIMS, claim, metadata=finalizer_list)
        return None

    async def _is_used(self, claim: PersistentVolumeClaim) -> bool:
        """Return True if a Pod uses the claim, in the cache or in a list from the API server, which may be newer."""
        key = claim.key
        if any(uses_claim(pod, key) for pod in self._pods.by_index(CLAIM_INDEX, key)):
            return True
        pods = await self._client.list_all(PODS, claim.metadata.namespace)
        return any(uses_claim(pod, key) for pod in pods.items)


def uses_claim(pod: Pod, key: str) -> bool:
    """Return True if a scheduled Pod uses the claim. Pods are not scheduled for a claim in deletion."""
    claims = dict(claims_of_pod(pod))
    if not pod.spec.node_name or key not in claims:
        return False
    metadata = pod.metadata
    stopped = metadata.deletion_timestamp is not None and not metadata.deletion_grace_period_seconds
    return not stopped or claims[key] is None  # a stopped Pod may wait for the deletion of an earlier ephemeral claim
