"""Warnings about PersistentVolumes and PersistentVolumeClaims.

Sources: util.go of pkg/api/persistentvolume and pkg/api/persistentvolumeclaim.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.devcluster.validation.warnings.shared_warnings import fractional_bytes_warnings, node_term_warnings
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


def persistent_volume_warnings(spec: JSON) -> Iterator[str]:
    required = (spec.get("nodeAffinity") or {}).get("required") or {}
    for i, term in enumerate(required.get("nodeSelectorTerms") or ()):
        yield from node_term_warnings(term, f"spec.nodeAffinity.required.nodeSelectorTerms[{i}]")
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        yield (
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended "
            "approach is to use dynamic provisioning."
        )
    for kind in ("cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "rbd"):
        if kind in spec:
            yield f"spec.{'storageOS' if kind == 'storageos' else kind}: {DEPRECATED_VOLUME_TYPES[kind]}"
