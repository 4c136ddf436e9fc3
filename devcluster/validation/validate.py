"""Entry points of validation: create, update, and writes of subresources."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import (
    path_segment,
    validate_core_finalizers,
    validate_managed_fields,
    validate_object_meta,
    validate_object_meta_update,
)
from kubeloop.devcluster.validation.common.required_fields import validate_required_fields
from kubeloop.devcluster.validation.pod.pod_subresources import is_write_refused
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource


def validate_create(
    strategy: Strategy, resource: Resource[Any], obj: JSON, *, error_list: type[ErrorList] = ErrorList
) -> list[JSON]:
    """Return the causes against creating `obj`; an empty list if it is valid. error_list: with the feature gates."""
    errors, metadata = error_list(), obj["metadata"]
    if strategy.strategy_metadata:
        name_check = strategy.name_check
        if strategy.strict_name_check is not None and not errors.gates.enabled("RelaxedServiceNameValidation"):
            name_check = strategy.strict_name_check
        validate_object_meta(errors, metadata, namespaced=resource.namespaced, name_check=name_check)
        if strategy.core_finalizers and "finalizers" in metadata:
            validate_core_finalizers(errors, metadata)
    if strategy.validate is not None:
        strategy.validate(errors, obj)
    else:
        _validate_required(errors, resource, obj)
    if not errors and not strategy.strategy_metadata:
        validate_object_meta(errors, metadata, namespaced=resource.namespaced, name_check=path_segment)
    elif not errors and (problems := path_segment(metadata.get("name", ""))):
        errors.invalid_each("metadata.name", metadata["name"], problems)
    return errors


def validate_update(
    strategy: Strategy,
    resource: Resource[Any],
    obj: JSON,
    old: JSON,
    *,
    subresource: str = "",
    error_list: type[ErrorList] = ErrorList,
) -> list[JSON]:
    """Return the causes against replacing `old` by `obj`, through the object itself or one of its subresources.

    Unchanged parts are not validated again: they were valid when they were stored.
    """
    update_errors = error_list()
    metadata, before = obj["metadata"], old["metadata"]
    if not subresource:
        strategy.validate_update(update_errors, obj, old)
        if strategy.validate is None:
            _validate_required(update_errors, resource, obj)
    elif (validate := strategy.validate_subresources.get(subresource)) is not None:
        validate(update_errors, obj, old)
    if metadata is before:
        return update_errors
    if all(metadata.get(name) == before.get(name) for name in _METADATA_FIELDS) and not _managed_fields_errors(
        metadata
    ):
        return update_errors
    errors = ErrorList()
    validate_object_meta(errors, metadata, namespaced=resource.namespaced, name_check=path_segment)
    validate_object_meta_update(errors, metadata, before)
    sequence = strategy.update_steps
    if subresource:
        whole_object = subresource in ("resize", "ephemeralcontainers")
        sequence = (
            "s" if is_write_refused(subresource, old) else sequence if whole_object else strategy.subresource_steps
        )
    for step in sequence:
        if step == "s":
            errors += update_errors
            continue
        if step == "u":
            validate_object_meta_update(errors, metadata, before)
        else:
            validate_object_meta(errors, metadata, namespaced=resource.namespaced, name_check=strategy.name_check)
        if strategy.core_finalizers and "finalizers" in metadata:
            validate_core_finalizers(errors, metadata)
    return errors


def write_warnings(strategy: Strategy, obj: JSON, old: JSON | None = None, *, subresource: str = "") -> list[str]:
    """Return the warnings about a write of `obj`, through the object itself or one of its subresources."""
    if subresource == "status":
        return [warning for warning in strategy.status_warnings(obj, old) if warning]
    return [warning for warning in strategy.warnings(obj, old) if warning] if subresource in ("", "scale") else []


def _managed_fields_errors(metadata: JSON) -> ErrorList:
    errors = ErrorList()
    validate_managed_fields(errors, metadata.get("managedFields", ()), "metadata.managedFields")
    return errors


def _validate_required(errors: ErrorList, resource: Resource[Any], obj: JSON) -> None:
    struct = schema.type_for(resource.group, resource.version, resource.kind)
    if struct is not None:
        validate_required_fields(errors, struct, obj)


_METADATA_FIELDS = (
    "labels", "annotations", "ownerReferences", "finalizers", "name", "namespace", "uid", "generateName",
    "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
)  # fmt: skip
