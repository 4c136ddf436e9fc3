"""VolumeAttributesClass protection: adds the finalizer vac-protection, and removes it when nothing uses the class.

Source: v1.36 pkg/controller/volume/vacprotection/vac_protection_controller.go.
"""

from __future__ import annotations

from kubeloop.controllers.runtime.controller import Controller, EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.writes.status_patch import versioned_merge_patch
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.objects.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    VOLUME_ATTRIBUTES_CLASSES,
)
from kubeloop.kube.objects.storage_types import PersistentVolume, PersistentVolumeClaim

FINALIZER = "kubernetes.io/vac-protection"
_CLASS_INDEX = "volume attributes class"


class VolumeAttributesClassProtectionController(EventDrivenController):
    """Reconciles VolumeAttributesClasses, by name; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        informers = context.informers
        classes = informers.informer(VOLUME_ATTRIBUTES_CLASSES)
        volumes, claims = informers.informer(PERSISTENT_VOLUMES), informers.informer(PERSISTENT_VOLUME_CLAIMS)
        self._classes, self._volumes, self._claims = classes.store, volumes.store, claims.store
        self._volumes.add_index(_CLASS_INDEX, classes_of_volume)
        self._claims.add_index(_CLASS_INDEX, classes_of_claim)
        self._queue = context.new_queue("vacprotection")
        self._controller = Controller("vacprotection", self.reconcile, self._queue, context.workers, context)
        self._registrations = (
            classes.on_latest(lambda added: self._queue.add(added["metadata"]["name"])),
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
                self._queue.add(name)

    async def reconcile(self, name: str) -> float | None:
        """Add or remove the finalizer of a class. An exception means: retry with backoff."""
        current = self._classes.get(name)
        if current is None:
            return None
        metadata = current["metadata"]
        finalizers = metadata.get("finalizers") or []
        desired = finalizers
        if not metadata.get("deletionTimestamp"):
            desired = finalizers if FINALIZER in finalizers else [*finalizers, FINALIZER]
        elif not (self._volumes.by_index(_CLASS_INDEX, name) or self._claims.by_index(_CLASS_INDEX, name)):
            desired = [finalizer for finalizer in finalizers if finalizer != FINALIZER]
        if desired != finalizers:
            body = versioned_merge_patch(metadata["resourceVersion"], metadata={"finalizers": desired})
            await self._client.patch(VOLUME_ATTRIBUTES_CLASSES, name, body, PatchType.MERGE)
        return None


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
