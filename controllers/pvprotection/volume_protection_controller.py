"""Volume protection: adds the finalizer pv-protection to volumes, and removes it when a deleted one is not bound.

Source: v1.36 pkg/controller/volume/pvprotection/pv_protection_controller.go.
"""

from __future__ import annotations

from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.protection_controller import ProtectionController
from kubeloop.kube.objects.resources import PERSISTENT_VOLUMES
from kubeloop.kube.objects.storage_types import PersistentVolume

FINALIZER = "kubernetes.io/pv-protection"


class VolumeProtectionController(ProtectionController[PersistentVolume]):
    """Reconciles PersistentVolumes; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "pvprotection", PERSISTENT_VOLUMES, FINALIZER)

    async def is_used(self, obj: PersistentVolume) -> bool:
        return obj.status.phase == "Bound"
