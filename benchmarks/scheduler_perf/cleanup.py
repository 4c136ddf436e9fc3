"""Cleanup of the objects that a workload created on an existing API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from typing import Any

from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.errors import ApiError, NotFound
from kubeloop.kube.objects.resources import (
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SERVICES,
    Resource,
)

_WORKERS = 32


class Created:
    """Cluster-scoped objects that a workload created, by resource."""

    def __init__(self) -> None:
        self._names: dict[Resource[Any], set[str]] = defaultdict(set)

    def add(self, resource: Resource[Any], name: str) -> None:
        self._names[resource].add(name)

    async def remove(self, client: ApiClient) -> None:
        """Delete all objects: first namespaces with their content. Pods get no grace period."""
        for namespace in self._names.pop(NAMESPACES, set()):
            await _empty(client, namespace)
            with contextlib.suppress(NotFound):
                await client.delete(NAMESPACES, namespace)
            await _finalize(client, namespace)
        for resource, names in self._names.items():
            remaining = iter(names)

            async def work(resource: Resource[Any] = resource, remaining: Any = remaining) -> None:
                for name in remaining:
                    with contextlib.suppress(NotFound):
                        await client.delete(resource, name)
                        if resource is PERSISTENT_VOLUMES:
                            await _release(client, resource, name)

            async with asyncio.TaskGroup() as group:
                for _ in range(_WORKERS):
                    group.create_task(work())
        self._names.clear()


async def _empty(client: ApiClient, namespace: str) -> None:
    """Delete the content of a namespace. Services individually: not every server supports deletecollection of them."""
    for service in (await client.list_all(SERVICES, namespace)).items:
        with contextlib.suppress(NotFound):
            await client.delete(SERVICES, service.metadata.name, namespace)
    await client.delete_collection(PODS, namespace, grace_period_seconds=0)
    await client.delete_collection(PERSISTENT_VOLUME_CLAIMS, namespace)
    for pod in (await client.list_all(PODS, namespace)).items:
        await _release(client, PODS, pod.metadata.name, namespace)
    for claim in (await client.list_all(PERSISTENT_VOLUME_CLAIMS, namespace)).items:
        await _release(client, PERSISTENT_VOLUME_CLAIMS, claim.metadata.name, namespace)


async def _release(client: ApiClient, resource: Resource[Any], name: str, namespace: str = "") -> None:
    """Remove the finalizers: of the workload, or of a controller that may not run."""
    with contextlib.suppress(NotFound):
        await client.patch(resource, name, {"metadata": {"finalizers": None}}, PatchType.MERGE, namespace)


async def _finalize(client: ApiClient, namespace: str) -> None:
    """Finalize an empty namespace. Without a namespace controller it would stay "Terminating"; with one, it may already
    be deleted."""
    with contextlib.suppress(ApiError):
        raw = await client.get_raw(NAMESPACES, namespace)
        raw["spec"]["finalizers"] = []
        await client.update_raw(NAMESPACES, namespace, raw, subresource="finalize")
