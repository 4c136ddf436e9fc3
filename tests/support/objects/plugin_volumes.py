"""PersistentVolumes and PersistentVolumeClaims for tests of volume plugins."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.storage_types import (
    PersistentVolume,
    PersistentVolumeClaim,
)


def make_volume(name: str, **spec: Any) -> PersistentVolume:
    affinity = spec.pop("affinity", None)
    if affinity is not None:
        expressions = [{"key": key, "operator": operator, "values": values} for key, operator, values in affinity]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "wait"} | spec
    body = {"metadata": {"name": name, "uid": name}, "spec": spec, "status": {"phase": "Available"}}
    return convert(PersistentVolume, body)


def make_claim(name: str, volume_name: str = "", storage: str = "1Gi") -> PersistentVolumeClaim:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume_name else {}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "volumeName": volume_name,
        "storageClassName": "wait",
        "resources": {"requests": {"storage": storage}},
    }
    metadata = {"name": name, "namespace": "default", "uid": name, "annotations": annotations}
    status = {"phase": "Bound" if volume_name else "Pending"}
    return convert(PersistentVolumeClaim, {"metadata": metadata, "spec": spec, "status": status})
