"""Ephemeral volume controller: creates the PersistentVolumeClaims of generic ephemeral volumes of Pods.

The garbage collector deletes them with the Pod. Source: v1.36 pkg/controller/volume/ephemeral/controller.go.
"""

from __future__ import annotations

from kubeloop.controllers.api.controller import Controller, Result
from kubeloop.controllers.api.objects import Request, is_controlled_by, set_controller_reference
from kubeloop.controllers.api.predicates import is_deleted
from kubeloop.controllers.api.watches import For, InIndex, Watches
from kubeloop.controllers.runtime.controller import ReconcileError
from kubeloop.controllers.runtime.pods.volume_claims import by_claim, claims_of_pod
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.api_types import JSONValue, Pod
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS

_COPIED = ("labels", "annotations")


class ClaimOfAnotherOwner(ReconcileError):
    """A claim with the name of an ephemeral volume's claim exists and does not belong to the Pod."""


def _is_new_with_ephemeral_volume(old: Pod | None, new: Pod | None) -> bool:
    return old is None and new is not None and any(volume.ephemeral is not None for volume in new.spec.volumes)


class EphemeralVolumeController(Controller):
    """Reconciles Pods."""

    name = "ephemeralvolume"
    queue_name = "ephemeral_volume"
    watches = (
        For(PODS, predicates=[_is_new_with_ephemeral_volume], indexes={"claim": by_claim}),
        Watches(PERSISTENT_VOLUME_CLAIMS, InIndex(PODS, "claim"), predicates=[is_deleted]),
    )

    async def reconcile(self, request: Request) -> Result:
        """Create the missing claims of a Pod's ephemeral volumes."""
        pod = self.cache.get(PODS, request)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return None
        for claim_key, source in claims_of_pod(pod):
            if source is None:
                continue
            claim = Request.parse(claim_key)
            try:
                await self._ensure_claim(pod, claim, source)
            except (ApiError, ServerUnreachable, ClaimOfAnotherOwner) as error:
                volume = claim.name.removeprefix(f"{pod.metadata.name}-")
                problem = error if isinstance(error, ClaimOfAnotherOwner) else f"create PVC {claim.name}: {error}"
                self.recorder.event(pod, "Warning", "FailedBinding", f"ephemeral volume {volume}: {problem}")
                raise
        return None

    async def _ensure_claim(self, pod: Pod, claim: Request, source: JSONValue) -> None:
        existing = self.cache.get(PERSISTENT_VOLUME_CLAIMS, claim)
        if existing is not None:
            if not is_controlled_by(existing, pod):
                raise ClaimOfAnotherOwner(f"PVC {claim} was not created for pod {pod.key} (pod is not owner)")
            return
        template = source["volumeClaimTemplate"]
        copied = {name: value for name, value in (template.get("metadata") or {}).items() if name in _COPIED}
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**copied, "name": claim.name, "namespace": claim.namespace},
            "spec": template["spec"],
        }
        await self.client.create(set_controller_reference(pod, body))
