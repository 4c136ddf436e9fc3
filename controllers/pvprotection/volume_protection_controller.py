"""Volume protection: adds the finalizer pv-protection to volumes, and removes it when a deleted one is not bound.

Source: v1.36 pkg/controller/volume/pvprotection/pv_protection_controller.go.
"""

from __future__ import annotations

from kubeloop.controllers.api.watches import For
from kubeloop.controllers.protection.protection_controller import ProtectionController, protects
from kubeloop.kube.objects.resources import PERSISTENT_VOLUMES
from kubeloop.kube.objects.storage_types import PersistentVolume

FINALIZER = "kubernetes.io/pv-protection"


class VolumeProtectionController(ProtectionController):
    """Reconciles PersistentVolumes."""

    name = "pvprotection"
    resource, finalizer = PERSISTENT_VOLUMES, FINALIZER
    watches = (For(resource, predicates=[protects(FINALIZER)]),)

    async def is_used(self, obj: PersistentVolume) -> bool:
        return obj.status.phase == "Bound"
