"""The API server behind the executable `kube-apiserver`, and the controllers of a whole cluster."""

from __future__ import annotations

import asyncio
import random
import secrets
from contextlib import closing
from dataclasses import replace

from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.server.http import HttpServer
from kubeloop.devcluster.server.listener import listen
from kubeloop.kube.clock import Clock, SystemClock
from kubeloop.process.development_cluster.cluster_assembly import running_cluster
from kubeloop.process.logs import configure_logging
from kubeloop.process.signals import run_until_interrupted
from kubeloop.testing.assembly import run_control_plane
from kubeloop.testing.cluster_options import ClusterOptions
from kubeloop.testing.envtest.flags import Flags
from kubeloop.testing.envtest.serving_options import ServingOptions


def serve(flags: Flags, nodes: int | None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. Raises UserError.

    nodes: number of simulated nodes, with which controllers and scheduler run; None for an API server alone.
    """
    configure_logging("warning")
    return run_until_interrupted(_serve(flags, nodes), interrupted=0)


async def _serve(flags: Flags, nodes: int | None) -> int:
    clock, rng, token = SystemClock(), random.Random(), secrets.token_urlsafe(32)
    options = ServingOptions(flags, clock)
    with closing(options.listener()) as listener:
        settings = options.settings(listener.getsockname()[1], runs_controllers=nodes is not None)
        api = ApiServer(clock=clock, rng=rng, token=token, settings=settings)
        tls = options.tls_context()
        cluster = ClusterOptions(nodes=nodes or 0, feature_gates=settings.feature_gates.text())
        node_settings = replace(cluster.node_settings(), every_node=nodes is not None)
        async with (
            HttpServer(api, headers=options.headers(), compress=api.compresses_responses, events_first=True) as http,
            running_cluster(api, node_settings, (), token=token, clock=clock, rng=rng),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(listen(listener, http, lambda: tls, accepts_plain_http=False), name="listener")
            if nodes is not None:
                group.create_task(_run_controllers(api, cluster, token, clock, rng), name="controllers")
    return 0


async def _run_controllers(
    api: ApiServer, cluster: ClusterOptions, token: str, clock: Clock, rng: random.Random
) -> None:
    """Run controllers and scheduler until cancelled; they are imported while the API server serves."""
    async with run_control_plane(api, cluster.settings(), clock=clock, rng=rng, token=token):
        await asyncio.get_running_loop().create_future()
