"""Volume expander: records that an external resizer has to expand a volume, and annotates migrated claims for it.

No volume plugin of kube-controller-manager expands volumes itself any more, except FlexVolume, whose driver it runs.
Source: v1.36 pkg/controller/volume/expand/expand_controller.go.
"""

from __future__ import annotations

from contextlib import suppress

from kubeloop.controllers.runtime.controller import EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.writes.object_patch import merge_object
from kubeloop.controllers.volumeexpand.expansion import is_event_for_expander, needs_resizer
from kubeloop.kube.errors import NotFound
from kubeloop.kube.objects.in_tree_plugins import in_tree_plugin
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim

_RESIZER = "volume.kubernetes.io/storage-resizer"
_WORKERS = 10


class VolumeExpander(EventDrivenController):
    """Reconciles PersistentVolumeClaims; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "volume_expand", "volume_expand", workers=_WORKERS)
        claims = context.informers.informer(PERSISTENT_VOLUME_CLAIMS)
        self._claims = claims.store
        self._registrations = (claims.on_changes(self._on_claim),)

    def _on_claim(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        if new is not None and is_event_for_expander(old, new):
            self.queue.add(new.key)

    async def reconcile(self, key: str) -> float | None:
        """Record an event for a claim whose volume has to grow. An exception means: retry with backoff."""
        claim = self._claims.get(key)
        if claim is None:
            return None
        volume = await self._client.get(PERSISTENT_VOLUMES, claim.spec.volume_name)
        if not needs_resizer(claim, volume):
            return None
        plugin = in_tree_plugin(volume.spec)
        if plugin is None:
            self._record_event(claim, "waiting for an external controller to expand this PVC")
            return None
        self._record_event(
            claim, f"CSI migration enabled for {plugin.name}; waiting for external resizer to expand the pvc"
        )
        if claim.metadata.annotations.get(_RESIZER) != plugin.driver:
            metadata = {"annotations": {_RESIZER: plugin.driver}}
            with suppress(NotFound):  # deleted in the meantime
                await merge_object(
                    self._client, PERSISTENT_VOLUME_CLAIMS, claim, subresource="status", metadata=metadata
                )
        return None

    def _record_event(self, claim: PersistentVolumeClaim, message: str) -> None:
        self._events.event(claim, "Normal", "ExternalExpanding", message)
