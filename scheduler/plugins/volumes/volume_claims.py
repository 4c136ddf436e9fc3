"""PersistentVolumeClaims of a pod and their binding state, as all volume plugins read them.

Source: component-helpers storage/volume, storage/ephemeral of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kubeloop.kube.objects.api_types import Pod, Volume
from kubeloop.kube.objects.object_fields import controller_of
from kubeloop.kube.objects.storage_types import PersistentVolume, PersistentVolumeClaim
from kubeloop.scheduler.api.listers import Listers

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
_BETA_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"


class ClaimError(Exception):
    """A claim that keeps its pod from being scheduled; the message is that of kube-scheduler."""


class ClaimNotFound(ClaimError):
    pass


class ClaimUse(msgspec.Struct, frozen=True):
    """Use of a claim by a pod's volume; `ephemeral` if the claim was created for a generic ephemeral volume."""

    claim_name: str
    ephemeral: bool


def claim_use(pod: Pod, volume: Volume) -> ClaimUse | None:
    if volume.persistent_volume_claim is not None:
        return ClaimUse(volume.persistent_volume_claim.claim_name, False)
    if volume.ephemeral is not None:
        return ClaimUse(f"{pod.metadata.name}-{volume.name}", True)
    return None


def claim_uses(pod: Pod) -> Iterator[ClaimUse]:
    for volume in pod.spec.volumes:
        use = claim_use(pod, volume)
        if use is not None:
            yield use


def references_claim(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Return True if a volume of the pod references this claim by name. Generic ephemeral volumes do not count."""
    return claim.metadata.namespace == pod.metadata.namespace and any(
        volume.persistent_volume_claim is not None and volume.persistent_volume_claim.claim_name == claim.metadata.name
        for volume in pod.spec.volumes
    )


def uses_claim(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    return claim.metadata.namespace == pod.metadata.namespace and any(
        use.claim_name == claim.metadata.name for use in claim_uses(pod)
    )


def get_claim(pod: Pod, name: str, listers: Listers) -> PersistentVolumeClaim:
    """Raises ClaimNotFound."""
    claim = listers.persistent_volume_claims.get(f"{pod.metadata.namespace}/{name}")
    if claim is None:
        raise ClaimNotFound(f'persistentvolumeclaim "{name}" not found')
    return claim


def check_owned_by(pod: Pod, claim: PersistentVolumeClaim) -> None:
    """Check that the claim of an ephemeral volume is controlled by this pod. Raises ClaimError."""
    owner = controller_of(claim.metadata)
    if owner is None or owner.uid != pod.metadata.uid:
        raise ClaimError(f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)")


def claim_class(claim: PersistentVolumeClaim) -> str:
    """Return the name of the claim's StorageClass, "" if it has none."""
    annotated = claim.metadata.annotations.get(_BETA_STORAGE_CLASS)
    return annotated if annotated is not None else claim.spec.storage_class_name or ""


def volume_class(volume: PersistentVolume) -> str:
    annotated = volume.metadata.annotations.get(_BETA_STORAGE_CLASS)
    return annotated if annotated is not None else volume.spec.storage_class_name


def is_fully_bound(claim: PersistentVolumeClaim) -> bool:
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def waits_for_consumer(claim: PersistentVolumeClaim, listers: Listers) -> bool:
    """Return True if the claim is bound only after a pod that uses it has a node. Raises ClaimError."""
    name = claim_class(claim)
    storage_class = listers.storage_classes.get(name) if name else None
    if storage_class is None:
        return False
    if storage_class.volume_binding_mode is None:
        raise ClaimError(f'VolumeBindingMode not set for StorageClass "{name}"')
    return storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def is_bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return True if the volume's claimRef names this claim, with the same UID if it has one."""
    ref = volume.spec.claim_ref
    if ref is None or ref.name != claim.metadata.name or ref.namespace != claim.metadata.namespace:
        return False
    return not ref.uid or ref.uid == claim.metadata.uid
