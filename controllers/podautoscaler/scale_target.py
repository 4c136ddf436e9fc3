"""Scale targets of HorizontalPodAutoscalers: the resource of a reference, and its subresource `scale`."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from kubeloop.controllers.podautoscaler.replica_calculation import MetricError
from kubeloop.controllers.runtime.resources.served_resources import ServedResources
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.errors import ApiError, Conflict, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import CrossVersionObjectReference, JSONValue
from kubeloop.kube.objects.resources import BY_GROUP_KIND, Resource
from kubeloop.kube.validation.field_errors import quoted

_UPDATE_TRIES = 5
_CONFLICT_SECONDS = 0.01


class ScaleError(MetricError):
    """A scale cannot be read or written; the text is Kubernetes'."""


class InvalidReference(ScaleError):
    """spec.scaleTargetRef of the autoscaler is invalid."""


class Scale(NamedTuple):
    """A scale as it was read. selector: that of the pods, as text."""

    resource: Resource[Any]
    spec_replicas: int
    status_replicas: int
    selector: str
    body: JSONValue


class ScaleTargets:
    """Finds, reads and scales the targets of autoscalers, objects of any kind with a subresource `scale`."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._served = ServedResources(client)

    async def resource(self, reference: CrossVersionObjectReference) -> Resource[Any]:
        """Return the resource of a kind, whatever the version of the reference. Raises ScaleError."""
        api_version = reference.api_version
        if api_version.count("/") > 1:
            raise InvalidReference(f"unexpected GroupVersion string: {api_version}")
        group_kind = group, kind = api_version.rpartition("/")[0], reference.kind
        try:
            resource = BY_GROUP_KIND.get(group_kind) or await self._served.find(
                lambda served: next((it for it in served.resources if (it.group, it.kind) == group_kind), None)
            )
        except (ApiError, ServerUnreachable) as error:
            raise ScaleError(str(error)) from error
        if resource is None:
            raise ScaleError(f"no matches for kind {quoted(kind)} in group {quoted(group)}")
        return resource

    async def read(self, resource: Resource[Any], namespace: str, name: str) -> Scale:
        """Read the scale of an object. Raises ScaleError."""
        try:
            body = await self._client.get_raw(resource, name, namespace, subresource="scale")
        except NotFound as error:
            if error.status.details is not None:
                raise ScaleError(str(error)) from error
            raise ScaleError("the server could not find the requested resource") from error  # it cannot be scaled
        except (ApiError, ServerUnreachable) as error:
            raise ScaleError(str(error)) from error
        spec, status = body.get("spec") or {}, body.get("status") or {}
        return Scale(resource, spec.get("replicas", 0), status.get("replicas", 0), status.get("selector", ""), body)

    async def write(self, scale: Scale, replicas: int) -> None:
        """Set the replicas; after a conflict read the scale again and retry. Raises ApiError, ServerUnreachable."""
        metadata = scale.body["metadata"]
        name, namespace, body = metadata["name"], metadata["namespace"], scale.body
        for tries_left in reversed(range(_UPDATE_TRIES)):
            body = {**body, "spec": {**(body.get("spec") or {}), "replicas": replicas}}
            try:
                await self._client.update_raw(scale.resource, name, body, namespace, subresource="scale")
                return
            except Conflict:
                if not tries_left:
                    raise
            await asyncio.sleep(_CONFLICT_SECONDS)
            body = await self._client.get_raw(scale.resource, name, namespace, subresource="scale")
