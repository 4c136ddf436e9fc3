"""`kubeloop observe`: a trace of each pod of an existing cluster, by list and watch only."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import sys
from typing import Any

import msgspec

from kubeloop.cli.options.journal_option import journal_opener
from kubeloop.cli.options.options import ObserveElectionOptions, ObserveOptions
from kubeloop.cli.process_endpoint import serve_endpoint
from kubeloop.cli.replica_election import check_election, run_as_candidate
from kubeloop.kube.allocator import map_large_blocks
from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.user_error import UserError
from kubeloop.process.endpoint.endpoint_listener import listener_url, open_listener
from kubeloop.process.endpoint.explain_pages import add_cluster_explain_page
from kubeloop.process.endpoint.observation_pages import add_observation_pages
from kubeloop.process.endpoint.server import EndpointServer
from kubeloop.process.endpoint.trace_targets import Target
from kubeloop.process.logs import configure_logging
from kubeloop.process.metrics.client_metrics import MeasuredTransport
from kubeloop.process.metrics.process_metrics import new_registry
from kubeloop.process.observation.cluster_access import MISSING_DETAIL, check_access
from kubeloop.process.observation.observation import Observation, ObservationSettings
from kubeloop.process.observation.server_contact import ContactTransport
from kubeloop.process.process_files import ProcessRecord, current_kubeconfig
from kubeloop.process.signals import run_until_interrupted
from kubeloop.tracing.observation.clock_skew import ClockSkew
from kubeloop.tracing.sampling.samplers import parse_tail_rules


def observe(options: ObserveOptions, election: ObserveElectionOptions) -> int:
    """Run the command and return its exit code. Raises UserError for invalid input."""
    configure_logging(options.verbosity, options.log_format)
    if options.namespace and options.all_namespaces:
        raise UserError("-n and -A are mutually exclusive", hint="remove one")
    settings = ObservationSettings(
        namespace=options.namespace,
        label_selector=options.selector,
        trace_tail_rules=parse_tail_rules(options.trace_tail_sampling),
        trace_until_ready=options.trace_until == "ready",
    )
    if election.leader_elect:
        check_election(election)
    map_large_blocks()
    return run_until_interrupted(_observe(settings, options, election), interrupted=0)


async def _observe(settings: ObservationSettings, options: ObserveOptions, election: ObserveElectionOptions) -> int:
    clock, rng, registry, skew = SystemClock(), random.Random(), new_registry(), ClockSkew()
    kubeconfig = str(options.kubeconfig) if options.kubeconfig else None
    transport = await connect(kubeconfig, options.kube_context)
    async with contextlib.AsyncExitStack() as stack:
        measured = MeasuredTransport(transport, registry, clock.time_ns)
        client = ApiClient(ContactTransport(measured, clock.time_ns, skew.http_date), clock=clock, rng=rng)
        stack.push_async_callback(client.close)
        listener = stack.enter_context(open_listener(options.bind_address, options.endpoint_port))
        lease = (election.leader_elect_resource_namespace, election.leader_elect_resource_name)
        missing = await check_access(
            client, settings.namespace, settings.pod_selectors, lease if election.leader_elect else None
        )
        _report_missing(missing)
        settings = msgspec.structs.replace(settings, missing=missing)
        observation = Observation(
            client,
            settings,
            clock=clock,
            rng=rng,
            registry=registry,
            skew=skew,
            open_journal=journal_opener(options.trace_journal, _journal_scope(transport.server, settings)),
        )
        endpoint = EndpointServer(registry, clock=clock)
        add_observation_pages(endpoint, observation)
        source = (current_kubeconfig(options.kubeconfig), options.kube_context)
        add_cluster_explain_page(endpoint, functools.partial(_explain, source))
        record = ProcessRecord(
            os.getpid(),
            listener_url(listener),
            transport.server,
            current_kubeconfig(options.kubeconfig),
            clock.time_ns(),
            context=options.kube_context or "",
            schedules=False,
        )
        title = f"kubeloop observes {settings.scope} of {record.server}"
        async with asyncio.TaskGroup() as group:
            pages_task = group.create_task(serve_endpoint(endpoint, listener, record, title), name="endpoint")
            try:
                if not election.leader_elect or "leases" in missing:
                    await observation.run()
                    return 0
                return await run_as_candidate(observation.run, client, election, clock, rng)
            finally:
                pages_task.cancel()


def _explain(source: tuple[tuple[str, ...], str | None], target: Target, with_scores: bool) -> dict[str, Any]:
    from kubeloop.cli.explain.cluster import explain_for_observer

    return explain_for_observer(target, source, with_scores=with_scores)


def _report_missing(missing: frozenset[str]) -> None:
    if missing:
        details = "; ".join(f"{resource}: {MISSING_DETAIL[resource]}" for resource in sorted(missing))
        print(f"warning: permissions are missing, see docs/observe.md: {details}", file=sys.stderr)


def _journal_scope(server: str, settings: ObservationSettings) -> str:
    """Return the owner of a journal: a process with another scope would take its pods for deleted."""
    return f"{server} observe {settings.namespace or '*'} {settings.label_selector}"
