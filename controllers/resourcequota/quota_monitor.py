"""Quota monitor: the informers of the kinds that ResourceQuotas count.

Only kinds that a quota counts are watched, and informers of other parts of the process are shared.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kubeloop.controllers.resourcequota.usage_calculation import EVALUATED_RESOURCES
from kubeloop.controllers.runtime.resources.partial_object_metadata import metadata_only
from kubeloop.controllers.runtime.resources.rediscovery import Rediscovery
from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.shared_informer import (
    HandlerRegistration,
    ResourceEventHandler,
    ResourceEventHandlerFuncs,
    SharedInformer,
)
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.discovery import ResourceMap
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.quota_usage import BY_PLURAL, NOT_COUNTED, matching_resources
from kubeloop.kube.objects.resources import CONFIG_MAPS, REPLICATION_CONTROLLERS, RESOURCE_QUOTAS, SECRETS, Resource

log = logging.getLogger(__name__)

_REQUIRED_VERBS = frozenset({"create", "delete", "list", "watch"})
_KINDS_WITHOUT_DISCOVERY: dict[str, Resource[Any]] = {
    **{kind: resource for kind, resource in EVALUATED_RESOURCES.items() if not resource.group},
    **{resource.plural: resource for resource in (CONFIG_MAPS, REPLICATION_CONTROLLERS, RESOURCE_QUOTAS, SECRETS)},
}
_CRDS: Resource[Any] = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False, dict
)


def kinds_for_quota_names(names: Iterable[str]) -> set[str]:
    """Return the kinds that count for any of these quota names (keys of spec.hard), as group resources."""
    quota_names = list(names)
    kinds = {kind for kind in (*EVALUATED_RESOURCES, *BY_PLURAL) if matching_resources(kind, quota_names)}
    kinds |= {name.removeprefix("count/") for name in quota_names if name.startswith("count/")}
    return kinds - NOT_COUNTED


class QuotaMonitor:
    """Informers of the kinds that quotas count.

    event_handler: returns the event handler of a kind. on_kind_served: called with a kind that the server has begun to
    serve. Kinds with quota names of their own need no discovery. Others are discovered when a quota first counts one,
    then every 30 seconds, and when a CustomResourceDefinition changes.
    """

    def __init__(
        self,
        client: ApiClient,
        informers: InformerFactory,
        *,
        event_handler: Callable[[str], ResourceEventHandler[Any]],
        on_kind_served: Callable[[str], None],
    ) -> None:
        self._client = client
        self._informers = informers
        self._event_handler = event_handler
        self._on_kind_served = on_kind_served
        self._registrations: dict[str, HandlerRegistration[Any]] = {}
        self._names: Counter[str] = Counter()  # quota name -> number of quotas that limit it
        self._served: dict[str, Resource[Any]] | None = None  # by group resource; None before the first discovery
        self._discovery_lock = asyncio.Lock()
        self._crd_registration: HandlerRegistration[Any] | None = None
        self._rediscovery = Rediscovery()

    async def run(self) -> None:
        """Repeat discovery while a quota counts a kind that needs it, until cancelled."""
        try:
            while True:
                await self._wait_for_discovery()
                await self._discover()
                for kind in self._counted_kinds():
                    if kind not in self._registrations and self._resource(kind) is not None:
                        self._on_kind_served(kind)
                self._stop_unused_monitors()
        finally:
            self._names.clear()
            self._stop_unused_monitors()

    async def _wait_for_discovery(self) -> None:
        while True:
            await self._rediscovery.wait(periodic=self._needs_discovery())
            if self._needs_discovery():
                return

    def add_names(self, names: Iterable[str]) -> None:
        """Add the names that a new or changed quota limits."""
        self._names.update(list(names))  # a list, since Counter.update adds up the values of a mapping

    def remove_names(self, names: Iterable[str]) -> None:
        """Remove the names that a deleted or changed quota limited; kinds that no quota counts are not watched."""
        self._names.subtract(list(names))
        self._names = +self._names
        self._stop_unused_monitors()

    async def informer(self, kind: str) -> SharedInformer[Any] | None:
        """Return the informer of a kind, which may not be synced yet.

        Returns None if the server is not known to serve the kind, or no quota counts it any more. Raises ApiError,
        ServerUnreachable, msgspec.DecodeError if discovery was needed and failed.
        """
        if kind not in _KINDS_WITHOUT_DISCOVERY and kind not in self._registrations:
            async with self._discovery_lock:
                if self._served is None:
                    self._served = await self._discover_resources()
                    self._rediscovery.request()  # run() repeats discovery from now on
        registration = self._registrations.get(kind)
        if registration is None:
            resource = self._resource(kind)
            if resource is None or kind not in self._counted_kinds():
                return None
            informers = self._informers
            informer = (
                informers.informer(EVALUATED_RESOURCES[kind])
                if kind in EVALUATED_RESOURCES
                else self._metadata_informer(resource)
            )
            registration = self._registrations[kind] = informer.add_handler(self._event_handler(kind))
        return registration.informer

    def _on_crd_added(self, obj: Any, initial: bool) -> None:
        del obj
        if not initial:
            self._rediscovery.request()

    def _on_crd_changed(self, *_: Any) -> None:
        self._rediscovery.request()

    def _counted_kinds(self) -> set[str]:
        return kinds_for_quota_names(self._names)

    def _needs_discovery(self) -> bool:
        return any(kind not in _KINDS_WITHOUT_DISCOVERY for kind in self._counted_kinds())

    def _stop_unused_monitors(self) -> None:
        counted_kinds = self._counted_kinds()
        for kind in [kind for kind in self._registrations if kind not in counted_kinds or self._resource(kind) is None]:
            self._informers.release(self._registrations.pop(kind))
        if not any(kind not in _KINDS_WITHOUT_DISCOVERY for kind in counted_kinds):
            self._served = None
            if self._crd_registration is not None:
                self._informers.release(self._crd_registration)
                self._crd_registration = None

    def _resource(self, kind: str) -> Resource[Any] | None:
        return _KINDS_WITHOUT_DISCOVERY.get(kind) or (self._served or {}).get(kind)

    async def _discover(self) -> None:
        try:
            self._served = await self._discover_resources()
        except (ApiError, ServerUnreachable, msgspec.DecodeError) as error:
            log.warning("discovery failed: %s", error)

    async def _discover_resources(self) -> dict[str, Resource[Any]]:
        served = await ResourceMap.discover(self._client)
        if self._crd_registration is None and served.find(_CRDS.api_version, _CRDS.kind) is not None:
            self._crd_registration = self._metadata_informer(_CRDS).add_handler(
                ResourceEventHandlerFuncs(
                    on_add=self._on_crd_added, on_update=self._on_crd_changed, on_delete=self._on_crd_changed
                )
            )
        resources: dict[str, Resource[Any]] = {}
        for resource in served.resources:  # the server lists the preferred version of a group first
            if resource.namespaced and served.verbs(resource) >= _REQUIRED_VERBS:
                resources.setdefault(resource.group_resource, resource)
        return resources

    def _metadata_informer(self, resource: Resource[Any]) -> SharedInformer[Any]:
        return self._informers.acquire_informer(metadata_only(resource))
