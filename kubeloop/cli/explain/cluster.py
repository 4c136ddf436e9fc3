"""Connection of `kubeloop explain` to a cluster that another scheduler serves."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

from kubeloop.cli.options.scheduler_options import read_scheduler_configuration
from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.process.api_server_check import refused_error, unreachable_error
from kubeloop.process.cluster_explanation import ClusterExplanation, gates_for
from kubeloop.process.endpoint.trace_targets import Target
from kubeloop.process.signals import run_until_interrupted

ClusterSource = tuple[tuple[str, ...], str | None]
"""Files of the kubeconfig, which are merged, and context; empty and None for the defaults."""


def explain_in_cluster(
    target: Target, source: ClusterSource, config: Path | None, gates: FeatureGates, *, with_scores: bool
) -> dict[str, Any] | None:
    """Return the explanation of a pod, a pod group, or an owner's pods; None if the user interrupted it.

    Raises UserError.
    """
    gates = gates_for(target, gates)
    configuration = read_scheduler_configuration(config, gates=gates) if config is not None else None
    document: dict[str, Any] = {}

    async def main() -> int:
        transport = await connect(*source)
        client = ApiClient(transport, clock=SystemClock(), rng=random.Random())
        explanation = ClusterExplanation(
            client,
            configuration,
            gates=gates,
            clock=SystemClock(),
            rng=random.Random(),
            report_progress=lambda text: print(text, file=sys.stderr, flush=True),
        )
        try:
            document.update(await explanation.explain(target, with_scores=with_scores))
        except* (ApiError, ServerUnreachable) as failed:
            error = failed.exceptions[0]
            server = transport.server
            user_error = (
                refused_error(server, error) if isinstance(error, ApiError) else unreachable_error(server, error)
            )
        else:
            return 0
        finally:
            await client.close()
        raise user_error

    return document if run_until_interrupted(main(), interrupted=130) == 0 else None
