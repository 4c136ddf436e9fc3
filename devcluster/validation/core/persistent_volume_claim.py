"""PersistentVolumeClaims, and the claims that templates describe. Source: core/validation/validation.go."""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.devcluster.api.name_checks import dns_label, dns_subdomain, qualified_name
from kubeloop.devcluster.validation.common.error_list import NOT_POSITIVE, Errors
from kubeloop.devcluster.validation.common.field_checks import label_selector
from kubeloop.devcluster.validation.common.go_values import struct_differences
from kubeloop.kube.json_object import JSON
from kubeloop.kube.quantities import parse_quantity, value

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def access_modes(errors: Errors, path: str, modes: Sequence[str]) -> None:
    for mode in modes:
        if mode not in _ACCESS_MODES:
            errors.not_supported(path, mode, _ACCESS_MODES)
    if "ReadWriteOncePod" in modes and any(mode in _ACCESS_MODES and mode != "ReadWriteOncePod" for mode in modes):
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes")


def volume_mode(errors: Errors, path: str, mode: str | None) -> None:
    if mode is not None and mode not in ("Block", "Filesystem"):
        errors.not_supported(path, mode, ("Block", "Filesystem"))


def class_name(errors: Errors, path: str, name: str | None) -> None:
    if name:
        errors.invalid_each(path, name, dns_subdomain(name))


def claim_spec(errors: Errors, path: str, spec: JSON, before: JSON | None = None) -> None:
    """`before`: the stored one, whose data source may have a group that is wrong."""
    modes = spec.get("accessModes") or ()
    if not modes:
        errors.required(f"{path}.accessModes", "at least 1 access mode is required")
    label_selector(errors, f"{path}.selector", spec.get("selector"))
    access_modes(errors, f"{path}.accessModes", modes)
    storage = spec.get("resources", {}).get("requests", {}).get("storage")
    if storage is None:
        errors.required(f"{path}.resources[storage]")
    elif parse_quantity(storage).sign <= 0:
        errors.invalid(f"{path}.resources[storage]", storage, NOT_POSITIVE)
    class_name(errors, f"{path}.storageClassName", spec.get("storageClassName"))
    volume_mode(errors, f"{path}.volumeMode", spec.get("volumeMode"))
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    sources = [(before or {}).get(name) or {} for name in ("dataSource", "dataSourceRef")]
    any_group = any(each.get("apiGroup") is not None for each in sources)
    if source is not None:
        _data_source(errors, f"{path}.dataSource", source, any_group=any_group)
    if reference is not None:
        _data_source(errors, f"{path}.dataSourceRef", reference, any_group=any_group)
        namespace = reference.get("namespace", "")
        if namespace:
            errors.invalid_each(f"{path}.dataSourceRef.namespace", namespace, dns_label(namespace))
            if source is not None:
                wrong = "may not be specified when dataSourceRef.namespace is specified"
                errors.invalid(path, {}, wrong)  # what Kubernetes shows is a path, which prints as an empty object
        elif source is not None and any(source.get(n) != reference.get(n) for n in ("apiGroup", "kind", "name")):
            errors.invalid(path, {}, "must match dataSourceRef")
    class_name(errors, f"{path}.volumeAttributesClassName", spec.get("volumeAttributesClassName"))


def _data_source(errors: Errors, path: str, source: JSON, *, any_group: bool) -> None:
    for name in ("name", "kind"):
        if not source.get(name):
            errors.required(f"{path}.{name}")
    group = source.get("apiGroup") or ""
    if not group and source.get("kind") != "PersistentVolumeClaim":
        wrong = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errors.invalid(path, source.get("kind", ""), wrong)
    elif group and not any_group:
        errors.invalid_each(f"{path}.apiGroup", group, dns_subdomain(group))


def claim_create(errors: Errors, obj: JSON) -> None:
    claim_spec(errors, "spec", obj["spec"])


