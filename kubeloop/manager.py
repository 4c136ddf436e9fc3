"""Manager: runs controllers inside an asyncio program.

    async with Manager([Sites], election=ElectionSettings("shop", "sites", "replica-1")) as manager:
        await manager.wait()

`kubeloop run --controllers` runs the same controllers as a process. Source: controller-runtime pkg/manager.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

from kubeloop.controllers.api.client import Client
from kubeloop.controllers.api.controller import ControllerFactory
from kubeloop.controllers.runtime.other_clusters import connect_to
from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client import api_client
from kubeloop.kube.client.transport import Transport
from kubeloop.kube.clock import Clock, SystemClock
from kubeloop.process.control_plane.control_plane import (
    ControlPlane,
    Settings,
    import_components,
    settings_within_lease,
)
from kubeloop.process.control_plane.controller_selection import select_controllers
from kubeloop.process.control_plane.leader_election import ElectionSettings, LeaderElection, LeaseLost
from kubeloop.process.endpoint.endpoint_listener import listener_url, open_listener
from kubeloop.process.logs import TraceFilter
from kubeloop.process.metrics.client_metrics import MeasuredTransport
from kubeloop.process.metrics.metrics_registry import MetricsRegistry
from kubeloop.process.metrics.process_metrics import new_registry

__all__ = ["ElectionSettings", "LeaseLost", "Manager", "TraceFilter"]


class Manager:
    """Controllers over one set of informers, for the length of `async with`.

    client: reads and writes objects for the program itself. elected: set while the controllers run. url: of the
    endpoint with /healthz, /readyz and /metrics; "" without one. Leaving the context ends the reconciles in progress,
    releases the lease and sends pending events and traces, for a bounded time.
    """

    client: Client

    def __init__(
        self,
        controllers: str | Iterable[str | ControllerFactory],
        *,
        kubeconfig: str | None = None,
        context: str | None = None,
        transport: Transport | None = None,
        clusters: Mapping[str, Transport] | None = None,
        election: ElectionSettings | None = None,
        endpoint: tuple[str, int] | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """controllers: classes, "module:Class" and names of built-in ones, as for `kubeloop run --controllers`.

        kubeconfig, context: of the API server; by default $KUBECONFIG, ~/.kube/config, or the pod's service account.
        transport: a connection to use instead. clusters: connections to other clusters, by the names in `Watches`; a
        name that is not among them is a context of the kubeconfig. election: the controllers run while this replica is
        the leader; without it always. endpoint: address and port (0 for a free one). clock, rng: those of a test.
        Raises UserError.
        """
        selection = select_controllers(controllers, "controllers")
        self._settings = Settings(controllers=selection.built_in, custom_controllers=selection.custom)
        if election is not None:
            self._settings = settings_within_lease(self._settings, election)
        self._kubeconfig, self._context, self._transport = kubeconfig, context, transport
        self._connect = connect_to(clusters or {}, self._connect_by_context)
        self._election, self._endpoint = election, endpoint
        self._clock, self._rng = clock or SystemClock(), rng or random.Random()
        self._running: contextlib.AbstractAsyncContextManager[None] | None = None
        self._ended = asyncio.Event()
        self.elected = asyncio.Event()
        self.url = ""

    async def __aenter__(self) -> Self:
        """Start the controllers; return when they are created. Raises UserError."""
        self._running = self._run()
        await self._running.__aenter__()
        return self

    async def __aexit__(
        self, type_: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Stop the controllers. Raises LeaseLost if another replica has taken over, ExceptionGroup after a crash."""
        assert self._running is not None
        return await self._running.__aexit__(type_, error, traceback)

    async def wait(self) -> None:
        """Wait until the controllers end, which they do only if the lease is lost or one crashes."""
        await self._ended.wait()

    async def wait_synced(self) -> None:
        """Wait until the caches are filled."""
        await self._plane.synced.wait()

    @contextlib.asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        clock, rng, registry = self._clock, self._rng, new_registry()
        async with contextlib.AsyncExitStack() as stack:
            transport = self._transport or await connect(self._kubeconfig, self._context)
            measured = MeasuredTransport(transport, registry, clock.time_ns)
            client = api_client.ApiClient(measured, clock=clock, rng=rng)
            stack.push_async_callback(client.close)
            self.client = Client(client, field_manager="kubeloop")
            listener = stack.enter_context(open_listener(*self._endpoint)) if self._endpoint is not None else None
            await asyncio.to_thread(import_components, self._settings.controllers)
            self._plane = ControlPlane(
                client, self._settings, clock=clock, rng=rng, registry=registry, connect=self._connect
            )
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._run_plane(client), name="manager")]
                    if listener is not None:
                        self.url = listener_url(listener)
                        tasks.append(group.create_task(self._serve(registry, listener), name="endpoint"))
                    await self._plane.components_created.wait()
                    yield
                    for task in tasks:
                        task.cancel()
            except* LeaseLost as lost:
                raise _first_error(lost) from None

    async def _connect_by_context(self, kubeconfig: str | None, context: str | None) -> Transport:
        return await connect(kubeconfig or self._kubeconfig, context)

    async def _run_plane(self, client: api_client.ApiClient) -> None:
        elect: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]] = _lead_always
        if self._election is not None:
            candidate = LeaderElection(client, self._election, clock=self._clock, rng=self._rng)
            elect = candidate.run_while_leading

        async def run_while_elected(run: Callable[[], Awaitable[None]]) -> None:
            async def lead() -> None:
                self.elected.set()
                try:
                    await run()
                finally:
                    self.elected.clear()

            await elect(lead)

        try:
            await self._plane.run(run_while_elected)
        finally:
            self._ended.set()

    async def _serve(self, registry: MetricsRegistry, listener: socket.socket) -> None:
        await asyncio.to_thread(importlib.import_module, "kubeloop.process.endpoint.process_pages")
        from kubeloop.process.endpoint.process_pages import add_process_pages
        from kubeloop.process.endpoint.server import EndpointServer

        endpoint = EndpointServer(registry, clock=self._clock)
        add_process_pages(endpoint, self._plane)
        async with endpoint.serving_on(listener):
            await asyncio.get_running_loop().create_future()


def _first_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _lead_always(run: Callable[[], Awaitable[None]]) -> None:
    await run()
