"""One informer per resource and selection for the whole process. May import `kubeloop.kube` alone."""

from __future__ import annotations

import asyncio
import random
from typing import Any, TypeVar, cast

from kubeloop.informers.reflector import Selection
from kubeloop.informers.shared_informer import SharedInformer, Transform
from kubeloop.kube.client import Client
from kubeloop.kube.clock import Clock
from kubeloop.kube.resources import Resource

T = TypeVar("T")

_Key = tuple[str, str, str, type, Selection, Any]


class InformerFactory:
    """Hands out informers and runs them. Asking again with the same arguments gives the same informer."""

    def __init__(self, client: Client, *, clock: Clock, rng: random.Random) -> None:
        self.client = client
        self.clock = clock
        self._rng = rng
        self._informers: dict[_Key, SharedInformer[Any]] = {}
        self._tasks: asyncio.TaskGroup | None = None  # while run() runs

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
        return cast("SharedInformer[T]", informer)

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

    async def wait_synced(self) -> None:
        """Wait until every informer handed out so far has its first list. Cancellation: safe."""
        for informer in self.informers:
            await informer.wait_synced()

    @staticmethod
    def _start(informer: SharedInformer[Any], tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(informer.run(), name=f"informer/{informer.resource.group_resource}")
