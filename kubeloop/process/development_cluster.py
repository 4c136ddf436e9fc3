"""The development cluster in one process: an API server and simulated nodes on loopback."""

from __future__ import annotations

import asyncio
import random
import socket
import sys
from collections.abc import Sequence
from contextlib import closing
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from kubeloop.devcluster.api.errors import NotDurable
from kubeloop.devcluster.controllers.disruption import DisruptionBudgets
from kubeloop.devcluster.controllers.persistent_volume_binder import SimulatedVolumes
from kubeloop.devcluster.kubelet.simulated_nodes import SimulatedNodes
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.server.faults import Faults
from kubeloop.devcluster.server.http import HttpServer
from kubeloop.devcluster.server.listener import PortTaken, listen, loopback_socket, machine_identity
from kubeloop.devcluster.server.tls import kept_certificate, make_certificate
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.storage.sqlite import Journal
from kubeloop.kube.clock import Clock, SystemClock
from kubeloop.kube.errors import UserError
from kubeloop.kube.objects.resources import NODES
from kubeloop.process.apiserver_process import Ready
from kubeloop.process.kubeconfig_file import write_kubeconfig

if TYPE_CHECKING:
    from kubeloop.devcluster.kubelet.stages.files import Stage


class ApiServerSettings(msgspec.Struct, frozen=True):
    """How the API server of one process is to be run; port 0 takes a free one.

    journal: where objects are kept over restarts, None for nowhere. child: announce readiness as JSON on stdout and end
    when stdin does.
    """

    port: int
    kubeconfig: Path
    token: str
    faults: Faults | None
    journal: Journal | None
    compaction_seconds: float
    service_range: IPv4Network
    supervised: bool


async def serve_cluster(settings: NodeSettings, stages: Sequence[Stage], serving: ApiServerSettings) -> int:
    """Raises UserError, also when the disk is full: now, or when the server runs."""
    try:
        listening = loopback_socket(serving.port)
    except PortTaken as taken:
        raise UserError(str(taken), hint="choose another with --port, or 0 for a free one") from None
    try:
        with closing(listening):
            await _serve_on(listening, settings, stages, serving)
    except* NotDurable as failed:
        # clients were told with each write; the simulated nodes cannot go on
        raise UserError(
            _first(failed).message.removeprefix("Internal error occurred: "),
            hint="make room and start again: nothing that was acknowledged is lost",
        ) from None
    return 0


async def _serve_on(
    listening: socket.socket, settings: NodeSettings, stages: Sequence[Stage], serving: ApiServerSettings
) -> None:
    path = serving.kubeconfig
    clock = SystemClock()
    rng = random.Random()
    number = listening.getsockname()[1]
    journal = serving.journal
    certificate = make_certificate(clock) if journal is None else kept_certificate(journal.folder, clock)
    api = ApiServer(
        clock=clock,
        rng=rng,
        token=serving.token,
        faults=serving.faults,
        journal=journal,
        compaction_seconds=serving.compaction_seconds,
        service_range=serving.service_range,
        identity=machine_identity(number),
    )
    simulated = _simulated(api, settings, stages, serving.token, clock, rng)
    ready = Ready(f"https://127.0.0.1:{number}", f"http://127.0.0.1:{number}", str(path.absolute()))
    write_kubeconfig(path, server=ready.server, token=serving.token, certificate_pem=certificate.certificate_pem)
    _tell_of_removed_nodes(api, settings)
    async with HttpServer(api) as http, asyncio.TaskGroup() as group:
        parts = [
            group.create_task(api.run(), name="api-server"),
            group.create_task(listen(listening, http, certificate.context), name="listener"),
        ]
        parts += [group.create_task(each.run(), name=name) for name, each in simulated.items()]
        if serving.supervised:
            print(msgspec.json.encode(ready).decode(), flush=True)
            await _stdin_closed()
            for part in parts:
                part.cancel()
        else:
            print(f"development cluster with {len(api.store.list(NODES))} nodes at {ready.server}")
            print(f"  export KUBECONFIG={ready.kubeconfig}", flush=True)


def _tell_of_removed_nodes(api: ApiServer, settings: NodeSettings) -> None:
    """Whoever asks for three nodes and gets two is told why."""
    removed = sum(api.store.get(NODES, "", settings.name(index)) is None for index in range(settings.count))
    if removed:
        told = f"{removed} of the {settings.count} nodes of --nodes were removed before, and stay removed"
        print(f"note: {told}; kubeloop nodes add makes others", file=sys.stderr)


class Simulated(Protocol):
    """Runs until cancelled."""

    async def run(self) -> None: ...


def _simulated(
    api: ApiServer, settings: NodeSettings, stages: Sequence[Stage], token: str, clock: Clock, rng: random.Random
) -> dict[str, Simulated]:
    """What plays the rest of a cluster: nodes, which are in the store when this returns, and what goes with them."""
    parts: dict[str, Simulated] = {}
    requests = None
    if stages:
        from kubeloop.devcluster.kubelet.stages.objects import ObjectStages
        from kubeloop.devcluster.kubelet.stages.requests import StageRequests

        requests = StageRequests(api.answer, token)
        others = [stage for stage in stages if not stage.of_kubelets]
        if others:
            parts["stages"] = ObjectStages(others, requests, api.store, clock=clock, rng=rng)
    kubelets = SimulatedNodes(api.store, settings, clock=clock, rng=rng, stages=stages, requests=requests)
    kubelets.register()
    parts["nodes"] = kubelets
    if settings.count:
        staged_claims = any(stage.kind == "PersistentVolumeClaim" for stage in stages)
        volumes = SimulatedVolumes(api.store, clock=clock, rng=rng, only_own=staged_claims)
        volumes.register()
        parts["volumes"] = volumes
        parts["disruption-budgets"] = DisruptionBudgets(api.store, clock=clock, rng=rng)
    return parts


def _first(group: BaseExceptionGroup[NotDurable]) -> NotDurable:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


async def _stdin_closed() -> None:
    """Until the process that started us is gone, however it went."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
