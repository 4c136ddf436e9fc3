"""Seconds that volumes of a StorageClass took to be provisioned in a recording."""

from __future__ import annotations

import statistics

from kubeloop.kube.json_object import JSON

_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"


class ProvisioningTimes:
    """Times from the request of a volume to its binding, by StorageClass."""

    def __init__(self) -> None:
        self._requested: dict[str, float] = {}  # by uid of the claim
        self._seconds: dict[str, list[float]] = {}  # by class

    def observe(self, seconds: float, claim: JSON, *, initial: bool) -> None:
        """Record a state of a claim. initial: it existed at the start."""
        metadata, spec = claim["metadata"], claim["spec"]
        uid, annotations = metadata.get("uid", ""), metadata.get("annotations") or {}
        if initial:
            return
        if spec.get("volumeName"):
            if (requested := self._requested.pop(uid, None)) is not None:
                self._seconds.setdefault(spec.get("storageClassName") or "", []).append(seconds - requested)
        elif _SELECTED_NODE in annotations or _PROVISIONER in annotations:
            self._requested.setdefault(uid, seconds)

    def median(self, storage_class: str) -> float | None:
        """Return the median for a class, None if no volume was provisioned."""
        values = self._seconds.get(storage_class)
        return statistics.median(values) if values else None
