"""PersistentVolumeClaimResize: expansion of claims, if their storage class allows it.

Source: plugin/pkg/admission/storage/persistentvolume/resize of Kubernetes v1.36.
"""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import STORAGE_CLASSES, Resource
from kubeloop.kube.quantities import parse_quantity

_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def check_claim_resize(store: ObjectStore, resource: Resource[Any], obj: JSON, old: JSON) -> None:
    """Raise StatusError 403 if a claim requests more storage and its class does not support expansion."""
    new, before = (
        parse_quantity(claim["spec"].get("resources", {}).get("requests", {}).get("storage", 0)) for claim in (obj, old)
    )
    if new.compare(before) <= 0:
        return
    message, name = "", _storage_class_name(obj)
    storage_class = store.get(STORAGE_CLASSES, "", name) if name else None
    if old.get("status", {}).get("phase") != "Bound":
        message = "Only bound persistent volume claims can be expanded"
    elif storage_class is None or name != _storage_class_name(old) or not storage_class.get("allowVolumeExpansion"):
        message = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
            "support resize"
        )
    if message:
        raise errors.forbidden(resource, obj["metadata"]["name"], message)


def _storage_class_name(claim: JSON) -> str:
    annotated = claim["metadata"].get("annotations", {}).get(_CLASS_ANNOTATION)
    return str(claim["spec"].get("storageClassName", "") if annotated is None else annotated)
