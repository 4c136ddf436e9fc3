"""`kubeloop run`: controllers and scheduler against an existing API server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from kubeloop.control_plane import ControlPlane, Settings, parse_controllers
from kubeloop.garbage import importing
from kubeloop.interrupt import on_signal, run_until_interrupted
from kubeloop.kube.client import Client
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.credentials import connect
from kubeloop.kube.errors import ApiError, ServerUnreachable, UserError
from kubeloop.leader_election import ElectionSettings, LeaderElection, LeaseLost
from kubeloop.logs import LogFormat, configure_logging
from kubeloop.metrics import MeasuredTransport, new_registry
from kubeloop.running import RunningProcess, announced, runtime_directory
from kubeloop.scheduler_options import read_scheduler_configuration, write_scheduler_configuration
from kubeloop.trace_targets import PAGE_PATH
from kubeloop.tracing.journal import Journal
from kubeloop.tracing.sampling import parse_tail_rules


def run(
    *,
    kubeconfig: Path | None,
    kube_context: str | None,
    controllers: str,
    config: Path | None,
    algorithm_provider: str | None,
    concurrent_deployment_syncs: int,
    concurrent_replicaset_syncs: int,
    concurrent_rc_syncs: int,
    bind_address: str,
    endpoint_port: int,
    verbosity: str,
    log_format: LogFormat,
    trace_keep: str,
    trace_until: str,
    trace_journal: str | None,
    scheduler_name: str | None,
    write_config_to: Path | None,
    kube_api_qps: float,
    kube_api_burst: int,
    leader_elect: bool,
    leader_elect_resource_namespace: str,
    leader_elect_resource_name: str,
    leader_elect_lease_duration: float,
    leader_elect_renew_deadline: float,
    leader_elect_retry_period: float,
) -> int:
    """Run the command and return its exit code. Raises UserError for what the user can mend."""
    configure_logging(verbosity, log_format)
    scheduler = read_scheduler_configuration(
        config, algorithm_provider=algorithm_provider, scheduler_name=scheduler_name
    )
    if write_config_to is not None:
        write_scheduler_configuration(scheduler, write_config_to)
        return 0
    settings = Settings(
        controllers=parse_controllers(controllers),
        concurrent_deployment_syncs=concurrent_deployment_syncs,
        concurrent_replicaset_syncs=concurrent_replicaset_syncs,
        concurrent_rc_syncs=concurrent_rc_syncs,
        scheduler=scheduler,
        trace_keep=parse_tail_rules(trace_keep),
        trace_until_ready=trace_until == "ready",
    )
    election = None
    if leader_elect:
        election = ElectionSettings(
            namespace=leader_elect_resource_namespace,
            name=leader_elect_resource_name,
            identity=f"{socket.gethostname()}_{secrets.token_hex(8)}",
            lease_duration_seconds=leader_elect_lease_duration,
            renew_deadline_seconds=leader_elect_renew_deadline,
            retry_period_seconds=leader_elect_retry_period,
        )
        _check(election)
    return run_until_interrupted(
        _run(
            settings,
            (kubeconfig, kube_context),
            (bind_address, endpoint_port),
            (kube_api_qps if kube_api_qps > 0 else None, kube_api_burst),
            election,
            trace_journal,
        ),
        interrupted=0,
    )


async def _run(
    settings: Settings,
    cluster: tuple[Path | None, str | None],
    listen_on: tuple[str, int],
    limits: tuple[float | None, int],
    election: ElectionSettings | None,
    trace_journal: str | None,
) -> int:
    clock = SystemClock()
    rng = random.Random()
    registry = new_registry()
    kubeconfig, context = cluster
    used_kubeconfig = str(kubeconfig or os.environ.get("KUBECONFIG", ""))
    transport = await connect(str(kubeconfig) if kubeconfig else None, context)
    async with contextlib.AsyncExitStack() as stack:
        measured = MeasuredTransport(transport, registry, clock.time_ns)
        client = Client(measured, clock=clock, rng=rng, qps=limits[0], burst=limits[1])
        stack.push_async_callback(client.close)
        with importing():
            async with asyncio.TaskGroup() as group:
                group.create_task(_greet(client, transport.server), name="greeting")
                group.create_task(asyncio.to_thread(_import_pages), name="imports")
        from kubeloop.dump import dump_pages
        from kubeloop.endpoint import Endpoint
        from kubeloop.explain import explain_pages
        from kubeloop.trace_pages import trace_pages

        endpoint = Endpoint(registry, clock=clock)
        plane = ControlPlane(client, settings, clock=clock, rng=rng, registry=registry, endpoint=endpoint)
        if plane.tracing.exports and trace_journal != "":
            folder = Path(trace_journal) if trace_journal is not None else runtime_directory()
            plane.tracing.keep_journal(Journal(folder, transport.server))
        trace_pages(endpoint, plane)
        explain_pages(endpoint, plane)
        dump_pages(endpoint, plane)
        stack.enter_context(on_signal(signal.SIGUSR2, plane.dump_wanted.set))
        url = await stack.enter_async_context(endpoint.serving(*listen_on))
        process = RunningProcess(os.getpid(), url, transport.server, used_kubeconfig, clock.time_ns())
        stack.enter_context(announced(process))
        print(f"kubeloop runs {', '.join(sorted(settings.controllers))} against {transport.server}", file=sys.stderr)
        print(f"endpoint {url}\n  in a browser: {url}{PAGE_PATH}", file=sys.stderr, flush=True)
        acting: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]] | None = None
        if election is not None:
            candidate = LeaderElection(client, election, clock=clock, rng=rng)
            acting = candidate.run_while_leading
        lost_lease = False
        try:
            await plane.run(acting, import_meanwhile=True)
        except* LeaseLost as lost:
            lost_lease = True
            print(f"error: lost the lease: {lost.exceptions[0]}", file=sys.stderr)
    return int(lost_lease)


def _import_pages() -> None:
    """What is not needed before the API server has answered."""
    import kubeloop.dump
    import kubeloop.endpoint
    import kubeloop.explain
    import kubeloop.trace_pages  # noqa: F401


async def _greet(client: Client, server: str) -> None:
    """Find out at once whether the server answers us. Raises UserError."""
    try:
        async with asyncio.TaskGroup() as group:
            for path in ("/version", "/api/v1/nodes?limit=1"):
                group.create_task(client.raw("GET", path), name=f"greeting {path}")
    except* ServerUnreachable as unreachable:
        raise UserError(
            f"the API server {server} does not answer: {unreachable.exceptions[0]}",
            hint="is it running? see --kubeconfig",
        ) from None
    except* ApiError as refused:
        error = refused.exceptions[0]
        message = error.message if isinstance(error, ApiError) else str(error)
        raise UserError(
            f"the API server {server} refuses us: {message}", hint="check the user in the kubeconfig"
        ) from None


def _check(election: ElectionSettings) -> None:
    """Source: LeaderElectionConfig validation in client-go tools/leaderelection."""
    if election.lease_duration_seconds <= election.renew_deadline_seconds:
        raise UserError(
            "the lease duration must be longer than the renew deadline",
            hint="--leader-elect-lease-duration, --leader-elect-renew-deadline",
        )
    if election.renew_deadline_seconds <= election.retry_period_seconds * 1.2:
        raise UserError(
            "the renew deadline must be longer than 1.2 times the retry period",
            hint="--leader-elect-renew-deadline, --leader-elect-retry-period",
        )
