"""A whole cluster on the test's own event loop, without sockets and processes.

On the loop of `kubeloop.testing.virtual_time` it runs in virtual time, and the same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Unpack

import msgspec

from kubeloop.controllers.runtime.other_clusters import Connect, connect_by_context, connect_to
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.server.faults import SPARED_USER_AGENT
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.transport import Transport
from kubeloop.kube.clock import Clock, SystemClock
from kubeloop.kube.objects.api_types import Deployment, Node, Pod
from kubeloop.kube.objects.resources import DEPLOYMENTS, NODES, PODS
from kubeloop.kube.user_error import UserError
from kubeloop.process.control_plane.control_plane import ControlPlane
from kubeloop.process.control_plane.controller_selection import select_controllers
from kubeloop.process.endpoint.explain_pages import EXPLAIN_PATH
from kubeloop.testing.assembly import run_api_server, run_control_plane
from kubeloop.testing.cluster_options import Options, cluster_options
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.testing.operations import Operations

_POLL_SECONDS = 0.01


class MemoryCluster(Operations):
    """A cluster in the test's process: the operations of any cluster, and access to its parts.

    api: the API server with its store. plane: controllers, scheduler, informers and traces. client: a client of the API
    server, exempt from injected faults.
    """

    def __init__(self, api: ApiServer, plane: ControlPlane, client: ApiClient) -> None:
        super().__init__(client, self._get_page, "default")
        self.api = api
        self.plane = plane

    async def until(self, condition: Callable[[], bool], *, timeout: float = 30.0) -> None:
        """Wait until `condition` holds; it is evaluated every 10 ms. Raises TimeoutError."""
        async with asyncio.timeout(timeout):
            while not condition():
                await asyncio.sleep(_POLL_SECONDS)

    def seen_deployment(self, name: str, namespace: str = "default") -> Deployment | None:
        """Return the Deployment in the controllers' caches."""
        return self.plane.informers.informer(DEPLOYMENTS).store.get(f"{namespace}/{name}")

    def seen_pods(self, namespace: str = "default") -> list[Pod]:
        """Return the pods in the controllers' caches."""
        return self.plane.informers.informer(PODS).store.by_index("namespace", namespace)

    def seen_nodes(self) -> list[Node]:
        """Return the nodes in the controllers' caches."""
        return self.plane.informers.informer(NODES).store.list()

    async def _get_page(self, path: str, query: Mapping[str, str]) -> Any:
        """Return what the endpoint of a cluster in a separate process would return."""
        if path == EXPLAIN_PATH:
            from kubeloop.scheduler.explain.pending_pod import explain

            key = f"{query['namespace']}/{query['pod']}"
            scheduler = self.plane.scheduler
            if scheduler is None or scheduler.listers.pods.get(key) is None:
                raise LookupError(f"there is no scheduler, or no pod {key}")
            return explain(scheduler, key).to_json()
        await self.plane.tracing.flush()
        memory = self.plane.tracing.recent
        named = "pod" in query
        document = (
            memory.find_pod_trace(query["namespace"], query["pod"]) if named else memory.slowest(query["namespace"])
        )
        if document is None:
            raise LookupError(f"no trace of a pod {query['namespace']}/{query.get('pod', '...')}")
        return document


def connect_in_memory(clusters: Mapping[str, Transport]) -> Connect:
    """Return a function that connects a test's controllers to these clusters, by name, or to that of a kubeconfig file.

    It does not read the user's kubeconfig: another name raises UserError.
    """

    async def reject(kubeconfig: str | None, context: str | None) -> Transport:
        if kubeconfig is not None:
            return await connect_by_context(kubeconfig, context)
        raise UserError(f"the test has no cluster {context!r}", hint="add it to the argument `clusters` of the test")

    return connect_to(clusters, reject)


@contextlib.asynccontextmanager
async def memory_cluster(
    *, clock: Clock | None = None, clusters: Mapping[str, MemoryCluster] | None = None, **requested: Unpack[Options]
) -> AsyncIterator[MemoryCluster]:
    """Run a cluster with all controllers for the length of the context; yield it when its caches are filled.

    With `controllers=["*", Sites]`, the class of an author's controller runs as well. clock: wall time of its objects.
    clusters: other clusters that its controllers watch and write to, by the names in `Watches`. The other keywords are
    those of `Options`; the default seed is 0. A crash inside raises out of the context, in an ExceptionGroup. Raises
    UserError for invalid options.
    """
    clock = clock or SystemClock()
    selection = select_controllers(requested.pop("controllers", "*"), "controllers")
    options = cluster_options(requested)
    rng = random.Random(options.seed or 0)
    settings = msgspec.structs.replace(
        options.settings(), controllers=selection.built_in, custom_controllers=selection.custom
    )
    connect = connect_in_memory({name: MemoryTransport(other.api.handle) for name, other in (clusters or {}).items()})
    async with (
        run_api_server(options, clock=clock, rng=rng) as api,
        run_control_plane(api, settings, clock=clock, rng=rng, connect=connect) as plane,
    ):
        transport = MemoryTransport(api.handle)
        client = ApiClient(transport, clock=clock, rng=random.Random(rng.getrandbits(64)), user_agent=SPARED_USER_AGENT)
        yield MemoryCluster(api, plane, client)
