"""The development cluster in one process: an API server and simulated nodes on loopback."""

from __future__ import annotations

import asyncio
import random
import socket
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kubeloop.devcluster.admission.plugin_settings import PluginSettings
from kubeloop.devcluster.aggregation.proxy_settings import ProxySettings
from kubeloop.devcluster.api.errors import NotDurable
from kubeloop.devcluster.authentication.front_proxy import FrontProxySettings
from kubeloop.devcluster.kubelet.containers.container_answers import ContainerAnswers
from kubeloop.devcluster.server.apiserver import ApiServer, ServingSettings
from kubeloop.devcluster.server.faults import Faults
from kubeloop.devcluster.server.http import HttpServer
from kubeloop.devcluster.server.listener import PortTaken, listen, listening_socket, machine_identity
from kubeloop.devcluster.server.tls import create_certificate, stored_certificate
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.storage.data_directory import DataDirectory
from kubeloop.devcluster.storage.private_files import write_private_file
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES
from kubeloop.kube.user_error import UserError
from kubeloop.process.development_cluster.apiserver_process import Ready
from kubeloop.process.development_cluster.cluster_assembly import running_cluster
from kubeloop.process.development_cluster.kubeconfig_file import write_kubeconfig

if TYPE_CHECKING:
    from kubeloop.devcluster.audit.log_file import AuditLog
    from kubeloop.devcluster.kubelet.stages.files import Stage


class ApiServerSettings(msgspec.Struct, frozen=True):
    """Configuration of the API server; port 0 selects a free port.

    journal: storage of objects over restarts, None for memory only. supervised: print a Ready message on stdout, and
    end at the end of stdin. container_answers: answers to logs, exec and the like for simulated containers.
    service_account_key: see ServingSettings. client_ca: authorities whose client certificates are accepted, in PEM;
    "" for that of the cluster. front_proxy, static_tokens, accepts_bootstrap_tokens: see Authenticator.
    certificate_authority: file of the cluster's own. authorization_modes: authorizers in their order. audit: see
    ServingSettings. proxy: how aggregated API servers are called. admission: the admission plugins.
    resolved_addresses: those of --resolve, by host.
    """

    port: int
    kubeconfig: Path
    token: str
    faults: Faults | None
    data_directory: DataDirectory | None
    compaction_seconds: float
    service_range: IPv4Network
    supervised: bool
    feature_gates: FeatureGates
    container_answers: ContainerAnswers
    service_account_key: Path
    client_ca: str
    front_proxy: FrontProxySettings
    proxy: ProxySettings
    static_tokens: dict[str, JSON]
    accepts_bootstrap_tokens: bool
    certificate_authority: Path
    authorization_modes: tuple[str, ...]
    audit: AuditLog | None
    admission: PluginSettings
    resolved_addresses: dict[str, tuple[str, int]]


async def serve_cluster(settings: NodeSettings, stages: Sequence[Stage], server: ApiServerSettings) -> int:
    """Run until cancelled. Raises UserError, also when the disk is full, at the start or later."""
    try:
        listener = listening_socket(server.port)
    except PortTaken as taken:
        raise UserError(str(taken), hint="choose another with --port, or 0 for a free one") from None
    try:
        with closing(listener):
            await _serve_on(listener, settings, stages, server)
    except* NotDurable as failed:
        # each failed write was reported to its client; the simulated nodes cannot continue
        raise UserError(
            _first(failed).message.removeprefix("Internal error occurred: "),
            hint="free disk space and start again: no acknowledged write is lost",
        ) from None
    return 0


async def _serve_on(
    listener: socket.socket, settings: NodeSettings, stages: Sequence[Stage], server: ApiServerSettings
) -> None:
    path = server.kubeconfig
    clock = SystemClock()
    rng = random.Random()
    port = listener.getsockname()[1]
    data_directory = server.data_directory
    if data_directory is not None:
        certificate = stored_certificate(server.certificate_authority, clock)
    else:
        certificate = create_certificate(clock)
        if server.supervised:  # the other process has the controller that signs with it
            write_private_file(server.certificate_authority, certificate.authority.pem())
    api = ApiServer(
        clock=clock,
        rng=rng,
        token=server.token,
        faults=server.faults,
        data_directory=data_directory,
        settings=ServingSettings(
            compaction_seconds=server.compaction_seconds,
            service_range=server.service_range,
            identity=machine_identity(port),
            feature_gates=server.feature_gates,
            container_answers=server.container_answers,
            root_ca=certificate.authority.certificate_pem,
            client_ca=server.client_ca,
            front_proxy=server.front_proxy,
            proxy=server.proxy,
            static_tokens=server.static_tokens,
            accepts_bootstrap_tokens=server.accepts_bootstrap_tokens,
            service_account_key=server.service_account_key,
            authorization_modes=server.authorization_modes,
            audit=server.audit,
            admission=server.admission,
            resolved_addresses=server.resolved_addresses,
            serves_metrics=settings.every_node,
        ),
    )
    ready = Ready(
        server=f"https://127.0.0.1:{port}",
        plain_server=f"http://127.0.0.1:{port}",
        kubeconfig=str(path.absolute()),
        root_ca=certificate.authority.certificate_pem,
        service_account_key=str(server.service_account_key.absolute()),
        certificate_authority=str(server.certificate_authority.absolute()),
    )
    write_kubeconfig(
        path, server=ready.server, token=server.token, certificate_pem=certificate.authority.certificate_pem
    )
    async with (
        HttpServer(api, compress=api.compresses_responses) as http,
        running_cluster(api, settings, stages, token=server.token, clock=clock, rng=rng),
        asyncio.TaskGroup() as group,
    ):
        _warn_about_removed_nodes(api, settings)
        listener_task = group.create_task(
            listen(listener, http, partial(certificate.context, server.client_ca)), name="listener"
        )
        if server.supervised:
            print(msgspec.json.encode(ready).decode(), flush=True)
            await _wait_for_stdin_eof()
            listener_task.cancel()
        else:
            print(f"development cluster with {len(api.store.list(NODES))} nodes at {ready.server}")
            print(f"  export KUBECONFIG={ready.kubeconfig}", flush=True)


def _warn_about_removed_nodes(api: ApiServer, settings: NodeSettings) -> None:
    """Print a note if nodes of --nodes were removed in an earlier run."""
    removed = sum(api.store.get(NODES, "", settings.name(index)) is None for index in range(settings.count))
    if removed:
        problem = f"{removed} of the {settings.count} nodes of --nodes were removed before, and stay removed"
        print(f"note: {problem}; add others with kubeloop nodes add", file=sys.stderr)


def _first(group: BaseExceptionGroup[NotDurable]) -> NotDurable:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


async def _wait_for_stdin_eof() -> None:
    """Wait until the parent process ends, in any way."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
