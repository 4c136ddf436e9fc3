"""Volume protection: adds the finalizer pv-protection to volumes, and removes it when a deleted one is not bound.

Source: v1.36 pkg/controller/volume/pvprotection/pv_protection_controller.go.
"""

from __future__ import annotations

from kubeloop.controllers.runtime.controller import Controller
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.writes.status_patch import versioned_merge_patch
from kubeloop.informers.shared_informer import ResourceEventHandlerFuncs
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.objects.resources import PERSISTENT_VOLUMES

FINALIZER = "kubernetes.io/pv-protection"


class VolumeProtectionController:
    """Reconciles PersistentVolumes; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        volumes = context.informers.informer(PERSISTENT_VOLUMES)
        self._volumes = volumes.store
        queue = context.new_queue("pvprotection")
        self._controller = Controller("pvprotection", self.reconcile, queue, context.workers, context)
        self._registration = volumes.add_handler(
            ResourceEventHandlerFuncs(
                on_add=lambda volume, _initial: queue.add(volume.key),
                on_update=lambda _old, volume: queue.add(volume.key),
            )
        )

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._controller.run((self._registration,))

    async def reconcile(self, name: str) -> float | None:
        """Add or remove the finalizer of a volume. An exception means: retry with backoff."""
        volume = self._volumes.get(name)
        if volume is None:
            return None
        finalizers = volume.metadata.finalizers
        wanted = finalizers
        if volume.metadata.deletion_timestamp is None:
            wanted = finalizers if FINALIZER in finalizers else (*finalizers, FINALIZER)
        elif volume.status.phase != "Bound":
            wanted = tuple(finalizer for finalizer in finalizers if finalizer != FINALIZER)
        if wanted != finalizers:
            body = versioned_merge_patch(volume.metadata.resource_version, metadata={"finalizers": list(wanted)})
            await self._client.patch(PERSISTENT_VOLUMES, name, body, PatchType.MERGE)
        return None
