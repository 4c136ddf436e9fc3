"""Patches of an object that was read before.

A write never sends a partial struct. It sends the changed fields and the resourceVersion that the decision was based
on (JSON merge patch), so that it conflicts in the same cases as an update.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.objects.api_types import JSONValue, Object, Struct, to_json
from kubeloop.kube.objects.resources import Resource

T = TypeVar("T", bound=Object)


def versioned_merge_patch(resource_version: str, **members: JSONValue) -> dict[str, JSONValue]:
    """Return a merge patch of `members` that applies to this resourceVersion only."""
    metadata = members.pop("metadata", {})
    pin = {"resourceVersion": resource_version} if resource_version else {}
    return {"metadata": {**pin, **metadata}, **members}


def changed_fields(old: Struct, new: Struct, *, always: Mapping[str, JSONValue] | None = None) -> dict[str, JSONValue]:
    """Return the merge patch members that turn `old` into `new`; null removes a field.

    A field that became its zero value is removed, as with Go's omitempty; a field named in `always` is set to the value
    given there instead.
    """
    before, after = to_json(old), to_json(new)
    changes = {name: value for name, value in after.items() if before.get(name) != value}
    for name in before:
        if name not in after:
            changes[name] = always[name] if always is not None and name in always else None
    return changes


async def patch_object(
    client: ApiClient,
    resource: Resource[T],
    obj: Object,
    body: JSONValue,
    patch_type: PatchType = PatchType.MERGE,
    subresource: str = "",
) -> T:
    """Patch the object with the name and namespace of `obj`, and return the response."""
    name, namespace = obj.metadata.name, obj.metadata.namespace
    return await client.patch(resource, name, body, patch_type, namespace, subresource=subresource)


async def merge_object(
    client: ApiClient, resource: Resource[T], obj: Object, *, subresource: str = "", **members: JSONValue
) -> T:
    """Merge `members` into the object, and return the response. Raises Conflict if it is another version than `obj`."""
    body = versioned_merge_patch(obj.metadata.resource_version, **members)
    return await patch_object(client, resource, obj, body, subresource=subresource)


async def patch_status(client: ApiClient, resource: Resource[T], obj: Object, changes: JSONValue) -> T:
    """Merge `changes` into the status of an object; see `merge_object`."""
    return await merge_object(client, resource, obj, subresource="status", status=changes)
