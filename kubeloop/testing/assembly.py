"""A whole cluster on one event loop: API server with simulated nodes, and control plane.

Two nested contexts: `run_api_server` runs the API server and nodes, `run_control_plane` controllers and scheduler. The
second imports most of kubeloop when it is called.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import random
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from kubeloop.devcluster.authentication.front_proxy import FrontProxySettings
from kubeloop.devcluster.handlers.reading.watch import WatchSettings
from kubeloop.devcluster.server.apiserver import ApiServer, ServingSettings
from kubeloop.kube.auth.authorization_header import AuthorizedTransport, StaticAuthorization
from kubeloop.kube.clock import Clock, is_virtual
from kubeloop.kube.objects.resources import DEPLOYMENTS
from kubeloop.process.development_cluster.cluster_assembly import running_cluster
from kubeloop.process.development_cluster.node_options import read_stage_files
from kubeloop.process.metrics.metrics_registry import MetricsRegistry, Registerer
from kubeloop.testing.cluster_options import ClusterOptions
from kubeloop.testing.memory_transport import MemoryTransport

if TYPE_CHECKING:
    from kubeloop.controllers.runtime.other_clusters import Connect
    from kubeloop.devcluster.simulation.node_objects import PodMarkers
    from kubeloop.kube.auth.certificate_authority import CertificateAuthority
    from kubeloop.kube.client.transport import Transport
    from kubeloop.process.control_plane.control_plane import ControlPlane, Settings
    from kubeloop.tracing.export.exporters import TraceExporter


@contextlib.asynccontextmanager
async def run_api_server(
    options: ClusterOptions,
    *,
    clock: Clock,
    rng: random.Random,
    token: str | None = None,
    authority: CertificateAuthority | None = None,
    pod_markers: PodMarkers | None = None,
    addresses: dict[str, tuple[str, int]] | None = None,
) -> AsyncIterator[ApiServer]:
    """Run an API server with its nodes for the length of the context. token: see ApiServer.

    authority: certificate authority of the server and its clients, if it has TLS. pod_markers: see NodeSettings.
    addresses: of Services, read at each use, in place of those of the options. A crash inside raises out of the
    context, in an ExceptionGroup. Raises UserError for invalid options, before anything runs.
    """
    nodes, faults = dataclasses.replace(options.node_settings(), pod_markers=pod_markers), options.parsed_faults()
    watches = WatchSettings()
    if is_virtual(asyncio.get_running_loop()):  # all clients are in this process
        nodes = dataclasses.replace(nodes, heartbeats_on_read=True)
        watches = WatchSettings(bookmark_seconds=math.inf)
    stages, answers = read_stage_files(options.stages)
    settings = ServingSettings(
        service_range=options.service_range(),
        feature_gates=options.parsed_feature_gates(),
        container_answers=answers,
        root_ca="" if authority is None else authority.certificate_pem,
        authority=authority,
        front_proxy=None if authority is None else FrontProxySettings(),
        authorization_modes=options.authorization_modes(),
        admission=options.admission_plugins(),
        resolved_addresses=options.resolved_addresses() if addresses is None else addresses,
        watches=watches,
        serves_metrics=nodes.every_node,
    )
    api = ApiServer(clock=clock, rng=random.Random(rng.getrandbits(64)), token=token, faults=faults, settings=settings)
    async with running_cluster(api, nodes, stages, token=token, clock=clock, rng=rng):
        yield api


@contextlib.asynccontextmanager
async def run_control_plane(
    api: ApiServer,
    settings: Settings,
    *,
    clock: Clock,
    rng: random.Random,
    token: str | None = None,
    registry: Registerer | None = None,
    user_agent: str = "kubeloop",
    exporter: TraceExporter | None = None,
    transport: Transport | None = None,
    connect: Connect | None = None,
) -> AsyncIterator[ControlPlane]:
    """Run controllers and scheduler of a served cluster for the length of the context; yield them when their caches are
    filled.

    A crash inside raises out of the context, in an ExceptionGroup. user_agent: SPARED_USER_AGENT exempts the control
    plane from injected faults. exporter: of its traces, in place of the one that the environment configures.
    transport: to the API server, in place of a direct one. connect: connects to other clusters, in place of the
    kubeconfig's.
    """
    from kubeloop.kube.client.api_client import ApiClient
    from kubeloop.process.control_plane.control_plane import ControlPlane

    authorization = StaticAuthorization("" if token is None else f"Bearer {token}")
    client = ApiClient(
        AuthorizedTransport(transport or MemoryTransport(api.handle), authorization),
        clock=clock,
        rng=rng,
        user_agent=user_agent,
        in_process=not api.injects_faults,
    )
    registry = registry or MetricsRegistry()
    settings = msgspec.structs.replace(
        settings, root_ca=api.root_ca, sign_token=api.token_key.sign, signing_authority=api.signing_authority
    )
    plane = ControlPlane(
        client,
        settings,
        clock=clock,
        rng=rng,
        registry=registry,
        exporter=exporter,
        connect=connect,
    )
    plane.informers.informer(DEPLOYMENTS)
    async with asyncio.TaskGroup() as group:
        control_plane_task = group.create_task(plane.run(), name="control-plane")
        await plane.synced.wait()
        yield plane
        control_plane_task.cancel()
