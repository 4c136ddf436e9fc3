"""Clients and informers of other clusters than that of the process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.shared_informer import SharedInformer
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.transport import Transport
from kubeloop.kube.clock import Clock

Connect = Callable[[str | None, str | None], Awaitable[Transport]]
"""Returns a connection to the cluster of a kubeconfig file and context. Raises UserError."""


async def connect_by_context(kubeconfig: str | None, context: str | None) -> Transport:
    """Connect to the cluster of a context; kubeconfig None: $KUBECONFIG, or ~/.kube/config. Raises UserError."""
    from kubeloop.kube.auth.credentials import connect

    return await connect(kubeconfig, context)


def connect_to(clusters: Mapping[str, Transport], others: Connect = connect_by_context) -> Connect:
    """Return a function that returns these connections by their names; `others` connects to all other clusters."""

    async def connect(kubeconfig: str | None, context: str | None) -> Transport:
        if kubeconfig is None and context is not None and context in clusters:
            return clusters[context]
        return await others(kubeconfig, context)

    return connect


class OtherClusters:
    """Informers of other clusters, by kubeconfig and context, shared by the controllers of a process."""

    def __init__(self, clock: Clock, rng: random.Random, connect: Connect = connect_by_context) -> None:
        self._clock = clock
        self._rng = rng
        self._connect = connect
        self._connecting = asyncio.Lock()
        self._factories: dict[tuple[str | None, str | None], InformerFactory] = {}
        self._tasks: asyncio.TaskGroup | None = None  # not None during run()

    async def informers(self, context: str | None, kubeconfig: str | None = None) -> InformerFactory:
        """Return the informers of a cluster, with its client; connects at the first call. Raises UserError."""
        key = kubeconfig, context
        async with self._connecting:
            if key not in self._factories:
                transport = await self._connect(kubeconfig, context)
                client = ApiClient(transport, clock=self._clock, rng=self._rng)
                factory = InformerFactory(client, clock=self._clock, rng=self._rng)
                self._factories[key] = factory
                if self._tasks is not None:
                    self._tasks.create_task(factory.run(), name=f"informers of {context}")
        return self._factories[key]

    @property
    def all_informers(self) -> list[SharedInformer[Any]]:
        """The informers of all clusters that are connected."""
        return [informer for factory in self._factories.values() for informer in factory.informers]

    async def run(self) -> None:
        """Run the informers until cancelled, then close the connections."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for factory in self._factories.values():
                    self._tasks.create_task(factory.run())
                await asyncio.Future()
        finally:
            self._tasks = None
            for factory in self._factories.values():
                await factory.client.close()
