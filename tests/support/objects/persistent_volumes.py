"""PersistentVolumes and PersistentVolumeClaims as JSON objects."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]


def persistent_volume_claim(
    metadata: JSON | None = None, size: str = "1Gi", modes: tuple[str, ...] = ("ReadWriteOnce",), **spec: Any
) -> JSON:
    """Return a pending PersistentVolumeClaim. spec: further fields of the spec."""
    content = {"accessModes": list(modes), "resources": {"requests": {"storage": size}}, **spec}
    head = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
    metadata = metadata or {"name": "data", "namespace": "default", "uid": "c"}
    return {**head, "metadata": metadata, "spec": content, "status": {"phase": "Pending"}}


def persistent_volume(
    metadata: JSON | None = None, size: str = "1Gi", modes: tuple[str, ...] = ("ReadWriteOnce",), **spec: Any
) -> JSON:
    """Return an available PersistentVolume. spec: further fields of the spec."""
    content = {"accessModes": list(modes), "capacity": {"storage": size}, **spec}
    head = {"kind": "PersistentVolume", "apiVersion": "v1", "metadata": metadata or {"name": "disk", "uid": "v"}}
    return {**head, "spec": content, "status": {"phase": "Available"}}
