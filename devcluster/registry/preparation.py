"""Steps before a write: reset, restore and count the fields that clients may not set, and prepare what a kind adds.

Objects are decoded, defaulted and owned by the request, so they are changed in place. Pure functions otherwise:
allocation and time belong to the server. Source: apiserver pkg/registry/rest (BeforeCreate, BeforeUpdate) and the
strategies under pkg/registry of Kubernetes v1.36.
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.api.strategy import Strategy, Write
from kubeloop.devcluster.registry.disabled_fields import DEFAULT_FIELDS, DisabledFields
from kubeloop.devcluster.serializer.empty_values import restore_empty_values
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON


def prepare_for_create(
    served: ServedResource, strategy: Strategy, obj: JSON, write: Write, fields: DisabledFields = DEFAULT_FIELDS
) -> None:
    """Reset the fields that a client may not set, and set those of the server."""
    fields.drop(strategy, obj)
    if served.has_status and not strategy.sets_initial_status:
        obj["status"] = dict(served.empty_status)
    if strategy.prepare_create is not None:
        strategy.prepare_create(obj, write)
    if served.generation:
        obj["metadata"]["generation"] = 1


_SERVER_OWNED = ("generation", "selfLink", "creationTimestamp")
_RETAINED_IF_ABSENT = ("uid", "deletionGracePeriodSeconds")


def prepare_for_update(
    served: ServedResource,
    strategy: Strategy,
    obj: JSON,
    old: JSON,
    sent: JSON,
    write: Write,
    fields: DisabledFields = DEFAULT_FIELDS,
) -> None:
    """Restore what a client may not change through the main resource: status, and the server's part of metadata.

    sent: see request_bodies.Body.
    """
    metadata, before = obj["metadata"], old["metadata"]
    for name in _SERVER_OWNED:
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)
    for name in _RETAINED_IF_ABSENT:
        if name in before:
            metadata.setdefault(name, before[name])
    if "deletionTimestamp" in before:  # another value in the request is ignored, without an error
        metadata["deletionTimestamp"] = before["deletionTimestamp"]
    if served.has_status:
        if "status" in old:
            obj["status"] = old["status"]
        else:
            obj.pop("status", None)
    fields.drop(strategy, obj, old)
    if strategy.prepare_update is not None:
        strategy.prepare_update(obj, old, write)
    counted = served.generation_metadata
    compared = restore_empty_values(obj, sent) if strategy.generation_as_sent else obj
    if (counted and metadata.get(counted) != before.get(counted)) or any(
        compared.get(name) != old.get(name) for name in served.generation
    ):
        metadata["generation"] = before.get("generation", 0) + 1


def drop_empty_lists(served: ServedResource, obj: JSON) -> None:
    """Replace empty lists by None, in place, as a round trip through protobuf does.

    Decoding has dropped the empty lists that JSON omits.
    """
    resource = served.resource
    struct = schema.type_for(resource.group, resource.version, resource.kind)
    if struct is not None and (field_tree := _lists_written_when_empty(struct, ())):
        _replace_empty_lists(obj, field_tree)


_FieldTree: TypeAlias = "dict[str, _FieldTree]"


@cache
def _lists_written_when_empty(struct: schema.StructType, ancestors: tuple[str, ...]) -> _FieldTree:
    """Return the fields of a type that are lists which JSON writes even if empty, or that contain such lists."""
    result: _FieldTree = {}
    for field in struct.json.values():
        inner = field.type
        while inner.element is not None:
            inner = inner.element
        subtree: _FieldTree = {}
        if inner.struct is not None and inner.struct.name not in ancestors:  # JSONSchemaProps is recursive
            subtree = _lists_written_when_empty(inner.struct, (*ancestors, struct.name))
        is_list_written_when_empty = field.type.kind == "list" and not field.omit_empty and not field.omit_zero
        if (subtree and field.type.kind != "map") or is_list_written_when_empty:
            result[field.name] = subtree
    return result


def _replace_empty_lists(obj: JSON, field_tree: _FieldTree) -> None:
    for name, subtree in field_tree.items():
        value = obj.get(name)
        if value == []:
            obj[name] = None
        elif subtree and value:
            for item in value if isinstance(value, list) else (value,):
                _replace_empty_lists(item, subtree)


def prepare_for_subresource_update(
    strategy: Strategy,
    obj: JSON,
    old: JSON,
    subresource: str,
    write: Write,
    fields: DisabledFields = DEFAULT_FIELDS,
) -> JSON:
    """Return the object that a write to a subresource stores: `old` with the new status; "finalize": the new spec.

    Of the request's metadata, it has the fields that the strategy names for the status, and managedFields.
    """
    if (prepare := strategy.prepare_subresources.get(subresource)) is not None:
        return prepare(obj, old, write)
    result = dict(old)
    written_field = "spec" if subresource == "finalize" else "status"
    if written_field in obj:
        result[written_field] = obj[written_field]
    else:
        result.pop(written_field, None)
    metadata = result["metadata"] = dict(old["metadata"])
    for field in (*(strategy.status_metadata or ()), "managedFields"):
        if field in obj["metadata"]:
            metadata[field] = obj["metadata"][field]
        else:
            metadata.pop(field, None)
    if "deletionGracePeriodSeconds" in obj["metadata"] and strategy.status_metadata is not None:
        metadata["deletionGracePeriodSeconds"] = obj["metadata"]["deletionGracePeriodSeconds"]  # validation reports it
    retained = "deletionTimestamp" in old["metadata"] or "ownerReferences" not in (strategy.status_metadata or ())
    if "deletionTimestamp" in obj["metadata"] and not retained:
        metadata["deletionTimestamp"] = obj["metadata"]["deletionTimestamp"]
    if written_field == "status":
        fields.drop_status(strategy, result, old)
        if strategy.prepare_status is not None:
            strategy.prepare_status(result, old, write)
    return result
