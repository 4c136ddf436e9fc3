"""DefaultStorageClass and DefaultIngressClass: the class of a new claim or Ingress that names none.

Source: plugin/pkg/admission/storage/storageclass/setdefault and network/defaultingressclass of Kubernetes v1.36.
"""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import STORAGE_CLASSES, Resource

_DEFAULT_STORAGE_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def set_default_storage_class(store: ObjectStore, claim: JSON) -> None:
    spec = claim["spec"]
    if "storageClassName" in spec or _CLASS_ANNOTATION in claim["metadata"].get("annotations", {}):
        return
    if default := newest_default(store, STORAGE_CLASSES, _DEFAULT_STORAGE_CLASS):
        spec["storageClassName"] = default


def newest_default(store: ObjectStore, classes: Resource[Any], annotations: tuple[str, ...]) -> str:
    """Return the name of the default class; of several, the newest, then the first by name; "" for none."""
    defaults = [
        class_["metadata"]
        for class_ in store.list(classes)
        if any(class_["metadata"].get("annotations", {}).get(annotation) == "true" for annotation in annotations)
    ]
    defaults.sort(key=lambda metadata: str(metadata["name"]))
    defaults.sort(key=lambda metadata: str(metadata["creationTimestamp"]), reverse=True)
    return str(defaults[0]["name"]) if defaults else ""
