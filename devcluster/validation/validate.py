"""Entry points of validation: create, update, and writes of subresources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubeloop.devcluster.api.served_resources import CustomResource
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import (
    path_segment,
    validate_core_finalizers,
    validate_managed_fields,
    validate_object_meta,
    validate_object_meta_update,
)
from kubeloop.devcluster.validation.common.required_fields import validate_required_fields
from kubeloop.devcluster.validation.kind_validators import RULES, SIMPLE, Rule, Update
from kubeloop.devcluster.validation.pod.pod_subresources import refused
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource


def validate_create(resource: Resource[Any], obj: JSON) -> list[JSON]:
    """Causes against creating `obj`; an empty list if there are none."""
    if isinstance(resource, CustomResource):
        return resource.rules.validate_create(obj)
    errors, rule = ErrorList(), RULES.get((resource.group, resource.kind), SIMPLE)
    metadata = obj["metadata"]
    if rule.own_metadata:
        validate_object_meta(errors, metadata, namespaced=resource.namespaced, name_check=rule.name)
        if rule.core and "finalizers" in metadata:
            validate_core_finalizers(errors, metadata)
    rule.create(errors, obj)
    if rule is SIMPLE:
        _validate_required(errors, resource, obj)
    if not errors and not rule.own_metadata:
        validate_object_meta(errors, metadata, namespaced=resource.namespaced, name_check=path_segment)
    elif not errors and (problems := path_segment(metadata.get("name", ""))):
        errors.invalid_each("metadata.name", metadata["name"], problems)
    return errors


def validate_update(resource: Resource[Any], obj: JSON, old: JSON, *, subresource: str = "") -> list[JSON]:
    """Causes against replacing `old` by `obj`, through the object itself or one of its subresources.

    Parts that are the same as before are not looked at again: they were valid when they were stored.
    """
    if isinstance(resource, CustomResource):
        return resource.rules.validate_update(obj, old, subresource)
    rule, found = RULES.get((resource.group, resource.kind), SIMPLE), ErrorList()
    metadata, before = obj["metadata"], old["metadata"]
    if not subresource:
        rule.update(found, obj, old)
        if rule is SIMPLE:
            _validate_required(found, resource, obj)
    elif subresource == "status":
        rule.status(found, obj, old)
    elif subresource in _PARTS:
        _PARTS[subresource](rule)(found, obj, old)
    if metadata is before:
        return found
    if all(metadata.get(name) == before.get(name) for name in _CHECKED) and not _wrong_owners(metadata):
        return found
    errors = ErrorList()
    validate_object_meta(errors, metadata, namespaced=resource.namespaced, name_check=path_segment)
    validate_object_meta_update(errors, metadata, before)
    parts = rule.parts
    if subresource:
        again = subresource in ("resize", "ephemeralcontainers")
        parts = "s" if refused(subresource, old) else parts if again else rule.status_parts
    for part in parts:
        if part == "s":
            errors += found
            continue
        if part == "u":
            validate_object_meta_update(errors, metadata, before)
        else:
            validate_object_meta(errors, metadata, namespaced=resource.namespaced, name_check=rule.name)
        if rule.core and "finalizers" in metadata:
            validate_core_finalizers(errors, metadata)
    return errors


def rule_warnings(resource: Resource[Any], obj: JSON, old: JSON | None) -> list[str]:
    """Return the warnings that the rule of a kind adds to those of warnings_for(); old: None on create."""
    return RULES.get((resource.group, resource.kind), SIMPLE).warnings(obj, old)


def _wrong_owners(metadata: JSON) -> ErrorList:
    errors = ErrorList()
    validate_managed_fields(errors, metadata.get("managedFields", ()), "metadata.managedFields")
    return errors


def _validate_required(errors: ErrorList, resource: Resource[Any], obj: JSON) -> None:
    struct = schema.type_for(resource.group, resource.version, resource.kind)
    if struct is not None:
        validate_required_fields(errors, struct, obj)


_PARTS: dict[str, Callable[[Rule], Update]] = {
    "finalize": lambda rule: rule.finalize,
    "ephemeralcontainers": lambda rule: rule.ephemeral,
    "resize": lambda rule: rule.resize,
}
_CHECKED = (
    "labels", "annotations", "ownerReferences", "finalizers", "name", "namespace", "uid", "generateName",
    "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
)  # fmt: skip
