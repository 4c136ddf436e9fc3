"""Matching of PersistentVolumes with PersistentVolumeClaims: pure functions of the two objects.

Source: pkg/controller/volume/persistentvolume/{index,pv_controller}.go and component-helpers storage/volume of
Kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import LabelSelector, convert
from kubeloop.kube.quantities import value
from kubeloop.kube.selectors import selector_from

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


def key_of(obj: JSON) -> str:
    """Return namespace/name of a claim, the name of a volume."""
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"]


def annotations_of(obj: JSON) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def class_of(obj: JSON) -> str:
    """Return the StorageClass of a claim or a volume, "" if it has none."""
    annotated = annotations_of(obj).get(_BETA_CLASS)
    return annotated if annotated is not None else obj["spec"].get("storageClassName") or ""


def phase_of(obj: JSON) -> str:
    return (obj.get("status") or {}).get("phase") or ""


def is_bound_to(volume: JSON, claim: JSON) -> bool:
    """Return True if the volume's claimRef names this claim, with the same UID if it has one."""
    ref = volume["spec"].get("claimRef")
    if not ref or (ref.get("namespace"), ref.get("name")) != (
        claim["metadata"]["namespace"],
        claim["metadata"]["name"],
    ):
        return False
    return not ref.get("uid") or ref["uid"] == claim["metadata"]["uid"]


def requested_bytes(claim: JSON) -> int:
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return value(requests.get("storage", "0"))


def capacity_bytes(volume: JSON) -> int:
    return value((volume["spec"].get("capacity") or {}).get("storage", "0"))


def mismatch_message(volume: JSON, claim: JSON) -> str:
    """Return Kubernetes' message if the volume that a claim names cannot serve it, else ""."""
    if capacity_bytes(volume) < requested_bytes(claim):
        return "requested PV is too small"
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    if _attributes_class(volume) != _attributes_class(claim):
        return "VolumeAttributesClassName does not match"
    if _mode(volume) != _mode(claim):
        return "incompatible volumeMode"
    if not _access_modes(claim) <= _access_modes(volume):
        return "incompatible accessMode"
    return ""


def best_match(claim: JSON, volumes: Iterable[JSON], *, delayed: bool) -> JSON | None:
    """Return the volume for an unbound claim: one with a claimRef to it, else the smallest free one.

    Ties go to fewer access modes. delayed: the claim waits for its first consumer; only a volume with a claimRef
    counts.
    """
    fitting = [volume for volume in volumes if _serves(volume, claim)]
    for volume in fitting:
        if is_bound_to(volume, claim):
            return volume
    if delayed:
        return None
    selector = claim["spec"].get("selector")
    selects = selector_from(convert(LabelSelector, selector)).matches if selector else None
    free = [
        volume
        for volume in fitting
        if not volume["spec"].get("claimRef")
        and phase_of(volume) == "Available"
        and class_of(volume) == class_of(claim)
        and (selects is None or selects(volume["metadata"].get("labels") or {}))
    ]
    rank = {
        id(candidate): (len(_access_modes(candidate)), capacity_bytes(candidate), candidate["metadata"]["name"])
        for candidate in free
    }
    return min(free, key=lambda candidate: rank[id(candidate)], default=None)


def claims_of_pod(pod: JSON) -> Iterator[tuple[str, JSON | None]]:
    """Yield the keys of the claims that a pod uses, each with its ephemeral volume source, if any."""
    metadata = pod["metadata"]
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            yield f"{metadata['namespace']}/{volume['persistentVolumeClaim']['claimName']}", None
        elif volume.get("ephemeral"):
            yield f"{metadata['namespace']}/{metadata['name']}-{volume['name']}", volume["ephemeral"]


def _serves(volume: JSON, claim: JSON) -> bool:
    if volume["spec"].get("claimRef") and not is_bound_to(volume, claim):
        return False
    return (
        "deletionTimestamp" not in volume["metadata"]
        and capacity_bytes(volume) >= requested_bytes(claim)
        and _mode(volume) == _mode(claim)
        and _attributes_class(volume) == _attributes_class(claim)
        and _access_modes(claim) <= _access_modes(volume)
    )


def _mode(obj: JSON) -> str:
    return obj["spec"].get("volumeMode") or "Filesystem"


def _attributes_class(obj: JSON) -> str:
    return obj["spec"].get("volumeAttributesClassName") or ""


def _access_modes(obj: JSON) -> frozenset[str]:
    return frozenset(obj["spec"].get("accessModes") or ())
