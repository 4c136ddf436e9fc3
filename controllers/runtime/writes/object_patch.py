"""Patches of an object that was read before."""

from __future__ import annotations

from typing import TypeVar

from kubeloop.controllers.runtime.writes.status_patch import versioned_merge_patch
from kubeloop.kube.client.api_client import Client, PatchType
from kubeloop.kube.objects.api_types import JSONValue, Object
from kubeloop.kube.objects.resources import Resource

T = TypeVar("T", bound=Object)


async def patch_object(
    client: Client,
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
    client: Client, resource: Resource[T], obj: Object, *, subresource: str = "", **members: JSONValue
) -> T:
    """Merge `members` into the object, and return the response. Raises Conflict if it is another version than `obj`."""
    body = versioned_merge_patch(obj.metadata.resource_version, **members)
    return await patch_object(client, resource, obj, body, subresource=subresource)


async def patch_status(client: Client, resource: Resource[T], obj: Object, changes: JSONValue) -> T:
    """Merge `changes` into the status of an object; see `merge_object`."""
    return await merge_object(client, resource, obj, subresource="status", status=changes)
