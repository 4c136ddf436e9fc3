"""PersistentVolumeClaims. Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.admission import limit_ranger
from kubeloop.devcluster.admission.chain import AdmissionChain, add_finalizer
from kubeloop.devcluster.admission.default_classes import set_default_storage_class
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.served_resources import LIMIT_RANGES
from kubeloop.devcluster.api.strategy import ComputedColumn, Strategy, Write
from kubeloop.devcluster.printers.columns import (
    AGE,
    access_modes,
    phase_or_terminating,
    row,
    storage_class_name,
    text_of,
)
from kubeloop.devcluster.printers.formatting import UNSET, spec_of
from kubeloop.devcluster.serializer.defaulting import default_persistent_volume_claim
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.go_values import struct_differences
from kubeloop.devcluster.validation.common.persistent_volume_claim_spec import (
    validate_basic_quantity,
    validate_claim_spec,
)
from kubeloop.devcluster.validation.warnings.pod_warnings import claim_warnings, class_annotation_warnings
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES
from kubeloop.kube.validation.name_checks import qualified_name
from kubeloop.kube.values.quantities import parse_quantity

_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def validate_persistent_volume_claim_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    spec, before = obj["spec"], old["spec"]
    if spec == before:
        return
    validate_claim_spec(errors, "spec", spec, before)
    _validate_class_annotation(errors, obj, old)
    munged = _spec_with_mutable_fields_restored(obj, old)
    if not before.get("volumeName") and spec.get("volumeName"):
        before = {**before, "volumeName": spec["volumeName"]}  # the message shows it on both sides
    if munged != before:
        reason = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        difference = struct_differences(before, munged, "core/v1.PersistentVolumeClaimSpec")
        errors.forbidden("spec", f"{reason}\n{difference}")
    _validate_size_change(errors, spec, old)
    errors.immutable("volumeMode", spec.get("volumeMode"), before.get("volumeMode"))
    class_name = spec.get("volumeAttributesClassName")
    applied = old.get("status", {}).get("currentVolumeAttributesClassName")
    if applied is not None and class_name != before.get("volumeAttributesClassName") and not class_name:
        shown_value = "nil" if class_name is None else "empty string"
        detail = f"update to {shown_value} is forbidden when status.currentVolumeAttributesClassName is not nil"
        errors.forbidden("spec.volumeAttributesClassName", detail)


def _validate_class_annotation(errors: ErrorList, obj: JSON, old: JSON) -> None:
    new_class = obj["metadata"].get("annotations", {}).get(_CLASS_ANNOTATION, "")
    old_class = old["metadata"].get("annotations", {}).get(_CLASS_ANNOTATION, "")
    if new_class != old_class and obj["spec"].get("storageClassName") != old_class:
        errors.immutable(f"metadata.annotations[{_CLASS_ANNOTATION}]", new_class, old_class)


def _spec_with_mutable_fields_restored(obj: JSON, old: JSON) -> JSON:
    """Return the new spec with the old values of all fields that may change."""
    munged, before = dict(obj["spec"]), old["spec"]
    restored = ["storageClassName"] if before.get("storageClassName") is None else []
    if obj.get("status", {}).get("phase") == "Bound":
        restored.append("volumeAttributesClassName")
        requests = munged.get("resources", {}).get("requests")
        if requests is not None:
            old_requests = {**requests, "storage": before.get("resources", {}).get("requests", {}).get("storage")}
            munged["resources"] = {**munged["resources"], "requests": old_requests}
    for name in restored:
        if name in before:
            munged[name] = before[name]
        elif munged.get(name) is not None:
            munged.pop(name)
    return munged


def _validate_size_change(errors: ErrorList, spec: JSON, old: JSON) -> None:
    """Allow a smaller request, to recover from a failed expansion, but only above the current capacity."""
    zero = parse_quantity(0)
    new = parse_quantity(spec.get("resources", {}).get("requests", {}).get("storage", 0))
    before = parse_quantity(old["spec"].get("resources", {}).get("requests", {}).get("storage", 0))
    capacity = old.get("status", {}).get("capacity", {}).get("storage")
    if new.compare(before) < 0 and new.compare(parse_quantity(capacity) if capacity is not None else zero) <= 0:
        errors.forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")


_RESIZE_STATES = (
    "ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizePending", "NodeResizeInProgress",
    "NodeResizeInfeasible",
)  # fmt: skip


def validate_persistent_volume_claim_status_update(errors: ErrorList, obj: JSON, _old: JSON) -> None:
    status = obj.get("status", {})
    for name, quantity in sorted(status.get("capacity", {}).items()):
        validate_basic_quantity(errors, f"status.capacity[{name}]", quantity)
    for name, state in sorted(status.get("allocatedResourceStatuses", {}).items()):
        _validate_claim_resource(errors, "status.allocatedResourceStatuses", name)
        if state not in _RESIZE_STATES:
            errors.not_supported("status.allocatedResourceStatus", name, sorted(_RESIZE_STATES))
    for name, quantity in sorted(status.get("allocatedResources", {}).items()):
        if _validate_claim_resource(errors, "status.allocatedResources", name):
            validate_basic_quantity(errors, f"status.allocatedResources[{name}]", quantity)


def _validate_claim_resource(errors: ErrorList, path: str, name: str) -> bool:
    if problems := qualified_name(name):
        errors.invalid_each(path, name, problems)
        return False
    if name != "storage" and ("/" not in name or "kubernetes.io/" in name):
        errors.not_supported(path, name, ("storage",))
        return False
    return True


def _if_bound(column: ComputedColumn) -> ComputedColumn:
    return lambda claim, now: column(claim, now) if spec_of(claim).get("volumeName") else ""


def _warnings(claim: JSON, _old: JSON | None) -> list[str]:
    return [*class_annotation_warnings(claim.get("metadata", {})), *claim_warnings(claim.get("spec", {}), "spec")]


_DATA_SOURCE_KINDS = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


def _prepare_create(claim: JSON, _write: Write) -> None:
    _normalize_data_sources(claim["spec"])


def _normalize_data_sources(spec: JSON, before: JSON | None = None) -> None:
    """Synchronize dataSource and dataSourceRef; the former takes only claims and snapshots, without a namespace."""
    before = before or {}
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        kind = (source.get("apiGroup") or "", source.get("kind"))
        if before.get("dataSource") is None and kind not in _DATA_SOURCE_KINDS:
            spec.pop("dataSource")
        else:
            spec["dataSourceRef"] = dict(source)
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = dict(reference)


def _prepare_update(claim: JSON, old: JSON, _write: Write) -> None:
    _normalize_data_sources(claim["spec"], old["spec"])


def _drop_cross_namespace_source(new: JSON, old: JSON) -> None:
    spec = new.get("spec", {})
    if (spec.get("dataSourceRef") or {}).get("namespace") and old.get("spec", {}).get("dataSourceRef") is None:
        del spec["dataSourceRef"]


def _admit_create(chain: AdmissionChain, _context: RequestContext, claim: JSON) -> None:
    if "DefaultStorageClass" in chain.enabled:
        set_default_storage_class(chain.store, claim)
    if "StorageObjectInUseProtection" in chain.enabled:
        add_finalizer(claim, "kubernetes.io/pvc-protection")


def _check_create(chain: AdmissionChain, _context: RequestContext, claim: JSON) -> None:
    if "LimitRanger" in chain.enabled:
        limit_ranger.check_claim(chain.store.list(LIMIT_RANGES, claim["metadata"]["namespace"]), claim)


def _check_update(chain: AdmissionChain, context: RequestContext, claim: JSON, old: JSON) -> None:
    if context.info.subresource:
        return
    if "deletionTimestamp" not in old["metadata"] and "LimitRanger" in chain.enabled:
        limit_ranger.check_claim(chain.store.list(LIMIT_RANGES, old["metadata"]["namespace"]), claim)
    if "PersistentVolumeClaimResize" in chain.enabled:
        check_claim_resize(chain.store, claim, old)


def _is_charged(_claim: JSON, _old: JSON, subresource: str) -> bool:
    return subresource in ("", "status")


def check_claim_resize(store: ObjectStore, obj: JSON, old: JSON) -> None:
    """Raise StatusError 403 if a claim requests more storage and its class does not support expansion.

    Source: plugin/pkg/admission/storage/persistentvolume/resize.
    """
    new, before = (
        parse_quantity(claim["spec"].get("resources", {}).get("requests", {}).get("storage", 0)) for claim in (obj, old)
    )
    if new.compare(before) <= 0:
        return
    message, name = "", _class_name(obj)
    storage_class = store.get(STORAGE_CLASSES, "", name) if name else None
    if old.get("status", {}).get("phase") != "Bound":
        message = "Only bound persistent volume claims can be expanded"
    elif storage_class is None or name != _class_name(old) or not storage_class.get("allowVolumeExpansion"):
        message = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
            "support resize"
        )
    if message:
        raise errors.forbidden(PERSISTENT_VOLUME_CLAIMS, obj["metadata"]["name"], message)


def _class_name(claim: JSON) -> str:
    annotated = claim["metadata"].get("annotations", {}).get(_CLASS_ANNOTATION)
    return str(claim["spec"].get("storageClassName", "") if annotated is None else annotated)


STRATEGY = Strategy(
    default=default_persistent_volume_claim,
    is_defaulted_on_read=lambda _claim: True,
    gated_fields=(("CrossNamespaceVolumeDataSource", _drop_cross_namespace_source),),
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=lambda errors, obj: validate_claim_spec(errors, "spec", obj["spec"]),
    validate_update=validate_persistent_volume_claim_update,
    validate_subresources={"status": validate_persistent_volume_claim_status_update},
    update_steps="uws",
    warnings=_warnings,
    admit_create=_admit_create,
    check_create=_check_create,
    check_update=_check_update,
    is_charged=_is_charged,
    cells=row(
        phase_or_terminating,
        text_of("spec.volumeName"),
        _if_bound(text_of("status.capacity.storage", "0")),
        _if_bound(access_modes("status.accessModes")),
        storage_class_name,
        text_of("spec.volumeAttributesClassName", UNSET),
        AGE,
        text_of("spec.volumeMode", UNSET),
    ),
)
