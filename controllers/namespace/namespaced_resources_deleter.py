"""Deleting everything in a namespace, kind by kind, and telling how far that is.

Pods go first; only when none is left does the rest follow, so that no running pod loses what protects it (network
policies above all). Source: pkg/controller/namespace/deletion/namespaced_resources_deleter.go.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import msgspec

from kubeloop.controllers.namespace.deletion_conditions import DeletionReport
from kubeloop.controllers.runtime.partial_object_metadata import metadata_only
from kubeloop.kube.client.api_client import Client
from kubeloop.kube.client.discovery import ResourceMap
from kubeloop.kube.clock import Clock
from kubeloop.kube.errors import ApiError, MethodNotAllowed, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import PartialObjectMetadata
from kubeloop.kube.objects.resources import PODS, Resource

_FINALIZER_ESTIMATE_SECONDS = 15


class NamespaceContentRemaining(Exception):
    """Some content could not be deleted, or is still there without a reason to wait for."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
        self.errors = errors


class ResourceDeletionResult(msgspec.Struct):
    """What is left of one resource after its deletion. `seconds`: an estimate of when to look again, 0 for none."""

    seconds: int = 0
    count: int = 0
    finalizers: Counter[str] = msgspec.field(default_factory=Counter)
    error: str = ""


class NamespacedResourcesDeleter:
    """Deletes the content of namespaces. What a server serves is asked at every round: kinds come and go."""

    def __init__(self, client: Client, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._served: ResourceMap | None = None

    async def delete_all(self, namespace: str, deleted_at: datetime) -> tuple[DeletionReport, int]:
        """One round. Returns what it found, and the seconds after which to look again; 0: nothing to wait for.

        Errors are in the report; there is no content left if it has none and the seconds are 0.
        """
        report = DeletionReport()
        try:
            self._served = await ResourceMap.discover(self._client)
        except (ApiError, ServerUnreachable, msgspec.DecodeError) as error:
            report.discovery_error = str(error)  # what was served before is deleted all the same
        resources = self._deletable()
        seconds = 0
        pods = [each for each in resources if each.group_resource == PODS.group_resource]
        others = [each for each in resources if each.group_resource != PODS.group_resource]
        for step in (pods, others):
            for resource in step:
                left = await self._delete_resource(resource, namespace, deleted_at)
                if left.error:
                    report.content_errors.append(left.error)
                if left.count:
                    report.remaining[f"{resource.plural}.{resource.group}"] = left.count
                    for finalizer, count in left.finalizers.items():
                        report.finalizers[finalizer] = report.finalizers.get(finalizer, 0) + count
                seconds = max(seconds, left.seconds)
            if step is pods and (report.remaining or report.content_errors):
                break
        return report, seconds

    def _deletable(self) -> list[Resource[PartialObjectMetadata]]:
        """The namespaced resources that can be deleted, each in its preferred version."""
        found: dict[str, Resource[PartialObjectMetadata]] = {}
        for each in self._served.resources if self._served is not None else ():
            if each.namespaced and each.group_resource not in found and "delete" in self._verbs(each):
                found[each.group_resource] = metadata_only(each)
        return list(found.values())

    def _verbs(self, resource: Resource[Any]) -> frozenset[str]:
        return self._served.verbs(resource) if self._served is not None else frozenset()

    async def _delete_resource(
        self, resource: Resource[PartialObjectMetadata], namespace: str, deleted_at: datetime
    ) -> ResourceDeletionResult:
        left = ResourceDeletionResult()
        try:
            left.seconds = await self._graceful_seconds(resource, namespace, deleted_at)
            await self._delete_items(resource, namespace)
            items = await self._list(resource, namespace)
        except (ApiError, ServerUnreachable) as error:
            left.error = str(error)
            return left
        if items is None:
            return left
        left.count = len(items)
        if not items:
            left.seconds = 0
            return left
        for item in items:
            left.finalizers.update(item.metadata.finalizers)
        if not left.seconds:
            if left.finalizers:
                left.seconds = _FINALIZER_ESTIMATE_SECONDS
            else:
                kind = f"{resource.group}/{resource.version}, Resource={resource.plural}"
                left.error = f"unexpected items still remain in namespace: {namespace} for gvr: {kind}"
        return left

    async def _delete_items(self, resource: Resource[PartialObjectMetadata], namespace: str) -> None:
        """All at once if the server can, else one by one. In the background: nothing is to be orphaned here."""
        if "deletecollection" in self._verbs(resource):
            try:
                await self._client.delete_collection(resource, namespace, propagation_policy="Background")
            except (MethodNotAllowed, NotFound):
                pass  # discovery promised too much
            else:
                return
        for item in await self._list(resource, namespace) or ():
            try:
                await self._client.delete(resource, item.metadata.name, namespace, propagation_policy="Background")
            except (MethodNotAllowed, NotFound):
                continue

    async def _list(
        self, resource: Resource[PartialObjectMetadata], namespace: str
    ) -> list[PartialObjectMetadata] | None:
        """The objects' metadata; None if the resource cannot be listed."""
        if "list" not in self._verbs(resource):
            return None
        try:
            return (await self._client.list_all(resource, namespace)).items
        except (MethodNotAllowed, NotFound):
            return None

    async def _graceful_seconds(self, resource: Resource[Any], namespace: str, deleted_at: datetime) -> int:
        """The longest grace period of pods that run here; 0 for other resources, and once that time has passed."""
        if resource.group_resource != PODS.group_resource:
            return 0
        longest = 0
        for pod in (await self._client.list_all(PODS, namespace)).items:
            if pod.status.phase not in ("Succeeded", "Failed"):
                longest = max(longest, pod.spec.termination_grace_period_seconds or 0)
        return 0 if (self._clock.now() - deleted_at).total_seconds() >= longest else longest
