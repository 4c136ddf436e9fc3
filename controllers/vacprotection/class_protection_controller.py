"""VolumeAttributesClass protection: adds the finalizer vac-protection, and removes it when nothing uses the class.

Source: v1.36 pkg/controller/volume/vacprotection/vac_protection_controller.go.
"""

from __future__ import annotations

from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.protection_controller import ProtectionController
from kubeloop.kube.objects.api_types import PartialObjectMetadata
from kubeloop.kube.objects.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    VOLUME_ATTRIBUTES_CLASSES,
)
from kubeloop.kube.objects.storage_types import PersistentVolume, PersistentVolumeClaim

FINALIZER = "kubernetes.io/vac-protection"
_CLASS_INDEX = "volume attributes class"


class VolumeAttributesClassProtectionController(ProtectionController[PartialObjectMetadata]):
    """Reconciles VolumeAttributesClasses, by name; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "vacprotection", VOLUME_ATTRIBUTES_CLASSES, FINALIZER)
        volumes = context.informers.informer(PERSISTENT_VOLUMES)
        claims = context.informers.informer(PERSISTENT_VOLUME_CLAIMS)
        self._volumes, self._claims = volumes.store, claims.store
        self._volumes.add_index(_CLASS_INDEX, classes_of_volume)
        self._claims.add_index(_CLASS_INDEX, classes_of_claim)
        self._registrations = (
            *self._registrations,
            volumes.on_events(
                updated=lambda old, new: self._on_release(classes_of_volume(old), classes_of_volume(new)),
                deleted=lambda volume: self._on_release(classes_of_volume(volume)),
            ),
            claims.on_events(
                updated=lambda old, new: self._on_release(classes_of_claim(old), classes_of_claim(new)),
                deleted=lambda claim: self._on_release(classes_of_claim(claim)),
            ),
        )

    def _on_release(self, before: tuple[str, ...], after: tuple[str, ...] = ()) -> None:
        """Enqueue the classes that a volume or claim no longer uses."""
        for name in before:
            if name not in after:
                self.queue.add(name)

    async def is_used(self, obj: PartialObjectMetadata) -> bool:
        return bool(self._volumes.by_index(_CLASS_INDEX, obj.key) or self._claims.by_index(_CLASS_INDEX, obj.key))


def classes_of_volume(volume: PersistentVolume) -> tuple[str, ...]:
    """Return the name of the class of a volume, or nothing."""
    name = volume.spec.volume_attributes_class_name
    return (name,) if name else ()


def classes_of_claim(claim: PersistentVolumeClaim) -> tuple[str, ...]:
    """Return the names of the classes of a claim: requested, current, and target of a modification."""
    status = claim.status
    target = (status.modify_volume_status or {}).get("targetVolumeAttributesClassName")
    names = (claim.spec.volume_attributes_class_name, status.current_volume_attributes_class_name, target)
    return tuple(dict.fromkeys(name for name in names if name))
