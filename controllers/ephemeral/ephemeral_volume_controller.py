"""Ephemeral volume controller: creates the PersistentVolumeClaims of generic ephemeral volumes of Pods.

The garbage collector deletes them with the Pod. Source: v1.36 pkg/controller/volume/ephemeral/controller.go.
"""

from __future__ import annotations

from kubeloop.controllers.runtime.controller import EventDrivenController, ReconcileError
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.pods.volume_claims import CLAIM_INDEX, by_claim, claims_of_pod
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.api_types import JSONValue, Object, Pod
from kubeloop.kube.objects.object_fields import controller_of, controller_reference
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS


class ClaimOfAnotherOwner(ReconcileError):
    """A claim with the name of an ephemeral volume's claim exists and does not belong to the Pod."""


class EphemeralVolumeController(EventDrivenController):
    """Reconciles Pods; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "ephemeralvolume", "ephemeral_volume")
        pods, claims = context.informers.informer(PODS), context.informers.informer(PERSISTENT_VOLUME_CLAIMS)
        self._pods, self._claims = pods.store, claims.store
        self._pods.add_index(CLAIM_INDEX, by_claim)
        self._registrations = (
            pods.on_events(added=self.on_pod),
            claims.on_events(deleted=self.on_claim_delete),
        )

    def on_pod(self, pod: Pod) -> None:
        if any(volume.ephemeral is not None for volume in pod.spec.volumes):
            self.queue.add(pod.key)

    def on_claim_delete(self, claim: Object) -> None:
        for pod in self._pods.by_index(CLAIM_INDEX, claim.key):
            self.on_pod(pod)

    async def reconcile(self, key: str) -> float | None:
        """Create the missing claims of a Pod's ephemeral volumes. An exception means: retry with backoff."""
        pod = self._pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return None
        for claim_key, source in claims_of_pod(pod):
            if source is None:
                continue
            try:
                await self._ensure_claim(pod, claim_key, source)
            except (ApiError, ServerUnreachable, ClaimOfAnotherOwner) as error:
                volume = claim_key.removeprefix(f"{pod.key}-")
                name = claim_key.partition("/")[2]
                problem = error if isinstance(error, ClaimOfAnotherOwner) else f"create PVC {name}: {error}"
                self._events.event(pod, "Warning", "FailedBinding", f"ephemeral volume {volume}: {problem}")
                raise
        return None

    async def _ensure_claim(self, pod: Pod, claim_key: str, source: JSONValue) -> None:
        existing = self._claims.get(claim_key)
        name = claim_key.partition("/")[2]
        if existing is not None:
            owner = controller_of(existing.metadata)
            if owner is None or owner.uid != pod.metadata.uid:
                raise ClaimOfAnotherOwner(f"PVC {claim_key} was not created for pod {pod.key} (pod is not owner)")
            return
        template = source["volumeClaimTemplate"]
        metadata = {
            **{field: value for field, value in (template.get("metadata") or {}).items() if field in _COPIED},
            "name": name,
            "ownerReferences": [{**controller_reference(pod), "apiVersion": "v1", "kind": "Pod"}],
        }
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template["spec"]}
        await self._client.create(PERSISTENT_VOLUME_CLAIMS, body, pod.metadata.namespace)


_COPIED = ("labels", "annotations")
