"""Deletion of everything in a namespace, kind by kind, with a report of the progress.

Pods are deleted first, and other kinds only when no Pod is left, so that no running Pod loses objects that protect it,
such as network policies. Source: pkg/controller/namespace/deletion/namespaced_resources_deleter.go.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import msgspec

from kubeloop.controllers.namespace.deletion_conditions import DeletionReport
from kubeloop.controllers.runtime.controller import ReconcileError
from kubeloop.controllers.runtime.resources.partial_object_metadata import metadata_only
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.discovery import ResourceMap
from kubeloop.kube.clock import Clock
from kubeloop.kube.errors import ApiError, MethodNotAllowed, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import PartialObjectMetadata
from kubeloop.kube.objects.object_fields import is_finished
from kubeloop.kube.objects.resources import PODS, Resource
from kubeloop.kube.values.times import go_duration_seconds, seconds_between

_FINALIZER_ESTIMATE_SECONDS = 15


class NamespaceContentRemaining(ReconcileError):
    """Some content could not be deleted, or remains although nothing delays its deletion."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
        self.errors = errors


class ResourceDeletionResult(msgspec.Struct):
    """Result of deleting the objects of one resource. seconds: estimated time until they are gone, 0 if unknown."""

    seconds: int = 0
    count: int = 0
    finalizers: Counter[str] = msgspec.field(default_factory=Counter)
    error: str = ""


class NamespacedResourcesDeleter:
    """Deletes the content of namespaces. Discovers the server's resources in every round, since they can change."""

    def __init__(self, client: ApiClient, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._served: ResourceMap | None = None

    async def delete_all(self, namespace: str, deleted_at: datetime) -> tuple[DeletionReport, int]:
        """Run one round. Returns its report, and the seconds until the next round; 0 if there is nothing to wait for.

        Errors are in the report. The namespace is empty if the report has none and the seconds are 0.
        """
        report = DeletionReport()
        try:
            self._served = await ResourceMap.discover(self._client)
        except (ApiError, ServerUnreachable, msgspec.DecodeError) as error:
            report.discovery_error = str(error)  # resources known from an earlier round are deleted all the same
        # rounds of other namespaces replace _served
        resources = {} if self._served is None else _deletable_resources(self._served)
        seconds = 0
        pods = [resource for resource in resources if resource.group_resource == PODS.group_resource]
        others = [resource for resource in resources if resource.group_resource != PODS.group_resource]
        for step in (pods, others):
            for resource in step:
                result = await self._delete_resource(resource, resources[resource], namespace, deleted_at)
                if result.error:
                    report.content_errors.append(result.error)
                if result.count:
                    report.remaining[f"{resource.plural}.{resource.group}"] = result.count
                    for finalizer, count in result.finalizers.items():
                        report.finalizers[finalizer] = report.finalizers.get(finalizer, 0) + count
                seconds = max(seconds, result.seconds)
            if step is pods and (report.remaining or report.content_errors):
                break
        return report, seconds

    async def _delete_resource(
        self,
        resource: Resource[PartialObjectMetadata],
        verbs: frozenset[str],
        namespace: str,
        deleted_at: datetime,
    ) -> ResourceDeletionResult:
        result = ResourceDeletionResult()
        try:
            result.seconds = await self._remaining_grace_seconds(resource, namespace, deleted_at)
            await self._delete_objects(resource, verbs, namespace)
            items = await self._list(resource, verbs, namespace)
        except (ApiError, ServerUnreachable) as error:
            result.error = str(error)
            return result
        if items is None:
            return result
        result.count = len(items)
        if not items:
            result.seconds = 0
            return result
        for item in items:
            result.finalizers.update(item.metadata.finalizers)
        if not result.seconds:
            if result.finalizers:
                result.seconds = _FINALIZER_ESTIMATE_SECONDS
            else:
                kind = f"{resource.group}/{resource.version}, Resource={resource.plural}"
                result.error = f"unexpected items still remain in namespace: {namespace} for gvr: {kind}"
        return result

    async def _delete_objects(
        self, resource: Resource[PartialObjectMetadata], verbs: frozenset[str], namespace: str
    ) -> None:
        """Delete all objects, with one request if supported. Background propagation: dependents are not orphaned."""
        if "deletecollection" in verbs:
            try:
                await self._client.delete_collection(resource, namespace, propagation_policy="Background")
            except (MethodNotAllowed, NotFound):
                pass  # not supported, although discovery lists it
            else:
                return
        for item in await self._list(resource, verbs, namespace) or ():
            try:
                await self._client.delete(resource, item.metadata.name, namespace, propagation_policy="Background")
            except (MethodNotAllowed, NotFound):
                continue

    async def _list(
        self, resource: Resource[PartialObjectMetadata], verbs: frozenset[str], namespace: str
    ) -> list[PartialObjectMetadata] | None:
        """Return the metadata of the objects; None if the resource cannot be listed."""
        if "list" not in verbs:
            return None
        try:
            return (await self._client.list_all(resource, namespace)).items
        except (MethodNotAllowed, NotFound):
            return None

    async def _remaining_grace_seconds(self, resource: Resource[Any], namespace: str, deleted_at: datetime) -> int:
        """Return the longest grace period of running Pods; 0 for other resources, and once that time has passed."""
        if resource.group_resource != PODS.group_resource:
            return 0
        longest = 0
        for pod in (await self._client.list_all(PODS, namespace)).items:
            if not is_finished(pod):
                longest = max(longest, pod.spec.termination_grace_period_seconds or 0)
        return 0 if seconds_between(deleted_at, self._clock.now()) >= go_duration_seconds(longest) else longest


def _deletable_resources(served: ResourceMap) -> dict[Resource[PartialObjectMetadata], frozenset[str]]:
    """Return the namespaced resources that can be deleted, each in its preferred version, with their verbs."""
    deletable: dict[str, tuple[Resource[PartialObjectMetadata], frozenset[str]]] = {}
    for resource in served.resources:
        if resource.namespaced and resource.group_resource not in deletable:
            verbs = served.verbs(resource)
            if "delete" in verbs:
                deletable[resource.group_resource] = metadata_only(resource), verbs
    return dict(deletable.values())
