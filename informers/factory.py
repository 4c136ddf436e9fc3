"""Factory that shares one informer per resource."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, Unpack, cast

from kubeloop.informers.shared_informer import HandlerRegistration, SharedInformer
from kubeloop.kube.client.api_client import ApiClient, Selectors
from kubeloop.kube.clock import Clock
from kubeloop.kube.objects.resources import Resource

T = TypeVar("T")

_Key = tuple[str, str, str, type, str, str, str]


class InformerFactory:
    """Creates informers, shares them and runs them. The same resource, object type and selection return the same one.

    An informer returned by informer() runs, and its store can be read, as long as the process runs. An informer
    returned by acquire_informer() is for event handlers only and may end: release() ends it with its last handler,
    unless informer() has returned it too.
    """

    def __init__(self, client: ApiClient, *, clock: Clock, rng: random.Random) -> None:
        self.client = client
        self.clock = clock
        self._rng = rng
        self._informers: dict[_Key, SharedInformer[Any]] = {}
        self._unawaited: set[SharedInformer[Any]] = set()
        self._releasable: set[SharedInformer[Any]] = set()  # those that release() may end
        self._tasks: asyncio.TaskGroup | None = None  # not None during run()
        self._informer_tasks: dict[SharedInformer[Any], asyncio.Task[None]] = {}

    def informer(
        self, resource: Resource[T], namespace: str = "", *, awaited: bool = True, **selectors: Unpack[Selectors]
    ) -> SharedInformer[T]:
        """Return the informer of the objects of a resource, by default all. A new one starts at once if run() is in
        progress.

        awaited: False to leave it out of wait_synced(): the resource may not be served yet.
        """
        selection = namespace, selectors.get("label_selector", ""), selectors.get("field_selector", "")
        key = (resource.group, resource.version, resource.plural, resource.type, *selection)
        informer = self._informers.get(key)
        if informer is None:
            rng = random.Random(self._rng.getrandbits(64))
            informer = SharedInformer(self.client, resource, rng=rng, namespace=namespace, selectors=selectors)
            self._informers[key] = informer
            self._unawaited.add(informer)
            if self._tasks is not None:
                self._start(informer, self._tasks)
        self._releasable.discard(informer)
        if awaited:
            self._unawaited.discard(informer)
        return cast("SharedInformer[T]", informer)

    def acquire_informer(self, resource: Resource[Any]) -> SharedInformer[Any]:
        """Return an informer of all objects of a resource, of any object type: an existing one, or a new one."""
        for key, informer in self._informers.items():
            if key[:3] == (resource.group, resource.version, resource.plural) and not any(key[4:]):
                return informer
        informer = self.informer(resource)
        self._releasable.add(informer)
        return informer

    def release(self, registration: HandlerRegistration[Any]) -> None:
        """Remove a handler of an acquired informer, and end the informer if that was its last use."""
        registration.remove()
        informer = registration.informer
        if informer.has_handlers or informer not in self._releasable:
            return
        self._releasable.discard(informer)
        self._informers = {key: other for key, other in self._informers.items() if other is not informer}
        if informer in self._informer_tasks:
            self._informer_tasks.pop(informer).cancel()
        informer.mark_stopped()

    async def wait_for_object(
        self, resources: Iterable[Resource[Any]], is_counted: Callable[[Any], bool] | None = None
    ) -> None:
        """Wait until any of these resources has an object, or one for which `is_counted` returns True.

        The informers are acquired, so that other users of the same resources share them. Cancellation: safe.
        """
        exists = asyncio.Event()

        def notice(obj: Any) -> None:
            if is_counted is None or is_counted(obj):
                exists.set()

        registrations = [self.acquire_informer(resource).on_latest(notice) for resource in resources]
        try:
            await exists.wait()
        finally:
            for registration in registrations:
                self.release(registration)

    @property
    def informers(self) -> list[SharedInformer[Any]]:
        return [*self._informers.values()]

    async def run(self) -> None:
        """Run all informers, and those created in the meantime, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                for informer in self._informers.values():
                    self._start(informer, tasks)
                await asyncio.Future()
            finally:
                self._tasks = None
                self._informer_tasks.clear()

    async def wait_synced(self) -> None:
        """Wait until every awaited informer created so far has its first list. Cancellation: safe."""
        for informer in [informer for informer in self.informers if informer not in self._unawaited]:
            await informer.wait_synced()

    def _start(self, informer: SharedInformer[Any], tasks: asyncio.TaskGroup) -> None:
        name = f"informer/{informer.resource.group_resource}"
        self._informer_tasks[informer] = tasks.create_task(informer.run(), name=name)
