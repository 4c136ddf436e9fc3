"""Which kinds the quotas of a cluster count, and the informers that show their objects.

Only what some quota names is watched. Kinds that other parts of the process watch already are not watched twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from kubeloop.controllers.resourcequota.usage_calculation import EVALUATED_RESOURCES
from kubeloop.controllers.runtime.partial_object_metadata import metadata_only
from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.shared_informer import (
    HandlerRegistration,
    ResourceEventHandler,
    ResourceEventHandlerFuncs,
    SharedInformer,
)
from kubeloop.kube.client.api_client import Client
from kubeloop.kube.client.discovery import ResourceMap
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.quota_usage import BY_PLURAL, NOT_COUNTED, concerned
from kubeloop.kube.objects.resources import CONFIG_MAPS, REPLICATION_CONTROLLERS, RESOURCE_QUOTAS, SECRETS, Resource

log = logging.getLogger(__name__)

_VERBS = frozenset({"create", "delete", "list", "watch"})
_WELL_KNOWN: dict[str, Resource[Any]] = {
    **EVALUATED_RESOURCES,
    **{each.plural: each for each in (CONFIG_MAPS, REPLICATION_CONTROLLERS, RESOURCE_QUOTAS, SECRETS)},
}
_DEFINITIONS: Resource[Any] = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False, dict
)
_DEFINITION_SECONDS = 0.5  # from a definition's change until its kind is served, or no more


def kinds_for_quota_names(names: Iterable[str]) -> set[str]:
    """The kinds that count for any of these names of quotas, by group resource."""
    listed = list(names)
    kinds = {kind for kind in (*EVALUATED_RESOURCES, *BY_PLURAL) if concerned(kind, listed)}
    kinds |= {name.removeprefix("count/") for name in listed if name.startswith("count/")}
    return kinds - NOT_COUNTED


class QuotaMonitor:
    """The informers of the kinds that quotas count.

    events: what to tell of a kind's objects. appeared: called with a kind that the server has begun to serve.
    Kinds beyond the well-known ones are found by discovery: when a quota names one, every `refresh_seconds` while one
    does, and when a CustomResourceDefinition changes.
    """

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        *,
        events: Callable[[str], ResourceEventHandler[Any]],
        appeared: Callable[[str], None],
        refresh_seconds: float,
    ) -> None:
        self._client = client
        self._informers = informers
        self._events = events
        self._appeared = appeared
        self._refresh_seconds = refresh_seconds
        self._watched: dict[str, HandlerRegistration[Any]] = {}
        self._names: Counter[str] = Counter()  # in how many quotas each stands
        self._served: dict[str, Resource[Any]] | None = None  # by group resource; None: not asked yet
        self._asking = asyncio.Lock()
        self._definitions: HandlerRegistration[Any] | None = None
        self._look_again = asyncio.Event()

    async def run(self) -> None:
        """Look for new kinds while a quota waits for one, until cancelled."""
        try:
            while True:
                await self._wait_for_reason()
                await self._discover()
                for kind in self._wanted():
                    if kind not in self._watched and self._resource(kind) is not None:
                        self._appeared(kind)
                self._drop_unwanted()
        finally:
            self._names.clear()
            self._drop_unwanted()

    async def _wait_for_reason(self) -> None:
        while True:
            seconds = self._refresh_seconds if self._needs_discovery() else None
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._look_again.wait()
                    await asyncio.sleep(_DEFINITION_SECONDS)
            self._look_again.clear()
            if self._needs_discovery():
                return

    def named(self, names: Iterable[str]) -> None:
        """A quota has come that limits these."""
        self._names.update(list(names))  # not what a mapping holds

    def forget(self, names: Iterable[str]) -> None:
        """A quota that limited these is gone, or limits others now. What no quota counts is watched no more."""
        self._names.subtract(list(names))
        self._names = +self._names
        self._drop_unwanted()

    async def informer(self, kind: str) -> SharedInformer[Any] | None:
        """The informer of a kind, perhaps not filled yet; None if the server does not serve it, as far as is known,
        or no quota counts it any more.

        Raises ApiError, ServerUnreachable, msgspec.DecodeError if it had to be asked and does not answer well.
        """
        if kind not in _WELL_KNOWN and kind not in self._watched:
            async with self._asking:
                if self._served is None:
                    self._served = await self._ask()
                    self._look_again.set()  # run() has to know that time matters from now on
        watched = self._watched.get(kind)
        if watched is None:
            resource = self._resource(kind)
            if resource is None or kind not in self._wanted():
                return None
            informers = self._informers
            informer = informers.informer(resource) if kind in EVALUATED_RESOURCES else self._metadata_of(resource)
            watched = self._watched[kind] = informer.add_handler(self._events(kind))
        return watched.informer

    def _definition_added(self, obj: Any, initial: bool) -> None:
        del obj
        if not initial:
            self._look_again.set()

    def _changed(self, *_: Any) -> None:
        self._look_again.set()

    def _wanted(self) -> set[str]:
        return kinds_for_quota_names(self._names)

    def _needs_discovery(self) -> bool:
        return any(kind not in _WELL_KNOWN for kind in self._wanted())

    def _drop_unwanted(self) -> None:
        wanted = self._wanted()
        for kind in [kind for kind in self._watched if kind not in wanted or self._resource(kind) is None]:
            self._informers.release(self._watched.pop(kind))
        if not any(kind not in _WELL_KNOWN for kind in wanted):
            self._served = None
            if self._definitions is not None:
                self._informers.release(self._definitions)
                self._definitions = None

    def _resource(self, kind: str) -> Resource[Any] | None:
        return _WELL_KNOWN.get(kind) or (self._served or {}).get(kind)

    async def _discover(self) -> None:
        try:
            self._served = await self._ask()
        except (ApiError, ServerUnreachable, msgspec.DecodeError) as error:
            log.warning("discovery failed: %s", error)

    async def _ask(self) -> dict[str, Resource[Any]]:
        served = await ResourceMap.discover(self._client)
        if self._definitions is None and served.find(_DEFINITIONS.api_version, _DEFINITIONS.kind) is not None:
            self._definitions = self._metadata_of(_DEFINITIONS).add_handler(
                ResourceEventHandlerFuncs(
                    on_add=self._definition_added, on_update=self._changed, on_delete=self._changed
                )
            )
        found: dict[str, Resource[Any]] = {}
        for each in served.resources:  # the server names the preferred version of a group first
            if each.namespaced and served.verbs(each) >= _VERBS:
                found.setdefault(each.group_resource, each)
        return found

    def _metadata_of(self, resource: Resource[Any]) -> SharedInformer[Any]:
        return self._informers.acquire_informer(metadata_only(resource))
