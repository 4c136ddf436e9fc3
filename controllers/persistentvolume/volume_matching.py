"""Matching of PersistentVolumes with PersistentVolumeClaims: pure functions of the two objects.

Source: pkg/controller/volume/persistentvolume/{index,pv_controller}.go and component-helpers storage/volume of
Kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.kube.objects.api_types import Object
from kubeloop.kube.objects.storage_types import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    is_default_class,
)
from kubeloop.kube.selectors.selectors import selector_from
from kubeloop.kube.values.quantities import value

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"

CLAIM_REF_INDEX = "claim-ref"
"""Index of volumes by the key of the claim that their claimRef names."""

FREE_INDEX = "free-by-class"
"""Index of volumes without claimRef by StorageClass."""

WAITING_INDEX = "waiting-for"
"""Index of claims that are not bound, and of claims that name a volume: see `class_wait` and `volume_wait`."""


def class_of(obj: PersistentVolume | PersistentVolumeClaim) -> str:
    """Return the StorageClass of a claim or a volume, "" if it has none."""
    annotated = obj.metadata.annotations.get(_BETA_CLASS)
    return annotated if annotated is not None else obj.spec.storage_class_name or ""


def has_class(claim: PersistentVolumeClaim) -> bool:
    """Return True if a claim has a StorageClass, or "", which declines the default one."""
    return _BETA_CLASS in claim.metadata.annotations or claim.spec.storage_class_name is not None


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """Return the newest default StorageClass, the first by name. Source: pkg/volume/util/storageclass.go."""
    return min(filter(is_default_class, classes), key=_newest_first, default=None)


def _newest_first(storage_class: StorageClass) -> tuple[float, str]:
    created = storage_class.metadata.creation_timestamp
    return -created.timestamp() if created is not None else 0.0, storage_class.metadata.name


def claim_ref_key(volume: PersistentVolume) -> str:
    """Return the key of the claim that the volume's claimRef names, "" without one."""
    ref = volume.spec.claim_ref
    return "" if ref is None else f"{ref.namespace}/{ref.name}"


def class_wait(name: str) -> str:
    """Return the value in WAITING_INDEX of claims that wait for a volume of a class."""
    return f"class/{name}"


def volume_wait(name: str) -> str:
    """Return the value in WAITING_INDEX of claims that name a volume."""
    return f"volume/{name}"


def by_claim_ref(volume: object) -> Iterable[str]:
    """Index function of CLAIM_REF_INDEX."""
    assert isinstance(volume, PersistentVolume)
    return () if volume.spec.claim_ref is None else (claim_ref_key(volume),)


def by_free_class(volume: object) -> Iterable[str]:
    """Index function of FREE_INDEX."""
    assert isinstance(volume, PersistentVolume)
    return () if volume.spec.claim_ref is not None else (class_of(volume),)


def by_wait(claim: object) -> Iterable[str]:
    """Index function of WAITING_INDEX."""
    assert isinstance(claim, PersistentVolumeClaim)
    if claim.spec.volume_name:
        return (volume_wait(claim.spec.volume_name),)
    return () if BIND_COMPLETED in claim.metadata.annotations else (class_wait(class_of(claim)),)


def is_bound_to(volume: PersistentVolume, claim: Object) -> bool:
    """Return True if the volume's claimRef names this claim, with the same UID if it has one."""
    ref = volume.spec.claim_ref
    if ref is None or (ref.namespace, ref.name) != (claim.metadata.namespace, claim.metadata.name):
        return False
    return not ref.uid or ref.uid == claim.metadata.uid


def requested_bytes(claim: PersistentVolumeClaim) -> int:
    return value(claim.spec.resources.requests.get("storage", "0"))


def capacity_bytes(volume: PersistentVolume) -> int:
    return value(volume.spec.capacity.get("storage", "0"))


def mismatch_message(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    """Return Kubernetes' message if the volume that a claim names cannot serve it, else ""."""
    if capacity_bytes(volume) < requested_bytes(claim):
        return "requested PV is too small"
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    if _attributes_class(volume) != _attributes_class(claim):
        return "VolumeAttributesClassName does not match"
    if _mode(volume) != _mode(claim):
        return "incompatible volumeMode"
    if not set(claim.spec.access_modes) <= set(volume.spec.access_modes):
        return "incompatible accessMode"
    return ""


def best_match(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], *, delayed: bool
) -> PersistentVolume | None:
    """Return the volume for an unbound claim: one with a claimRef to it, else the smallest free one.

    Ties go to fewer access modes. delayed: the claim waits for its first consumer; only a volume with a claimRef
    counts.
    """
    fitting = [volume for volume in volumes if _serves(volume, claim)]
    for volume in fitting:
        if is_bound_to(volume, claim):
            return volume
    if delayed:
        return None
    selector = selector_from(claim.spec.selector) if claim.spec.selector is not None else None
    free = [
        volume
        for volume in fitting
        if volume.spec.claim_ref is None
        and volume.status.phase == "Available"
        and class_of(volume) == class_of(claim)
        and (selector is None or selector.matches(volume.metadata.labels))
    ]
    return min(
        free,
        key=lambda volume: (len(volume.spec.access_modes), capacity_bytes(volume), volume.metadata.name),
        default=None,
    )


def _serves(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    if volume.spec.claim_ref is not None and not is_bound_to(volume, claim):
        return False
    return (
        volume.metadata.deletion_timestamp is None
        and capacity_bytes(volume) >= requested_bytes(claim)
        and _mode(volume) == _mode(claim)
        and _attributes_class(volume) == _attributes_class(claim)
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
    )


def _mode(obj: PersistentVolume | PersistentVolumeClaim) -> str:
    return obj.spec.volume_mode or "Filesystem"


def _attributes_class(obj: PersistentVolume | PersistentVolumeClaim) -> str:
    return obj.spec.volume_attributes_class_name or ""
