"""`kubeloop plan`: what happens if manifests are applied, nodes change, or workloads are scaled."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from pathlib import Path

import msgspec

from kubeloop.cli.options.recording_options import ChangeOptions, PlanOptions
from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.user_error import UserError, read_text
from kubeloop.planning.cluster_copy import gates_of
from kubeloop.planning.plan_changes import PlanChanges, parse_scale
from kubeloop.planning.planner import InputCluster, compute_plan
from kubeloop.planning.texts import plan_junit, plan_markdown, plan_text
from kubeloop.process.logs import configure_logging
from kubeloop.process.manifests import read_manifests
from kubeloop.process.python_gc import short_collections
from kubeloop.recording.changes import state_at
from kubeloop.recording.recorder import read_cluster
from kubeloop.recording.sources.open import open_recording
from kubeloop.scheduler.config.load import load_configuration
from kubeloop.scheduler.legacy_policy.policy import POLICY_KIND


def plan(options: PlanOptions) -> int:
    """Run the command and return its exit code. Raises UserError for invalid input."""
    configure_logging("error", "text")
    _check(options)
    changes = requested_changes(options)
    with short_collections(time.perf_counter):
        cluster = _recorded_cluster(options) if options.cluster else asyncio.run(_live_cluster(options))
        configuration = None
        if options.scheduler_config is not None:
            text = read_text(options.scheduler_config, hint="--scheduler-config takes a KubeSchedulerConfiguration")
            configuration = load_configuration(text, gates_of(cluster.state), POLICY_KIND)
        result = compute_plan(cluster, changes, configuration=configuration)
    if options.junit is not None:
        _write(options.junit, plan_junit(result))
    if options.as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(result)).decode() + "\n")
    else:
        sys.stdout.write(plan_markdown(result) if options.markdown else plan_text(result))
    return 0 if result.fits else 1


def requested_changes(options: ChangeOptions) -> PlanChanges:
    """Return the changes that the options request, with the manifests. Raises UserError."""
    if options.add_nodes and not options.like:
        raise UserError("--add-nodes needs --like", hint="name a node that the new ones are like: --like NODE")
    if options.like and not options.add_nodes:
        raise UserError("--like needs --add-nodes", hint="set the number of nodes: --add-nodes 3")
    return PlanChanges(
        manifests=read_manifests(options.files),
        namespace=options.namespace,
        drain=options.drain,
        cordon=options.cordon,
        delete_nodes=options.delete_nodes,
        add_nodes=options.add_nodes,
        like=options.like,
        scale=[parse_scale(text) for text in options.scale],
        fit=options.fit,
    )


def _check(options: PlanOptions) -> None:
    """Raise UserError for options that do not belong together."""
    if options.as_json and options.markdown:
        raise UserError("--json and --markdown are mutually exclusive", hint="remove one")
    if options.cluster and (options.kube_context or options.kubeconfig):
        raise UserError("--cluster and --context or --kubeconfig are mutually exclusive", hint="remove one")
    if options.at is not None and not options.cluster:
        raise UserError("--at needs --cluster", hint="name the recording: --cluster FILE")


def _recorded_cluster(options: PlanOptions) -> InputCluster:
    recording = open_recording(options.cluster)
    state = state_at(recording, options.at)
    return InputCluster(recording.name, state, list(recording.findings), is_projected=recording.is_projected)


async def _live_cluster(options: PlanOptions) -> InputCluster:
    """Read the cluster of the kubeconfig by lists only."""
    clock = SystemClock()
    kubeconfig = str(options.kubeconfig) if options.kubeconfig else None
    transport = await connect(kubeconfig, options.kube_context)
    client = ApiClient(transport, clock=clock, rng=random.Random())
    try:
        state, findings = await read_cluster(client, clock)
    finally:
        await client.close()
    return InputCluster(transport.server, state, findings, is_projected=False)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", hint="choose another file") from None
