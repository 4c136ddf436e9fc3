"""Warnings about PersistentVolumes and PersistentVolumeClaims.

Sources: util.go of pkg/api/persistentvolume and pkg/api/persistentvolumeclaim.
"""

from __future__ import annotations

from kubeloop.devcluster.validation.warnings.shared_warnings import fractional_bytes_warnings
from kubeloop.kube.json_object import JSON

DEPRECATED_VOLUME_TYPES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def class_annotation_warnings(metadata: JSON) -> list[str]:
    detail = 'deprecated since v1.8; use "storageClassName" attribute instead'
    return (
        [f"metadata.annotations[{_CLASS_ANNOTATION}]: {detail}"]
        if _CLASS_ANNOTATION in metadata.get("annotations", {})
        else []
    )


def claim_warnings(spec: JSON, path: str) -> list[str]:
    resources = spec.get("resources", {})
    return [
        warning
        for which in ("requests", "limits")
        for warning in fractional_bytes_warnings(resources.get(which, {}), f"{path}.resources.{which}", ("storage",))
    ]
