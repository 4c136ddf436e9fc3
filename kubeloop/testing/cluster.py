"""A whole cluster inside a test: API server, nodes, controllers and scheduler on the test's own event loop, no sockets.

With the loop of `kubeloop.testing.virtual_time` it runs in virtual time, and the same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from kubeloop.control_plane import ControlPlane, Settings
from kubeloop.devcluster.disruption import DisruptionBudgets
from kubeloop.devcluster.faults import Faults
from kubeloop.devcluster.node_objects import NodeSettings
from kubeloop.devcluster.nodes import SimulatedNodes
from kubeloop.devcluster.server import ApiServer
from kubeloop.devcluster.volumes import SimulatedVolumes
from kubeloop.kube.client import Client
from kubeloop.kube.clock import Clock, SystemClock
from kubeloop.kube.objects import Deployment, Node, Pod
from kubeloop.kube.resources import DEPLOYMENTS, NODES, PODS
from kubeloop.manifests import Manifest, apply, read_manifests
from kubeloop.progress import deployment_progress, unfinished_reasons
from kubeloop.progress import measure as measure_progress
from kubeloop.testing.memory_transport import MemoryTransport


class Cluster:
    """What a test does with its cluster. `client` speaks to the API server, `api` is that server."""

    def __init__(self, api: ApiServer, client: Client, plane: ControlPlane) -> None:
        self.api = api
        self.client = client
        self.plane = plane

    async def apply(self, *manifests: str | Path | Mapping[str, Any]) -> list[str]:
        """Apply files, folders or objects; returns what kubectl would print, a line per object.

        Raises UserError for what cannot be read or is refused.
        """
        lines = []
        for manifest in manifests:
            if isinstance(manifest, Mapping):
                objects = [Manifest("an object of the test", dict(manifest))]
            else:
                objects = read_manifests([Path(manifest)])
            lines += [f"{title} {outcome}" for title, outcome in await apply(self.client, objects)]
        return lines

    async def complete(self, name: str, namespace: str = "default", *, timeout_seconds: float = 30.0) -> Deployment:
        """Wait until a Deployment is complete by the rules of `kubectl rollout status`.

        Raises TimeoutError, which says what is missing.
        """

        def is_complete() -> bool:
            found = self.deployment(name, namespace)
            return found is not None and deployment_progress(found).complete

        try:
            await self.until(is_complete, timeout_seconds=timeout_seconds)
        except TimeoutError:
            pods = self.pods(namespace)
            found = self.deployment(name, namespace)
            progress = measure_progress([found] if found else [], [], pods)
            why = "; ".join(unfinished_reasons(progress, pods)) or "there is no such Deployment"
            raise TimeoutError(f"{namespace}/{name} not complete after {timeout_seconds:g} s: {why}") from None
        complete = self.deployment(name, namespace)
        assert complete is not None
        return complete

    async def until(self, condition: Callable[[], bool], *, timeout_seconds: float = 30.0) -> None:
        """Wait until `condition` holds; it is asked again after each turn of the cluster. Raises TimeoutError."""
        async with asyncio.timeout(timeout_seconds):
            while not condition():
                await asyncio.sleep(_LOOK_SECONDS)

    def deployment(self, name: str, namespace: str = "default") -> Deployment | None:
        """As the controllers' caches have it."""
        return self.plane.informers.informer(DEPLOYMENTS).store.get(f"{namespace}/{name}")

    def pods(self, namespace: str = "default") -> list[Pod]:
        """As the controllers' caches have them."""
        return self.plane.informers.informer(PODS).store.by_index("namespace", namespace)

    def nodes(self) -> list[Node]:
        return self.plane.informers.informer(NODES).store.list()

    async def trace(self, pod: Pod) -> dict[str, Any] | None:
        """The pod's trace, as `kubeloop trace --json` prints it; None if there is none."""
        await self.plane.tracing.flush()
        return self.plane.tracing.memory.of_pod(pod.metadata.namespace, pod.metadata.name)


_LOOK_SECONDS = 0.01


@contextlib.asynccontextmanager
async def cluster(
    *,
    nodes: int | NodeSettings = 3,
    settings: Settings | None = None,
    seed: int = 0,
    clock: Clock | None = None,
    faults: Faults | None = None,
) -> AsyncIterator[Cluster]:
    """A cluster with all controllers for the length of the context; gives it once its caches are filled.

    nodes: how many, or their settings. faults: what the API server does wrong now and then. Whatever crashes inside
    raises out of the context, in an ExceptionGroup.
    """
    clock = clock or SystemClock()
    rng = random.Random(seed)
    api = ApiServer(clock=clock, rng=random.Random(rng.getrandbits(64)), token=None, faults=faults)
    node_settings = nodes if isinstance(nodes, NodeSettings) else NodeSettings(count=nodes)
    kubelets = SimulatedNodes(api.store, node_settings, clock=clock, rng=random.Random(rng.getrandbits(64)))
    kubelets.register()
    volumes = SimulatedVolumes(api.store, clock=clock, rng=random.Random(rng.getrandbits(64)))
    budgets = DisruptionBudgets(api.store, clock=clock, rng=random.Random(rng.getrandbits(64)))
    if node_settings.count:
        volumes.register()
    client = Client(MemoryTransport(api.handle), clock=clock, rng=rng)
    plane = ControlPlane(
        client, settings or Settings(namespace_grace_seconds=0.0), clock=clock, rng=rng, registry=CollectorRegistry()
    )
    plane.informers.informer(DEPLOYMENTS)
    async with asyncio.TaskGroup() as serving:
        servers = [serving.create_task(api.run(), name="api-server"), serving.create_task(kubelets.run(), name="nodes")]
        if node_settings.count:
            servers.append(serving.create_task(volumes.run(), name="volumes"))
            servers.append(serving.create_task(budgets.run(), name="disruption-budgets"))
        try:
            async with asyncio.TaskGroup() as acting:
                running = acting.create_task(plane.run(), name="control-plane")
                await plane.synced.wait()
                yield Cluster(api, client, plane)
                running.cancel()
        finally:
            for server in servers:
                server.cancel()
