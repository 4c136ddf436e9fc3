"""PersistentVolumes. Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from kubeloop.devcluster.admission.chain import AdmissionChain, add_finalizer
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.strategy import Strategy, Write
from kubeloop.devcluster.printers.columns import (
    AGE,
    access_modes,
    phase_or_terminating,
    row,
    storage_class_name,
    text_of,
)
from kubeloop.devcluster.printers.formatting import UNSET, spec_of
from kubeloop.devcluster.serializer.defaulting import VOLUME_DEFAULTS
from kubeloop.devcluster.validation.common.error_list import NOT_POSITIVE, ErrorList
from kubeloop.devcluster.validation.common.go_values import struct_differences
from kubeloop.devcluster.validation.common.object_meta import validate_core_finalizers, validate_object_meta
from kubeloop.devcluster.validation.common.persistent_volume_claim_spec import (
    validate_access_modes,
    validate_basic_quantity,
    validate_class_name,
    validate_volume_mode,
)
from kubeloop.devcluster.validation.pod.scheduling import validate_node_selector
from kubeloop.devcluster.validation.pod.volumes import ERROR_PATH_NAMES, SHARED_SOURCES, validate_csi_driver_name
from kubeloop.devcluster.validation.warnings.pod_warnings import (
    DEPRECATED_VOLUME_TYPES,
    class_annotation_warnings,
    node_term_warnings,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_label, dns_subdomain
from kubeloop.kube.values.quantities import parse_quantity


def _validate_local(errors: ErrorList, path: str, source: JSON) -> None:
    if errors.require(f"{path}.path", source.get("path")) and ".." in source["path"].split("/"):
        errors.invalid(f"{path}.path", source["path"], "must not contain '..'")


def _validate_csi(errors: ErrorList, path: str, source: JSON) -> None:
    validate_csi_driver_name(errors, f"{path}.driver", source.get("driver", ""))
    errors.required_fields(path, source, "volumeHandle")
    for field in (
        "controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"
    ):  # fmt: skip
        secret = source.get(field)
        if secret is None:
            continue
        for name, check in (("name", dns_subdomain), ("namespace", dns_label)):
            if errors.require(f"{path}.{field}.{name}", secret.get(name)):
                errors.check(f"{path}.{field}.{name}", secret[name], check)


_SOURCES_IN_ORDER = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte", "cephfs",
    "iscsi", "cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume",
    "azureDisk", "scaleIO", "local", "storageos", "csi",
)  # fmt: skip


def _validate_glusterfs(errors: ErrorList, path: str, source: JSON) -> None:
    SHARED_SOURCES["glusterfs"](errors, path, source)
    namespace = source.get("endpointsNamespace")
    if namespace == "":
        detail = "if the endpointnamespace is set, it must be a valid namespace name"
        errors.invalid(f"{path}.endpointsNamespace", namespace, detail)
    elif namespace is not None:
        errors.check(f"{path}.endpointsNamespace", namespace, dns_label)


def _validate_azure_file(errors: ErrorList, path: str, source: JSON) -> None:
    SHARED_SOURCES["azureFile"](errors, path, source)
    if source.get("secretNamespace") == "":
        errors.required(f"{path}.secretNamespace")


_SOURCES = {
    **SHARED_SOURCES,
    "local": _validate_local,
    "csi": _validate_csi,
    "glusterfs": _validate_glusterfs,
    "azureFile": _validate_azure_file,
}
_EXTRA_SOURCE_PATH_NAMES = {"cephfs": "cephFS"}


def validate_persistent_volume_spec(errors: ErrorList, path: str, spec: JSON, *, inline: bool = False) -> None:
    """Validate a PersistentVolumeSpec. inline: it is part of a VolumeAttachment."""
    if inline:
        _validate_inline_volume(errors, path, spec)
    modes = spec.get("accessModes") or ()
    errors.require(f"{path}.accessModes", modes)
    validate_access_modes(errors, f"{path}.accessModes", modes)
    if not inline:
        _validate_capacity(errors, f"{path}.capacity", spec.get("capacity"))
    policy = spec.get("persistentVolumeReclaimPolicy", "")
    if inline and policy not in ("", "Retain"):
        errors.forbidden(f"{path}.persistentVolumeReclaimPolicy", f"may only be Retain {_INLINE}")
    elif policy not in ("", "Delete", "Recycle", "Retain"):
        errors.not_supported(f"{path}.persistentVolumeReclaimPolicy", policy, ("Delete", "Recycle", "Retain"))
    affinity = spec.get("nodeAffinity")
    if affinity is not None and inline:
        errors.forbidden(f"{path}.nodeAffinity", _FORBIDDEN_INLINE)
    elif affinity is not None and affinity.get("required") is None:
        errors.required(f"{path}.nodeAffinity.required", "must specify required node constraints")
    elif affinity is not None:
        validate_node_selector(errors, f"{path}.nodeAffinity.required", affinity["required"])
    _validate_volume_source(errors, path, spec, has_affinity=affinity is not None and not inline)
    if policy == "Recycle" and posixpath.normpath(spec.get("hostPath", {}).get("path", ".")) == "/":
        detail = "may not be 'recycle' for a hostPath mount of '/'"
        errors.forbidden(f"{path}.persistentVolumeReclaimPolicy", detail)
    if inline:
        if spec.get("storageClassName"):
            errors.forbidden(f"{path}.storageClassName", _FORBIDDEN_INLINE)
        if spec.get("volumeMode") not in (None, "Filesystem"):
            errors.forbidden(f"{path}.volumeMode", f"may not specify volumeMode other than Filesystem {_INLINE}")
        return
    validate_class_name(errors, f"{path}.storageClassName", spec.get("storageClassName"))
    validate_volume_mode(errors, f"{path}.volumeMode", spec.get("volumeMode"))
    attributes = spec.get("volumeAttributesClassName")
    if attributes is not None:
        errors.require(f"{path}.volumeAttributesClassName", attributes, "an empty string is disallowed")
        validate_class_name(errors, f"{path}.volumeAttributesClassName", attributes)
        if "csi" not in spec:
            errors.required(f"{path}.csi", "has to be specified when using volumeAttributesClassName")


def _validate_capacity(errors: ErrorList, path: str, capacity: JSON | None) -> None:
    errors.require(path, capacity)
    if list(capacity or ()) != ["storage"]:
        errors.not_supported(path, capacity, ("storage",))
    for name, quantity in sorted((capacity or {}).items()):
        validate_basic_quantity(errors, f"{path}[{name}]", quantity)
        if parse_quantity(quantity).sign <= 0:
            errors.invalid(f"{path}[{name}]", quantity, NOT_POSITIVE)


def _validate_volume_source(errors: ErrorList, path: str, spec: JSON, *, has_affinity: bool) -> None:
    """Require one volume source; a flexVolume may be set in addition."""
    kinds = [name for name in _SOURCES_IN_ORDER if name in spec]
    for kind in kinds[:1]:
        _SOURCES[kind](errors, f"{path}.{ERROR_PATH_NAMES.get(kind, kind)}", spec[kind])
        if kind == "local" and not has_affinity:
            errors.required(f"{path}.nodeAffinity", "Local volume requires node affinity")
    for kind in kinds[1:]:
        if kind == "flexVolume":
            _SOURCES[kind](errors, f"{path}.flexVolume", spec[kind])
        else:
            errors.forbidden(
                f"{path}.{_EXTRA_SOURCE_PATH_NAMES.get(kind, kind)}", "may not specify more than 1 volume type"
            )
    errors.require(path, kinds, "must specify a volume type")


_INLINE = "in the context of inline volumes"
_FORBIDDEN_INLINE = f"may not be specified {_INLINE}"


def _validate_inline_volume(errors: ErrorList, path: str, spec: JSON) -> None:
    if spec.get("claimRef") is not None:
        errors.forbidden(f"{path}.claimRef", _FORBIDDEN_INLINE)
    if spec.get("capacity"):
        errors.forbidden(f"{path}.capacity", _FORBIDDEN_INLINE)
    if "csi" not in spec:
        errors.required(f"{path}.csi", f"has to be specified {_INLINE}")


def validate_persistent_volume(errors: ErrorList, obj: JSON) -> None:
    validate_persistent_volume_spec(errors, "spec", obj["spec"])
    _validate_mount_options(errors, obj)


_MOUNT_OPTIONS = "volume.beta.kubernetes.io/mount-options"
_MOUNTABLE_SOURCES = (
    "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "nfs", "rbd", "quobyte", "iscsi", "cinder", "cephfs",
    "azureFile", "vsphereVolume", "azureDisk", "photonPersistentDisk",
)  # fmt: skip


def _validate_mount_options(errors: ErrorList, obj: JSON) -> None:
    if _MOUNT_OPTIONS in obj["metadata"].get("annotations", {}) and not any(
        name in obj["spec"] for name in _MOUNTABLE_SOURCES
    ):
        detail = "may not specify mount options for this volume type"
        errors.forbidden(f"metadata.annotations.{_MOUNT_OPTIONS}", detail)


def validate_persistent_volume_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    spec, before = obj["spec"], old["spec"]
    if spec == before and obj["metadata"] is old["metadata"]:
        return
    for is_update_check in (False, True):  # the strategy validates the whole object, and so does its update check
        validate_object_meta(errors, obj["metadata"], namespaced=False, name_check=dns_subdomain)
        if "finalizers" in obj["metadata"]:
            validate_core_finalizers(errors, obj["metadata"])
        validate_persistent_volume_spec(errors, "spec", spec)
        if not is_update_check:
            _validate_mount_options(errors, obj)
    sources = {name: spec[name] for name in _SOURCES_IN_ORDER if name in spec}
    old_sources = {name: before[name] for name in _SOURCES_IN_ORDER if name in before}
    if "csi" in old_sources and "csi" in sources and "controllerExpandSecretRef" not in old_sources["csi"]:
        sources["csi"] = {name: value for name, value in sources["csi"].items() if name != "controllerExpandSecretRef"}
    if sources != old_sources:
        difference = struct_differences(old_sources, sources, "core/v1.PersistentVolumeSource")
        detail = f"spec.persistentvolumesource is immutable after creation\n{difference}"
        errors.forbidden("spec.persistentvolumesource", detail)
    errors.immutable("volumeMode", spec.get("volumeMode"), before.get("volumeMode"))
    if (
        before.get("nodeAffinity") is not None
        and not _is_same_affinity(spec.get("nodeAffinity"), before["nodeAffinity"])
        and not errors.gates.enabled("MutablePVNodeAffinity")
    ):
        detail = "field is immutable, except for updating from beta label to GA"
        errors.invalid("nodeAffinity", spec.get("nodeAffinity"), detail, "core/v1.VolumeNodeAffinity")
    if before.get("volumeAttributesClassName") is not None and spec.get("volumeAttributesClassName") is None:
        errors.forbidden("spec.volumeAttributesClassName", "update from non-nil value to nil is forbidden")


_STABLE_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}


def _is_same_affinity(new: Any, old: Any) -> bool:
    """Compare affinities; a beta label may have become the stable one (or, as in v1.36, a key may be absent)."""
    if type(new) is dict and type(old) is dict and "operator" in old:
        key = new.get("key", "")
        stable = key != old.get("key") and _STABLE_LABELS.get(old.get("key", ""), "") == key
        return {**new, "key": ""} == {**old, "key": ""} if stable else bool(new == old)
    if type(new) is dict and type(old) is dict:
        return all(_is_same_affinity(new.get(name), old.get(name)) for name in {*new, *old})
    if type(new) is list and type(old) is list:
        return len(new) == len(old) and all(map(_is_same_affinity, new, old))
    return bool(new == old)


def _default(obj: JSON) -> None:
    spec = obj["spec"]
    obj.setdefault("status", {}).setdefault("phase", "Pending")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    for source in ("iscsi", "rbd", "azureDisk", "scaleIO", "hostPath"):
        if source in spec:
            for name, value in VOLUME_DEFAULTS[source].items():
                spec[source].setdefault(name, value)


def _claim(volume: JSON, _now: datetime) -> str:
    claim = spec_of(volume).get("claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _warnings(volume: JSON, _old: JSON | None) -> Iterator[str]:
    spec = volume.get("spec", {})
    yield from class_annotation_warnings(volume.get("metadata", {}))
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


def _prepare_create(volume: JSON, write: Write) -> None:
    volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": write.now()}


def _with_transition_time(status: JSON, old: JSON, now: Callable[[], str]) -> JSON:
    """Set lastPhaseTransitionTime when a volume's phase changes, unless the request sets it."""
    name = "lastPhaseTransitionTime"
    same_phase = status.get("phase") == old.get("phase")
    if same_phase and name in old:
        return {name: old[name], **status}
    if not same_phase and status.get(name) in (None, old.get(name)):
        return {**status, name: now()}
    return status


def _prepare_status(volume: JSON, old: JSON, write: Write) -> None:
    volume["status"] = _with_transition_time(volume.get("status") or {}, old.get("status") or {}, write.now)


def _admit_create(chain: AdmissionChain, _context: RequestContext, volume: JSON) -> None:
    if "StorageObjectInUseProtection" in chain.enabled:
        add_finalizer(volume, "kubernetes.io/pv-protection")


STRATEGY = Strategy(
    default=_default,
    prepare_create=_prepare_create,
    prepare_status=_prepare_status,
    validate=validate_persistent_volume,
    validate_update=validate_persistent_volume_update,
    update_steps="s",
    warnings=_warnings,
    admit_create=_admit_create,
    cells=row(
        text_of("spec.capacity.storage", "0"),
        access_modes("spec.accessModes"),
        text_of("spec.persistentVolumeReclaimPolicy"),
        phase_or_terminating,
        _claim,
        storage_class_name,
        text_of("spec.volumeAttributesClassName", UNSET),
        text_of("status.reason"),
        AGE,
        text_of("spec.volumeMode", UNSET),
    ),
)
