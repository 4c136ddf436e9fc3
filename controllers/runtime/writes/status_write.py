"""Write of a status, with one retry. Source: updateReplicaSetStatus, storeDaemonSetStatus in pkg/controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kubeloop.controllers.runtime.writes.object_patch import patch_status
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.api_types import JSONValue, Object
from kubeloop.kube.objects.resources import Resource
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

T = TypeVar("T", bound=Object)


async def write_status(
    client: ApiClient, resource: Resource[T], obj: T, changes: Callable[[T], JSONValue], reconcile: Reconcile
) -> T:
    """Write the status of `obj`, and return the response; if it fails, try once more from a fresh read.

    changes: returns the merge patch of the status for a version of the object. Raises the error of the last try, or of
    the read; that of the first try if the object was deleted and created again.
    """
    based_on = obj
    for is_last_try in (False, True):
        try:
            with reconcile.action_span("update status"):
                return await patch_status(client, resource, based_on, changes(based_on))
        except (ApiError, ServerUnreachable):
            if is_last_try:
                raise
            based_on = await client.get(resource, obj.metadata.name, obj.metadata.namespace)
            if based_on.metadata.uid != obj.metadata.uid:
                raise
    raise AssertionError("unreachable")
