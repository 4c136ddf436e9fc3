"""The parts of a whole cluster on one event loop: API server, simulated nodes, controllers and scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from kubeloop.control_plane import ControlPlane
from kubeloop.devcluster.disruption import DisruptionBudgets
from kubeloop.devcluster.nodes import SimulatedNodes
from kubeloop.devcluster.server import ApiServer
from kubeloop.devcluster.volumes import SimulatedVolumes
from kubeloop.endpoint import Endpoint
from kubeloop.kube.authorization import AuthorizedTransport, StaticAuthorization
from kubeloop.kube.client import Client
from kubeloop.kube.clock import Clock
from kubeloop.kube.resources import DEPLOYMENTS
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.testing.options import ClusterOptions


@dataclass(frozen=True, slots=True)
class Assembly:
    """A cluster whose parts run. `client` is the one that the control plane uses."""

    api: ApiServer
    client: Client
    plane: ControlPlane


@contextlib.asynccontextmanager
async def assembled(
    options: ClusterOptions,
    *,
    clock: Clock,
    rng: random.Random,
    token: str | None = None,
    endpoint: Endpoint | None = None,
    registry: CollectorRegistry | None = None,
    user_agent: str = "kubeloop",
) -> AsyncIterator[Assembly]:
    """A cluster for the length of the context; gives it once its caches are filled.

    Whatever crashes inside raises out of the context, in an ExceptionGroup. Raises UserError for options that a part
    refuses, before anything runs. user_agent: of the control plane; faults on purpose spare SPARED_USER_AGENT.
    """
    settings, nodes, faults = options.settings(), options.node_settings(), options.misbehaviour()
    stages = options.played_stages()
    registry = registry or CollectorRegistry()
    api = ApiServer(clock=clock, rng=random.Random(rng.getrandbits(64)), token=token, faults=faults)
    kubelets = SimulatedNodes(api.store, nodes, clock=clock, rng=random.Random(rng.getrandbits(64)), stages=stages)
    kubelets.register()
    volumes = SimulatedVolumes(api.store, clock=clock, rng=random.Random(rng.getrandbits(64)))
    budgets = DisruptionBudgets(api.store, clock=clock, rng=random.Random(rng.getrandbits(64)))
    volumes.register()
    transport = AuthorizedTransport(
        MemoryTransport(api.handle), StaticAuthorization("" if token is None else f"Bearer {token}")
    )
    client = Client(transport, clock=clock, rng=rng, user_agent=user_agent)
    plane = ControlPlane(client, settings, clock=clock, rng=rng, registry=registry, endpoint=endpoint)
    plane.informers.informer(DEPLOYMENTS)
    async with asyncio.TaskGroup() as serving:
        servers = [
            serving.create_task(api.run(), name="api-server"),
            serving.create_task(kubelets.run(), name="nodes"),
            serving.create_task(volumes.run(), name="volumes"),
            serving.create_task(budgets.run(), name="disruption-budgets"),
        ]
        try:
            async with asyncio.TaskGroup() as acting:
                running = acting.create_task(plane.run(), name="control-plane")
                await plane.synced.wait()
                yield Assembly(api, client, plane)
                running.cancel()
        finally:
            for server in servers:
                server.cancel()
