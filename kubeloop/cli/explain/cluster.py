"""Connection of `kubeloop explain` to a cluster that another scheduler serves."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubeloop.cli.options.scheduler_options import read_scheduler_configuration
from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.process.api_server_check import refused_error, unreachable_error
from kubeloop.process.cluster_explanation import ClusterExplanation, gates_for
from kubeloop.process.endpoint.trace_targets import Target
from kubeloop.process.signals import run_until_interrupted

log = logging.getLogger(__name__)

ClusterSource = tuple[tuple[str, ...], str | None]
"""Files of the kubeconfig, which are merged, and context; empty and None for the defaults."""


def explain_in_cluster(
    target: Target, source: ClusterSource, config: Path | None, gates: FeatureGates, *, with_scores: bool
) -> dict[str, Any] | None:
    """Return the explanation of a pod, a pod group, or an owner's pods; None if the user interrupted it.

    Raises UserError.
    """
    document: dict[str, Any] = {}

    async def main() -> int:
        document.update(await _explain(target, source, config, gates, with_scores=with_scores, report=_print))
        return 0

    return document if run_until_interrupted(main(), interrupted=130) == 0 else None


def explain_for_observer(target: Target, source: ClusterSource, *, with_scores: bool) -> dict[str, Any]:
    """Return the explanation, read and computed in the calling thread, with the default configuration. Raises
    UserError."""
    explanation = _explain(target, source, None, DEFAULT_FEATURE_GATES, with_scores=with_scores, report=log.info)
    return asyncio.run(explanation)


async def _explain(
    target: Target,
    source: ClusterSource,
    config: Path | None,
    gates: FeatureGates,
    *,
    with_scores: bool,
    report: Callable[[str], None],
) -> dict[str, Any]:
    gates = gates_for(target, gates)
    configuration = read_scheduler_configuration(config, gates=gates) if config is not None else None
    transport = await connect(*source)
    client = ApiClient(transport, clock=SystemClock(), rng=random.Random())
    explanation = ClusterExplanation(
        client, configuration, gates=gates, clock=SystemClock(), rng=random.Random(), report_progress=report
    )
    try:
        return await explanation.explain(target, with_scores=with_scores)
    except* (ApiError, ServerUnreachable) as failed:
        error = failed.exceptions[0]
        server = transport.server
        user_error = refused_error(server, error) if isinstance(error, ApiError) else unreachable_error(server, error)
    finally:
        await client.close()
    raise user_error


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
