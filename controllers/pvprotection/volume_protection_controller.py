"""Volume protection: adds the finalizer pv-protection to volumes, and removes it when a deleted one is not bound.

Source: v1.36 pkg/controller/volume/pvprotection/pv_protection_controller.go.
"""

from __future__ import annotations

from kubeloop.controllers.runtime.controller import Controller, EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.writes.object_patch import merge_object
from kubeloop.kube.objects.resources import PERSISTENT_VOLUMES

FINALIZER = "kubernetes.io/pv-protection"


class VolumeProtectionController(EventDrivenController):
    """Reconciles PersistentVolumes; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        volumes = context.informers.informer(PERSISTENT_VOLUMES)
        self._volumes = volumes.store
        queue = context.new_queue("pvprotection")
        self._controller = Controller("pvprotection", self.reconcile, queue, context.workers, context)
        self._registrations = (volumes.on_latest(lambda volume: queue.add(volume.key)),)

    async def reconcile(self, name: str) -> float | None:
        """Add or remove the finalizer of a volume. An exception means: retry with backoff."""
        volume = self._volumes.get(name)
        if volume is None:
            return None
        finalizers = volume.metadata.finalizers
        desired = finalizers
        if volume.metadata.deletion_timestamp is None:
            desired = finalizers if FINALIZER in finalizers else (*finalizers, FINALIZER)
        elif volume.status.phase != "Bound":
            desired = tuple(finalizer for finalizer in finalizers if finalizer != FINALIZER)
        if desired != finalizers:
            await merge_object(self._client, PERSISTENT_VOLUMES, volume, metadata={"finalizers": list(desired)})
        return None
