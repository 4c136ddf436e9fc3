"""VolumeAttributesClass protection: adds the finalizer vac-protection, and removes it when nothing uses the class.

Source: v1.36 pkg/controller/volume/vacprotection/vac_protection_controller.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubeloop.controllers.api.objects import Request
from kubeloop.controllers.api.watches import For, Watches
from kubeloop.controllers.protection.protection_controller import ProtectionController, protects
from kubeloop.kube.objects.api_types import PartialObjectMetadata
from kubeloop.kube.objects.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    VOLUME_ATTRIBUTES_CLASSES,
    Resource,
)
from kubeloop.kube.objects.storage_types import PersistentVolume, PersistentVolumeClaim

FINALIZER = "kubernetes.io/vac-protection"


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


def _users(resource: Resource[Any], classes: Callable[[Any], tuple[str, ...]]) -> Watches[Any]:
    """Return a watch of objects that use classes; an object that no longer uses one leads to the class."""
    return Watches(
        resource,
        lambda obj: [Request("", name) for name in classes(obj)],
        predicates=[lambda old, new: old is not None and (new is None or classes(old) != classes(new))],
        indexes={"class": classes},
    )


class VolumeAttributesClassProtectionController(ProtectionController):
    """Reconciles VolumeAttributesClasses."""

    name = "vacprotection"
    resource, finalizer = VOLUME_ATTRIBUTES_CLASSES, FINALIZER
    watches = (
        For(resource, predicates=[protects(FINALIZER)]),
        _users(PERSISTENT_VOLUMES, classes_of_volume),
        _users(PERSISTENT_VOLUME_CLAIMS, classes_of_claim),
    )

    async def is_used(self, obj: PartialObjectMetadata) -> bool:
        name, cache = obj.key, self.cache
        volumes = cache.by_index(PERSISTENT_VOLUMES, "class", name)
        return bool(volumes or cache.by_index(PERSISTENT_VOLUME_CLAIMS, "class", name))
