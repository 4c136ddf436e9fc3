"""`kubeloop run`: controllers and scheduler against an existing API server."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import random
import signal
import socket
from pathlib import Path

from msgspec import structs

from kubeloop.cli.options.control_plane_settings import control_plane_settings
from kubeloop.cli.options.gate_warnings import log_gate_warnings
from kubeloop.cli.options.journal_option import journal_opener
from kubeloop.cli.options.options import (
    ControllerOptions,
    ElectionOptions,
    FeatureGateOptions,
    ProcessOptions,
    RunOptions,
    ServerOptions,
)
from kubeloop.cli.options.scheduler_options import (
    PolicyText,
    read_policy_config_map,
    read_policy_file,
    read_scheduler_configuration,
    write_scheduler_configuration,
)
from kubeloop.cli.process_endpoint import serve_endpoint
from kubeloop.cli.replica_election import check_election, election_settings, run_as_candidate
from kubeloop.kube.allocator import map_large_blocks
from kubeloop.kube.auth.credentials import certificate_authority, connect
from kubeloop.kube.auth.token_signer import read_token_signer
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import Clock, SystemClock
from kubeloop.kube.user_error import UserError, read_text
from kubeloop.process.api_server_check import check_api_server
from kubeloop.process.control_plane.control_plane import (
    ControlPlane,
    Settings,
    import_components,
    initial_components,
    settings_within_lease,
)
from kubeloop.process.control_plane.controller_selection import select_controllers
from kubeloop.process.control_plane.controller_table import (
    CSR_SIGNING,
    ROOT_CA_PUBLISHER,
    SCHEDULER,
    SERVICE_ACCOUNT_TOKEN,
)
from kubeloop.process.control_plane.running_components import check_running_components
from kubeloop.process.control_plane.signing_authorities import signing_authority
from kubeloop.process.endpoint.endpoint_listener import listener_url, open_listener
from kubeloop.process.logs import configure_logging, configure_packages
from kubeloop.process.metrics.client_metrics import MeasuredTransport
from kubeloop.process.metrics.metrics_registry import MetricsRegistry
from kubeloop.process.metrics.process_metrics import new_registry
from kubeloop.process.process_files import ProcessRecord, current_kubeconfig
from kubeloop.process.python_gc import importing
from kubeloop.process.signals import on_signal, run_until_interrupted

log = logging.getLogger(__name__)


def run(
    server: ServerOptions,
    process: ProcessOptions,
    controllers: ControllerOptions,
    run_options: RunOptions,
    election: ElectionOptions,
    gate_options: FeatureGateOptions,
) -> int:
    """Run the command and return its exit code. Raises UserError for invalid input."""
    configure_logging(process.verbosity, process.log_format)
    gates = gate_options.parsed()
    log_gate_warnings(gates)
    scheduler = read_scheduler_configuration(
        process.config,
        algorithm_provider=process.algorithm_provider,
        scheduler_name=run_options.scheduler_name,
        policy=_policy(server, process, run_options),
        tie_break=process.tie_break,
        gates=gates,
    )
    if run_options.write_config_to is not None:
        write_scheduler_configuration(scheduler, run_options.write_config_to)
        return 0
    selection = select_controllers(server.controllers)
    configure_packages(selection.packages, process.verbosity)
    settings = control_plane_settings(process, selection, scheduler, gates, controller_options=controllers)
    settings = _with_keys(settings)
    if settings.controllers & {ROOT_CA_PUBLISHER, SERVICE_ACCOUNT_TOKEN}:
        settings = structs.replace(settings, root_ca=_root_ca(settings.controller_options["root_ca_file"], server))
    if election.leader_elect:
        check_election(election)
        settings = settings_within_lease(settings, election_settings(election))
    map_large_blocks()
    return run_until_interrupted(_run(settings, server, process, run_options, election), interrupted=0)


def _with_keys(settings: Settings) -> Settings:
    """Return the settings with the keys of controllers; a controller without its key does not run. Raises UserError."""
    token_option, options = "--service-account-private-key-file", settings.controller_options
    if SERVICE_ACCOUNT_TOKEN in settings.controllers and (path := options["service_account_private_key_file"]):
        try:
            settings = structs.replace(settings, sign_token=read_token_signer(Path(path)).sign)
        except UserError as error:
            raise UserError(f"{token_option}: {error}", hint=error.hint) from None
    if CSR_SIGNING in settings.controllers:
        settings = structs.replace(settings, signing_authority=signing_authority(options))
    needed = {SERVICE_ACCOUNT_TOKEN: token_option, CSR_SIGNING: "--cluster-signing-cert-file"}
    unable = settings.controllers & settings.without_key
    if unable and unable == settings.controllers and not settings.custom_controllers:
        name = min(unable)
        raise UserError(f"{name} needs {needed[name]}", hint="it signs with the key in a file")
    for name in sorted(unable):
        log.info("%s does not run without %s", name, needed[name])
    return structs.replace(settings, controllers=settings.controllers - unable)


def _root_ca(path: str, server: ServerOptions) -> str:
    """Return the certificates for kube-root-ca.crt. Raises UserError."""
    if not path:
        return certificate_authority(_kubeconfig(server), server.kube_context)
    return read_text(path, option="--root-ca-file", hint="it takes certificates in PEM")


def _kubeconfig(server: ServerOptions) -> str | None:
    return str(server.kubeconfig) if server.kubeconfig else None


def _policy(server: ServerOptions, process: ProcessOptions, run_options: RunOptions) -> PolicyText | None:
    """Return the Policy of --policy-config-file or --policy-configmap. Raises UserError."""
    if process.policy_config_file is not None:
        if run_options.policy_configmap is not None:
            raise UserError("--policy-config-file and --policy-configmap are mutually exclusive", hint="remove one")
        return read_policy_file(process.policy_config_file)
    if run_options.policy_configmap is None:
        return None
    return asyncio.run(
        _policy_of_config_map(server, run_options.policy_configmap_namespace, run_options.policy_configmap)
    )


async def _policy_of_config_map(server: ServerOptions, namespace: str, name: str) -> PolicyText:
    transport = await connect(_kubeconfig(server), server.kube_context)
    client = ApiClient(transport, clock=SystemClock(), rng=random.Random())
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(client.close)
        return await read_policy_config_map(client, namespace, name)


async def _run(
    settings: Settings,
    server: ServerOptions,
    process: ProcessOptions,
    run_options: RunOptions,
    election: ElectionOptions,
) -> int:
    clock = SystemClock()
    rng = random.Random()
    registry = new_registry()
    transport = await connect(_kubeconfig(server), server.kube_context)
    async with contextlib.AsyncExitStack() as stack:
        measured = MeasuredTransport(transport, registry, clock.time_ns)
        qps = run_options.kube_api_qps if run_options.kube_api_qps > 0 else None
        client = ApiClient(
            measured,
            clock=clock,
            rng=rng,
            qps=qps,
            burst=run_options.kube_api_burst,
            trace_requests=run_options.trace_requests,
        )
        stack.push_async_callback(client.close)
        listener = stack.enter_context(open_listener(process.bind_address, process.endpoint_port))
        with importing():
            async with asyncio.TaskGroup() as group:
                checking = check_api_server(client, transport.server, lists_nodes=bool(settings.controllers))
                group.create_task(checking, name="api-server-check")
                if not run_options.force:
                    comparing = check_running_components(client, settings, clock.now(), own_lease=_own_lease(election))
                    group.create_task(comparing, name="running-components-check")
                # the control plane imports these before the scheduler
                needed_first = initial_components(settings.controllers - {SCHEDULER}, development=False)
                group.create_task(asyncio.to_thread(import_components, needed_first), name="imports")
        open_journal = journal_opener(run_options.trace_journal, transport.server)
        plane = ControlPlane(
            client,
            settings,
            clock=clock,
            rng=rng,
            registry=registry,
            open_journal=open_journal,
            connect=lambda path, context: connect(path or _kubeconfig(server), context),
        )
        stack.enter_context(on_signal(signal.SIGUSR2, plane.dump_requested.set))
        async with asyncio.TaskGroup() as group:
            url = listener_url(listener)
            record = ProcessRecord(
                os.getpid(),
                url,
                transport.server,
                current_kubeconfig(server.kubeconfig),
                clock.time_ns(),
                context=server.kube_context or "",
                schedules="scheduler" in settings.controllers,
            )
            pages_task = group.create_task(_serve_pages(plane, registry, clock, listener, record), name="endpoint")
            try:
                if not election.leader_elect:
                    await plane.run()
                    return 0
                return await run_as_candidate(plane.run, client, election, clock, rng)
            finally:
                pages_task.cancel()


def _own_lease(election: ElectionOptions) -> tuple[str, str] | None:
    if not election.leader_elect:
        return None
    return election.leader_elect_resource_namespace, election.leader_elect_resource_name


async def _serve_pages(
    plane: ControlPlane, registry: MetricsRegistry, clock: Clock, listener: socket.socket, record: ProcessRecord
) -> None:
    """Serve the endpoint and list this process for other commands, until cancelled. Modules of the endpoint alone are
    imported after those of the control plane, so that pods do not wait for them."""
    await plane.components_created.wait()
    await asyncio.to_thread(importlib.import_module, "kubeloop.process.endpoint.process_pages")
    from kubeloop.process.endpoint.process_pages import add_process_pages
    from kubeloop.process.endpoint.server import EndpointServer

    endpoint = EndpointServer(registry, clock=clock)
    add_process_pages(endpoint, plane)
    title = f"kubeloop runs {', '.join([*plane.custom, *sorted(plane.settings.controllers)])} against {record.server}"
    await serve_endpoint(endpoint, listener, record, title)
