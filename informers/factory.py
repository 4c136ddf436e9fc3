"""One informer per resource and selection for the whole process. May import `kubeloop.kube` alone."""

from __future__ import annotations

import asyncio
import random
from typing import Any, TypeVar, cast

from kubeloop.informers.reflector import EVERYTHING, Selection
from kubeloop.informers.shared_informer import HandlerRegistration, SharedInformer, Transform
from kubeloop.kube.client.api_client import Client
from kubeloop.kube.clock import Clock
from kubeloop.kube.objects.resources import Resource

T = TypeVar("T")

_Key = tuple[str, str, str, type, Selection, Any]


class InformerFactory:
    """Hands out informers and runs them. Asking again with the same arguments gives the same informer.

    Whom informer() gives one may read its store for as long as the process runs. What any_informer() gives is for a
    handler, and for as long as the resource is of interest: release() ends the informers that nobody else has.
    """

    def __init__(self, client: Client, *, clock: Clock, rng: random.Random) -> None:
        self.client = client
        self.clock = clock
        self._rng = rng
        self._informers: dict[_Key, SharedInformer[Any]] = {}
        self._lent: set[SharedInformer[Any]] = set()  # those that release() may end
        self._tasks: asyncio.TaskGroup | None = None  # while run() runs
        self._running: dict[SharedInformer[Any], asyncio.Task[None]] = {}

    def informer(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        transform: Transform[T] | None = None,
    ) -> SharedInformer[T]:
        """The informer of this selection of a resource. If run() is running, a new one starts at once."""
        selection = Selection(namespace, label_selector, field_selector)
        key = (resource.group, resource.version, resource.plural, resource.type, selection, transform)
        informer = self._informers.get(key)
        if informer is None:
            informer = SharedInformer(
                self.client,
                resource,
                rng=random.Random(self._rng.getrandbits(64)),
                selection=selection,
                transform=transform,
            )
            self._informers[key] = informer
            if self._tasks is not None:
                self._start(informer, self._tasks)
        self._lent.discard(informer)
        return cast("SharedInformer[T]", informer)

    def acquire_informer(self, resource: Resource[Any]) -> SharedInformer[Any]:
        """One that holds all objects of a resource, in whatever form: that of somebody else, or a new one."""
        for informer in self._informers.values():
            theirs = informer.resource
            same = (theirs.group, theirs.version, theirs.plural) == (resource.group, resource.version, resource.plural)
            if same and informer.selection == EVERYTHING:
                return informer
        informer = self.informer(resource)
        self._lent.add(informer)
        return informer

    def release(self, registration: HandlerRegistration[Any]) -> None:
        """Remove a handler of any_informer(). If it was the last one, and nobody else has the informer, that ends."""
        registration.remove()
        informer = registration.informer
        if informer.has_handlers or informer not in self._lent:
            return
        self._lent.discard(informer)
        self._informers = {key: each for key, each in self._informers.items() if each is not informer}
        if informer in self._running:
            self._running.pop(informer).cancel()
        informer.mark_stopped()

    @property
    def informers(self) -> list[SharedInformer[Any]]:
        return [*self._informers.values()]

    async def run(self) -> None:
        """Run all informers, and those asked for meanwhile, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                for informer in self._informers.values():
                    self._start(informer, tasks)
                await asyncio.Future()
            finally:
                self._tasks = None
                self._running.clear()

    async def wait_synced(self) -> None:
        """Wait until every informer handed out so far has its first list. Cancellation: safe."""
        for informer in self.informers:
            await informer.wait_synced()

    def _start(self, informer: SharedInformer[Any], tasks: asyncio.TaskGroup) -> None:
        name = f"informer/{informer.resource.group_resource}"
        self._running[informer] = tasks.create_task(informer.run(), name=name)