def claim_update(errors: Errors, obj: JSON, old: JSON) -> None:
    spec, before = obj["spec"], old["spec"]
    if spec == before:
        return
    claim_spec(errors, "spec", spec, before)
    _class_annotation(errors, obj, old)
    munged = _with_what_may_change(obj, old)
    if not before.get("volumeName") and spec.get("volumeName"):
        before = {**before, "volumeName": spec["volumeName"]}  # as it is told, it was there before
    if munged != before:
        told = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        difference = struct_differences(before, munged, "core/v1.PersistentVolumeClaimSpec")
        errors.forbidden("spec", f"{told}\n{difference}")
    _size(errors, spec, old)
    errors.immutable("volumeMode", spec.get("volumeMode"), before.get("volumeMode"))
    now = spec.get("volumeAttributesClassName")
    applied = old.get("status", {}).get("currentVolumeAttributesClassName")
    if applied is not None and now != before.get("volumeAttributesClassName") and not now:
        given = "nil" if now is None else "empty string"
        wrong = f"update to {given} is forbidden when status.currentVolumeAttributesClassName is not nil"
        errors.forbidden("spec.volumeAttributesClassName", wrong)


def _class_annotation(errors: Errors, obj: JSON, old: JSON) -> None:
    now = obj["metadata"].get("annotations", {}).get(_CLASS_ANNOTATION, "")
    was = old["metadata"].get("annotations", {}).get(_CLASS_ANNOTATION, "")
    if now != was and obj["spec"].get("storageClassName") != was:
        errors.immutable(f"metadata.annotations[{_CLASS_ANNOTATION}]", now, was)


def _with_what_may_change(obj: JSON, old: JSON) -> JSON:
    """The new spec with everything that may change set back."""
    munged, before = dict(obj["spec"]), old["spec"]
    free = ["storageClassName"] if before.get("storageClassName") is None else []
    if obj.get("status", {}).get("phase") == "Bound":
        free.append("volumeAttributesClassName")
        requests = munged.get("resources", {}).get("requests")
        if requests is not None:
            kept = {**requests, "storage": before.get("resources", {}).get("requests", {}).get("storage")}
            munged["resources"] = {**munged["resources"], "requests": kept}
    for name in free:
        if name in before:
            munged[name] = before[name]
        elif munged.get(name) is not None:
            munged.pop(name)
    return munged


def _size(errors: Errors, spec: JSON, old: JSON) -> None:
    """A request may shrink to recover from an expansion that failed, but not to what there is already."""
    zero = parse_quantity(0)
    new = parse_quantity(spec.get("resources", {}).get("requests", {}).get("storage", 0))
    before = parse_quantity(old["spec"].get("resources", {}).get("requests", {}).get("storage", 0))
    have = old.get("status", {}).get("capacity", {}).get("storage")
    if new.compare(before) < 0 and new.compare(parse_quantity(have) if have is not None else zero) <= 0:
        errors.forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")


_RESIZE_STATES = (
    "ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizePending", "NodeResizeInProgress",
    "NodeResizeInfeasible",
)  # fmt: skip


def claim_status_update(errors: Errors, obj: JSON, old: JSON) -> None:
    del old
    status = obj.get("status", {})
    for name, quantity in sorted(status.get("capacity", {}).items()):
        basic_quantity(errors, f"status.capacity[{name}]", quantity)
    for name, state in sorted(status.get("allocatedResourceStatuses", {}).items()):
        _claim_resource(errors, "status.allocatedResourceStatuses", name)
        if state not in _RESIZE_STATES:
            errors.not_supported("status.allocatedResourceStatus", name, sorted(_RESIZE_STATES))
    for name, quantity in sorted(status.get("allocatedResources", {}).items()):
        if _claim_resource(errors, "status.allocatedResources", name):
            basic_quantity(errors, f"status.allocatedResources[{name}]", quantity)


def basic_quantity(errors: Errors, path: str, quantity: str) -> None:
    if value(quantity) < 0:
        errors.invalid(path, value(quantity), "must be a valid resource quantity")


def _claim_resource(errors: Errors, path: str, name: str) -> bool:
    if wrong := qualified_name(name):
        errors.invalid_each(path, name, wrong)
        return False
    if name != "storage" and ("/" not in name or "kubernetes.io/" in name):
        errors.not_supported(path, name, ("storage",))
        return False
    return True
