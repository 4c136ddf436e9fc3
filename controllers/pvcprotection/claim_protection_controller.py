"""Claim protection: adds the finalizer pvc-protection to claims, and removes it when no Pod uses a deleted one.

Source: v1.36 pkg/controller/volume/pvcprotection/pvc_protection_controller.go.
"""

from __future__ import annotations

from kubeloop.controllers.runtime.controller import Controller
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.status_patch import versioned_merge_patch
from kubeloop.controllers.runtime.volume_claims import CLAIM_INDEX, by_claim, claims_of_pod
from kubeloop.informers.shared_informer import ResourceEventHandlerFuncs
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS

FINALIZER = "kubernetes.io/pvc-protection"


class ClaimProtectionController:
    """Reconciles PersistentVolumeClaims; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        claims, pods = context.informers.informer(PERSISTENT_VOLUME_CLAIMS), context.informers.informer(PODS)
        self._claims, self._pods = claims.store, pods.store
        self._pods.add_index(CLAIM_INDEX, by_claim)
        self._queue = context.new_queue("pvcprotection")
        self._controller = Controller("pvcprotection", self.reconcile, self._queue, context.workers, context)
        self._registrations = (
            claims.add_handler(
                ResourceEventHandlerFuncs(
                    on_add=lambda claim, _initial: self._queue.add(claim.key),
                    on_update=lambda _old, claim: self._queue.add(claim.key),
                )
            ),
            pods.add_handler(
                ResourceEventHandlerFuncs(
                    on_add=lambda pod, _initial: self.on_pod(pod),
                    on_update=lambda _old, pod: self.on_pod(pod),
                    on_delete=lambda pod, _unknown: self.on_pod(pod),
                )
            ),
        )

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._controller.run(self._registrations)

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
            wanted = finalizers if FINALIZER in finalizers else (*finalizers, FINALIZER)
        elif any(uses_claim(pod, key) for pod in self._pods.by_index(CLAIM_INDEX, key)):
            wanted = finalizers
        else:
            wanted = tuple(finalizer for finalizer in finalizers if finalizer != FINALIZER)
        if wanted != finalizers:
            metadata = claim.metadata
            body = versioned_merge_patch(metadata.resource_version, metadata={"finalizers": list(wanted)})
            await self._client.patch(PERSISTENT_VOLUME_CLAIMS, metadata.name, body, PatchType.MERGE, metadata.namespace)
        return None


def uses_claim(pod: Pod, key: str) -> bool:
    """Return True if a scheduled Pod uses the claim. Pods are not scheduled for a claim in deletion."""
    metadata = pod.metadata
    stopped = metadata.deletion_timestamp is not None and not metadata.deletion_grace_period_seconds
    # a Pod may wait for the deletion of an earlier ephemeral claim
    return bool(pod.spec.node_name) and not (stopped and dict(claims_of_pod(pod)).get(key) is not None)
