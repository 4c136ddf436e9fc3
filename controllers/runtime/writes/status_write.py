"""Write of a status, with one retry. Source: updateReplicaSetStatus, storeDaemonSetStatus in pkg/controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kubeloop.controllers.runtime.writes.status_patch import versioned_merge_patch
from kubeloop.kube.client.api_client import Client, PatchType
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.api_types import JSONValue, Object
from kubeloop.kube.objects.resources import Resource
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

T = TypeVar("T", bound=Object)


async def write_status(
    client: Client, resource: Resource[T], obj: T, changes: Callable[[T], JSONValue], reconcile: Reconcile
) -> T:
    """Write the status of `obj`, and return the response; if it fails, try once more from a fresh read.

    changes: returns the merge patch of the status for a version of the object. Raises the error of the last try, or of
    the read; that of the first try if the object was deleted and created again.
    """
    name, namespace = obj.metadata.name, obj.metadata.namespace
    based_on = obj
    for is_last_try in (False, True):
        patch = versioned_merge_patch(based_on.metadata.resource_version, status=changes(based_on))
        try:
            with reconcile.action_span("update status"):
                return await client.patch(resource, name, patch, PatchType.MERGE, namespace, subresource="status")
        except (ApiError, ServerUnreachable):
            if is_last_try:
                raise
            based_on = await client.get(resource, name, namespace)
            if based_on.metadata.uid != obj.metadata.uid:
                raise
    raise AssertionError("unreachable")
