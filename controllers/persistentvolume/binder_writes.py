"""Writes and events of the persistent volume binder."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kubeloop.controllers.persistentvolume.written_objects import WrittenObjects
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.writes.object_patch import merge_object, patch_status
from kubeloop.kube.events.event_recorder import EventType
from kubeloop.kube.objects.api_types import JSONValue, Object, Quantity
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kubeloop.kube.objects.storage_types import PersistentVolume, PersistentVolumeClaim


class BinderWrites:
    """Writes claims and volumes, and records their events. claims, volumes: the caches, and what was written since."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._events = context.events
        self.claims = WrittenObjects(context.informers.informer(PERSISTENT_VOLUME_CLAIMS).store)
        self.volumes = WrittenObjects(context.informers.informer(PERSISTENT_VOLUMES).store)
        self._last_events: dict[str, tuple[str, str]] = {}  # uid -> reason and message of its last event

    async def patch_volume(self, volume: PersistentVolume, **members: JSONValue) -> PersistentVolume:
        return self.volumes.wrote(await merge_object(self._client, PERSISTENT_VOLUMES, volume, **members))

    async def write_phase(self, volume: PersistentVolume, phase: str, message: str = "") -> PersistentVolume:
        if volume.status.phase == phase:
            return volume
        status = {"phase": phase, "message": message or None}
        return self.volumes.wrote(await patch_status(self._client, PERSISTENT_VOLUMES, volume, status))

    async def patch_claim(self, claim: PersistentVolumeClaim, **members: JSONValue) -> PersistentVolumeClaim:
        return self.claims.wrote(await merge_object(self._client, PERSISTENT_VOLUME_CLAIMS, claim, **members))

    async def write_claim_status(
        self,
        claim: PersistentVolumeClaim,
        phase: str,
        access_modes: tuple[str, ...] = (),
        capacity: Mapping[str, Quantity] = MappingProxyType({}),
        current_class: str | None = None,
    ) -> PersistentVolumeClaim:
        """Write phase, access modes, capacity and VolumeAttributesClass if they differ.

        A claim without volume has only a phase.
        """
        status = claim.status
        before = (status.phase, status.access_modes, status.capacity, status.current_volume_attributes_class_name)
        if before == (phase, access_modes, capacity, current_class):
            return claim
        new = {
            "phase": phase,
            "accessModes": list(access_modes) or None,
            "capacity": {**dict.fromkeys(status.capacity), **capacity} if capacity else None,
            "currentVolumeAttributesClassName": current_class,
        }
        return self.claims.wrote(await patch_status(self._client, PERSISTENT_VOLUME_CLAIMS, claim, new))

    def record_event(self, obj: Object, type_: EventType, reason: str, message: str) -> None:
        """Record an event unless it repeats the object's last one."""
        if self._last_events.get(obj.metadata.uid) != (reason, message):
            self._last_events[obj.metadata.uid] = reason, message
            self._events.event(obj, type_, reason, message)

    def forget_events(self, obj: Object) -> None:
        """Forget the last event of a deleted object."""
        self._last_events.pop(obj.metadata.uid, None)
