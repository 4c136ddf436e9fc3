"""Cells of nodes, volumes, storage classes and CSI kinds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from kubeloop.devcluster.api.conditions import condition_of
from kubeloop.devcluster.printers.formatting import (
    NONE,
    UNKNOWN,
    UNSET,
    CellPrinter,
    Cells,
    is_terminating,
    object_age,
    object_name,
    spec_of,
    status_of,
)
from kubeloop.kube.json_object import JSON


def _node_roles(node: JSON) -> str:
    roles: set[str] = set()
    for key, value in (node["metadata"].get("labels") or {}).items():
        if key.startswith("node-role.kubernetes.io/"):
            roles.add(key.removeprefix("node-role.kubernetes.io/"))
        elif key == "kubernetes.io/role":
            roles.add(value)
    return ",".join(sorted(roles - {""})) or NONE


def _node(obj: JSON, now: datetime) -> Cells:
    status = status_of(obj)
    info = status.get("nodeInfo") or {}
    ready = condition_of(obj, "Ready")
    status_text = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    if spec_of(obj).get("unschedulable"):
        status_text += ",SchedulingDisabled"
    addresses = status.get("addresses") or ()

    def address(kind: str) -> str:
        return next((entry["address"] for entry in addresses if entry.get("type") == kind), NONE)

    kernel = info.get("kernelVersion") or UNKNOWN
    if architecture := info.get("architecture"):
        kernel += f" ({architecture})"

    return [
        object_name(obj),
        status_text,
        _node_roles(obj),
        object_age(obj, now),
        info.get("kubeletVersion", ""),
        address("InternalIP"),
        address("ExternalIP"),
        info.get("osImage") or UNKNOWN,
        kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


_ACCESS_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _access_modes(modes: Iterable[str] | None) -> str:
    present = set(modes or ())
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in present)


def _storage_class_name(obj: JSON) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    return str(annotations.get("volume.beta.kubernetes.io/storage-class") or spec_of(obj).get("storageClassName") or "")


def _phase(obj: JSON) -> str:
    return "Terminating" if is_terminating(obj) else str(status_of(obj).get("phase", ""))


def _persistent_volume(obj: JSON, now: datetime) -> Cells:
    spec = spec_of(obj)
    claim = spec.get("claimRef")
    return [
        object_name(obj),
        (spec.get("capacity") or {}).get("storage", "0"),
        _access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _storage_class_name(obj),
        spec.get("volumeAttributesClassName") or UNSET,
        status_of(obj).get("reason", ""),
        object_age(obj, now),
        spec.get("volumeMode") or UNSET,
    ]


def _persistent_volume_claim(obj: JSON, now: datetime) -> Cells:
    spec, status = spec_of(obj), status_of(obj)
    volume = spec.get("volumeName", "")
    return [
        object_name(obj),
        _phase(obj),
        volume,
        (status.get("capacity") or {}).get("storage", "0") if volume else "",
        _access_modes(status.get("accessModes")) if volume else "",
        _storage_class_name(obj),
        spec.get("volumeAttributesClassName") or UNSET,
        object_age(obj, now),
        spec.get("volumeMode") or UNSET,
    ]


def _storage_class(obj: JSON, now: datetime) -> Cells:
    annotations = obj["metadata"].get("annotations") or {}
    default_annotations = (
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    )
    default = any(annotations.get(annotation) == "true" for annotation in default_annotations)
    return [
        object_name(obj) + (" (default)" if default else ""),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        object_age(obj, now),
    ]


def _volume_attachment(obj: JSON, now: datetime) -> Cells:
    spec = spec_of(obj)
    volume = (spec.get("source") or {}).get("persistentVolumeName") or ""
    attached = bool(status_of(obj).get("attached"))
    return [
        object_name(obj),
        spec.get("attacher", ""),
        volume,
        spec.get("nodeName", ""),
        attached,
        object_age(obj, now),
    ]


def _csi_node(obj: JSON, now: datetime) -> Cells:
    return [object_name(obj), len(spec_of(obj).get("drivers") or ()), object_age(obj, now)]


def _csi_driver(obj: JSON, now: datetime) -> Cells:
    spec = spec_of(obj)
    requests = spec.get("tokenRequests")
    return [
        object_name(obj),
        spec.get("attachRequired") is not False,
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        UNSET if requests is None else ",".join(request.get("audience", "") for request in requests),
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
        object_age(obj, now),
    ]


PRINTERS: dict[str, CellPrinter] = {
    "csidrivers.storage.k8s.io": _csi_driver,
    "csinodes.storage.k8s.io": _csi_node,
    "nodes": _node,
    "persistentvolumeclaims": _persistent_volume_claim,
    "persistentvolumes": _persistent_volume,
    "storageclasses.storage.k8s.io": _storage_class,
    "volumeattachments.storage.k8s.io": _volume_attachment,
}
