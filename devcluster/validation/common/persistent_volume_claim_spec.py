"""Validation of a PersistentVolumeClaimSpec, for claims, StatefulSets and ephemeral volumes.

Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.devcluster.validation.common.error_list import NOT_POSITIVE, ErrorList, validate_label_selector
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_label, dns_subdomain
from kubeloop.kube.values.quantities import parse_quantity, value

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def validate_access_modes(errors: ErrorList, path: str, modes: Sequence[str]) -> None:
    for mode in modes:
        errors.one_of(path, mode, _ACCESS_MODES)
    if "ReadWriteOncePod" in modes and any(mode in _ACCESS_MODES and mode != "ReadWriteOncePod" for mode in modes):
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes")


def validate_volume_mode(errors: ErrorList, path: str, mode: str | None) -> None:
    errors.one_of(path, mode, ("Block", "Filesystem"))


def validate_class_name(errors: ErrorList, path: str, name: str | None) -> None:
    errors.check(path, name or None, dns_subdomain)


def validate_claim_spec(errors: ErrorList, path: str, spec: JSON, before: JSON | None = None) -> None:
    """`before`: the stored one, whose data source may have a group that is wrong."""
    modes = spec.get("accessModes") or ()
    errors.require(f"{path}.accessModes", modes, "at least 1 access mode is required")
    validate_label_selector(errors, f"{path}.selector", spec.get("selector"))
    validate_access_modes(errors, f"{path}.accessModes", modes)
    storage = spec.get("resources", {}).get("requests", {}).get("storage")
    if storage is None:
        errors.required(f"{path}.resources[storage]")
    elif parse_quantity(storage).sign <= 0:
        errors.invalid(f"{path}.resources[storage]", storage, NOT_POSITIVE)
    validate_class_name(errors, f"{path}.storageClassName", spec.get("storageClassName"))
    validate_volume_mode(errors, f"{path}.volumeMode", spec.get("volumeMode"))
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    old_sources = [(before or {}).get(name) or {} for name in ("dataSource", "dataSourceRef")]
    any_group = any(old_source.get("apiGroup") is not None for old_source in old_sources)
    if source is not None:
        _validate_data_source(errors, f"{path}.dataSource", source, any_group=any_group)
    if reference is not None:
        _validate_data_source(errors, f"{path}.dataSourceRef", reference, any_group=any_group)
        namespace = reference.get("namespace", "")
        if namespace:
            errors.check(f"{path}.dataSourceRef.namespace", namespace, dns_label)
            if source is not None:
                detail = "may not be specified when dataSourceRef.namespace is specified"
                errors.invalid(path, {}, detail)  # what Kubernetes shows is a path, which prints as an empty object
        elif source is not None and any(source.get(n) != reference.get(n) for n in ("apiGroup", "kind", "name")):
            errors.invalid(path, {}, "must match dataSourceRef")
    validate_class_name(errors, f"{path}.volumeAttributesClassName", spec.get("volumeAttributesClassName"))


def _validate_data_source(errors: ErrorList, path: str, source: JSON, *, any_group: bool) -> None:
    errors.required_fields(path, source, "name", "kind")
    group = source.get("apiGroup") or ""
    if not group and source.get("kind") != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errors.invalid(path, source.get("kind", ""), detail)
    elif group and not any_group:
        errors.check(f"{path}.apiGroup", group, dns_subdomain)


def validate_basic_quantity(errors: ErrorList, path: str, quantity: str) -> None:
    if value(quantity) < 0:
        errors.invalid(path, value(quantity), "must be a valid resource quantity")
